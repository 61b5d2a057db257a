package check

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
)

// maxLineBytes bounds a line; a longer one is an error.
const maxLineBytes = 1 << 20

// Parser reads lines. It keeps one copy of each name, so the events it returns share their strings. The zero value is ready.
// Not for use by several goroutines.
type Parser struct {
	names map[string]string
	rest  []byte // what of the current line is still unread
	err   error  // of the first field that failed
}

// Parse reads one line, without its line feed, into e. The event holds no reference to line.
func (p *Parser) Parse(line []byte, e *Event) error {
	*e = Event{}
	p.rest, p.err = line, nil
	e.Kind = kindOf(p.word())
	if p.err == nil && e.Kind == 0 {
		return fmt.Errorf("line %.80q: unknown kind of event", line)
	}
	e.Millis = p.number(math.MinInt64, math.MaxInt64)
	p.fields(e)
	if p.err == nil && len(p.rest) > 0 {
		p.err = errors.New("more fields than the event has")
	}
	if p.err != nil {
		return fmt.Errorf("line %.80q: %w", line, p.err)
	}
	return nil
}

func (p *Parser) fields(e *Event) {
	switch e.Kind {
	case Sent, Acked, Failed:
		e.Producer = p.name()
		e.Client = e.Producer
		e.Seq = p.number(0, MaxSeq-1)
		p.place(e)
		if e.Kind == Acked {
			e.Offset = p.number(0, math.MaxInt64)
		}
		if e.Kind == Failed {
			e.Text = p.text()
		}
	case Read, Committed:
		e.Client, e.Group = p.name(), p.name()
		p.place(e)
		e.Offset = p.number(0, math.MaxInt64)
		if e.Kind == Read {
			e.Producer = p.name()
			e.Seq = p.number(0, MaxSeq-1)
		}
	case Assigned, Revoked, Lost:
		e.Client, e.Group = p.name(), p.name()
		e.Count = int(p.number(0, math.MaxInt32))
	case Error:
		e.Client = p.name()
		e.Text = p.text()
	case Stopping, Stopped:
		e.Client = p.name()
	case Mark:
		e.Text = p.text()
		if p.err == nil && e.Text != MarkStart && e.Text != MarkEnd {
			p.err = errors.New("a mark is start or end")
		}
	}
}

func (p *Parser) place(e *Event) {
	e.Topic = p.name()
	e.Partition = int32(p.number(0, math.MaxInt32))
}

func kindOf(word []byte) Kind {
	for k := Sent; k <= Mark; k++ {
		if string(word) == k.String() {
			return k
		}
	}
	return 0
}

// word is the next field. It is valid until the line changes.
func (p *Parser) word() []byte {
	if p.err != nil {
		return nil
	}
	if len(p.rest) == 0 {
		p.err = io.ErrUnexpectedEOF
		return nil
	}
	word, rest, _ := bytes.Cut(p.rest, []byte{' '})
	if len(word) == 0 {
		p.err = errors.New("empty field")
	}
	p.rest = rest
	return word
}

func (p *Parser) name() string {
	word := p.word()
	if p.err != nil {
		return ""
	}
	if s, ok := p.names[string(word)]; ok {
		return s
	}
	if p.names == nil {
		p.names = make(map[string]string)
	}
	s := string(word)
	p.names[s] = s
	return s
}

func (p *Parser) text() string {
	if p.err != nil {
		return ""
	}
	s := strings.TrimRight(string(p.rest), " ")
	p.rest = nil
	return s
}

// number is the next field, a decimal in [lo, hi].
func (p *Parser) number(lo, hi int64) int64 {
	word := p.word()
	if p.err != nil {
		return 0
	}
	v, ok := decimal(word)
	if !ok || v < lo || v > hi {
		p.err = fmt.Errorf("%.30q is not a number in [%d, %d]", word, lo, hi)
		return 0
	}
	return v
}

// decimal avoids the string that strconv would need: logs have millions of lines.
func decimal(b []byte) (int64, bool) {
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 18 {
		return decimalLong(b, negative)
	}
	v := int64(0)
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + int64(c-'0')
	}
	if negative {
		v = -v
	}
	return v, true
}

func decimalLong(b []byte, negative bool) (int64, bool) {
	if len(b) == 0 || len(b) > 19 {
		return 0, false
	}
	v := uint64(0)
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + uint64(c-'0')
	}
	if v > math.MaxInt64 {
		return 0, false
	}
	if negative {
		return -int64(v), true
	}
	return int64(v), true
}

// AddLog digests a log to its end. A last line without line feed is what a killed client leaves; it is ignored.
func (c *Checker) AddLog(r io.Reader) error {
	br := bufio.NewReaderSize(r, maxLineBytes)
	var p Parser
	var e Event
	for {
		line, err := br.ReadSlice('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		if err := p.Parse(line[:len(line)-1], &e); err != nil {
			return err
		}
		c.Add(e)
	}
}

// AddFile digests the log in a file.
func (c *Checker) AddFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := c.AddLog(f); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
