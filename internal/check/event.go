package check

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// Kind says what a client logged.
type Kind uint8

// The kinds, in the order of the table in the package comment.
const (
	Sent Kind = iota + 1
	Acked
	Failed
	Read
	Committed
	Assigned
	Revoked
	Lost
	Error
	Stopping
	Stopped
	Mark
)

func (k Kind) String() string {
	switch k {
	case Sent:
		return "sent"
	case Acked:
		return "acked"
	case Failed:
		return "failed"
	case Read:
		return "read"
	case Committed:
		return "committed"
	case Assigned:
		return "assigned"
	case Revoked:
		return "revoked"
	case Lost:
		return "lost"
	case Error:
		return "error"
	case Stopping:
		return "stopping"
	case Stopped:
		return "stopped"
	case Mark:
		return "mark"
	}
	return "kind(" + strconv.Itoa(int(k)) + ")"
}

// NoGroup stands in the place of the group for a reader that assigns its partitions itself.
const NoGroup = "-"

// MarkStart and MarkEnd are the texts of Mark: the window [start, end) in which rebalances and pauses count.
const (
	MarkStart = "start"
	MarkEnd   = "end"
)

// MaxSeq bounds a sequence, so that a damaged log cannot make the checker allocate without limit.
const MaxSeq = 1 << 40

// Event is one line of a client's log. Which fields count depends on Kind; see the package comment.
type Event struct {
	Kind      Kind
	Millis    int64  // Unix time in milliseconds
	Client    string // who wrote the line; of sent, acked and failed it is Producer
	Group     string // NoGroup if the reader assigns itself
	Topic     string
	Partition int32
	Offset    int64
	Producer  string // of the record
	Seq       int64  // of the record, in [0, MaxSeq)
	Count     int    // of partitions in Assigned, Revoked, Lost
	Text      string
}

// Now is the current time as Event.Millis counts it.
func Now() int64 { return time.Now().UnixMilli() }

// Identity is what a record's key and value carry.
func Identity(producer string, seq int64) string {
	return producer + "/" + strconv.FormatInt(seq, 10)
}

// ParseIdentity reads what Identity wrote; padding after a space is ignored.
func ParseIdentity(value []byte) (producer string, seq int64, err error) {
	if i := bytes.IndexByte(value, ' '); i >= 0 {
		value = value[:i]
	}
	slash := bytes.LastIndexByte(value, '/')
	if slash <= 0 {
		return "", 0, fmt.Errorf("record value %.60q has no identity", value)
	}
	seq, err = strconv.ParseInt(string(value[slash+1:]), 10, 64)
	if err != nil || seq < 0 || seq >= MaxSeq {
		return "", 0, fmt.Errorf("record value %.60q has no valid sequence", value)
	}
	return string(value[:slash]), seq, nil
}

// AppendLine appends e as one line, with its line feed.
func (e *Event) AppendLine(b []byte) []byte {
	b = append(b, e.Kind.String()...)
	b = appendInt(b, e.Millis)
	switch e.Kind {
	case Sent, Acked, Failed:
		b = appendWord(b, e.Producer)
		b = appendInt(b, e.Seq)
		b = appendPlace(b, e)
		if e.Kind == Acked {
			b = appendInt(b, e.Offset)
		}
		if e.Kind == Failed {
			b = appendRest(b, e.Text)
		}
	case Read, Committed:
		b = appendWord(b, e.Client)
		b = appendWord(b, e.Group)
		b = appendPlace(b, e)
		b = appendInt(b, e.Offset)
		if e.Kind == Read {
			b = appendWord(b, e.Producer)
			b = appendInt(b, e.Seq)
		}
	case Assigned, Revoked, Lost:
		b = appendWord(b, e.Client)
		b = appendWord(b, e.Group)
		b = appendInt(b, int64(e.Count))
	case Error:
		b = appendWord(b, e.Client)
		b = appendRest(b, e.Text)
	case Stopping, Stopped:
		b = appendWord(b, e.Client)
	case Mark:
		b = appendRest(b, e.Text)
	}
	return append(b, '\n')
}

func appendPlace(b []byte, e *Event) []byte {
	b = appendWord(b, e.Topic)
	return appendInt(b, int64(e.Partition))
}

func appendInt(b []byte, v int64) []byte { return strconv.AppendInt(append(b, ' '), v, 10) }

func appendWord(b []byte, s string) []byte { return append(append(b, ' '), s...) }

// appendRest appends free text, kept on one line.
func appendRest(b []byte, s string) []byte {
	b = append(b, ' ')
	for i := range len(s) {
		if s[i] == '\n' || s[i] == '\r' {
			b = append(b, ' ')
			continue
		}
		b = append(b, s[i])
	}
	return b
}
