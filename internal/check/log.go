package check

import (
	"bufio"
	"io"
	"sync"
)

// Log writes the events of one client. Write buffers; what must be seen by someone who follows the file needs Flush.
type Log struct {
	mu   sync.Mutex // guards the fields below
	w    *bufio.Writer
	line []byte
	err  error // the first that writing met; later writes do nothing
}

// NewLog writes to w, which stays the caller's to close.
func NewLog(w io.Writer) *Log {
	return &Log{w: bufio.NewWriterSize(w, 64<<10)}
}

// Write appends e.
func (l *Log) Write(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.line = e.AppendLine(l.line[:0])
	_, l.err = l.w.Write(l.line)
}

// Flush hands everything on and returns the first error since NewLog.
func (l *Log) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = l.w.Flush()
	}
	return l.err
}
