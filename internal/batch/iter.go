package batch

import "fmt"

// Smallest value of the length field per format: a batch without records, a message without key and value.
const (
	minLengthV0 = 14
	minLengthV1 = 22
	minLengthV2 = HeaderSize - prefixSize
)

// Iterator walks the batches in the records of one partition of a Fetch answer. It allocates nothing.
type Iterator struct {
	rest      []byte
	entry     []byte
	pos, next int // of entry and of rest, in the bytes given to Iter
	truncated bool
	err       error
}

// Iter starts before the first batch of records. What Batch returns are views of records.
func Iter(records []byte) Iterator { return Iterator{rest: records} }

// Next moves to the next whole batch. It is false at the end, at a last batch that is cut off, and at garbage.
func (it *Iterator) Next() bool {
	it.entry = nil
	if it.err != nil || it.truncated || len(it.rest) == 0 {
		return false
	}
	size, err := entrySize(it.rest)
	if err != nil {
		it.err = fmt.Errorf("at byte %d: %w", it.next, err)
		return false
	}
	if size == 0 || size > len(it.rest) {
		it.truncated = true
		return false
	}
	it.entry, it.rest = it.rest[:size:size], it.rest[size:]
	it.pos, it.next = it.next, it.next+size
	return true
}

// entrySize tells how long the batch or legacy message is that b begins with; 0 if b ends before that can be known. The
// answer may be more than there is.
func entrySize(b []byte) (int, error) {
	if len(b) <= posMagic {
		if len(b) >= prefixSize && Header(b).Length() < minLengthV0 {
			return 0, fmt.Errorf("batch: length field %d is less than any format's", Header(b).Length())
		}
		return 0, nil
	}
	h := Header(b)
	atLeast := int32(minLengthV2)
	switch h.Magic() {
	case 0:
		atLeast = minLengthV0
	case 1:
		atLeast = minLengthV1
	case 2:
	default:
		return 0, fmt.Errorf("batch: unknown magic %d", h.Magic())
	}
	if h.Length() < atLeast {
		return 0, fmt.Errorf("batch: length field %d is less than %d, the least of format %d", h.Length(), atLeast, h.Magic())
	}
	return h.Size(), nil
}

// Batch is the current batch, or one legacy message (a wrapper with all that is in it, if compressed): a view of what
// Iter was given. Of a legacy message, Header's methods may be used for BaseOffset, Length, Size and Magic only.
func (it *Iterator) Batch() []byte { return it.entry }

// Legacy says that Batch is a message of format 0 or 1.
func (it *Iterator) Legacy() bool { return int8(it.entry[posMagic]) < 2 }

// Pos is where Batch starts in what Iter was given, in bytes; before the first and after the last it has no meaning.
// Legacy messages that follow each other lie side by side, so a caller can cut out the whole run of them.
func (it *Iterator) Pos() int { return it.pos }

// Consumed counts the bytes of all batches seen so far.
func (it *Iterator) Consumed() int { return it.next }

// Truncated says that the last batch was cut off, as brokers do at the size limit of an answer. It is to be fetched again.
func (it *Iterator) Truncated() bool { return it.truncated }

// Err is what made Next stop before the end, if bytes were neither a batch nor the beginning of one.
func (it *Iterator) Err() error { return it.err }
