package journal

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// TP is a topic partition by its virtual name.
type TP struct {
	Topic     string
	Partition int32
}

func (tp TP) String() string { return tp.Topic + "-" + strconv.Itoa(int(tp.Partition)) }

// Compare orders by topic, then partition.
func (tp TP) Compare(o TP) int {
	if c := strings.Compare(tp.Topic, o.Topic); c != 0 {
		return c
	}
	return int(tp.Partition) - int(o.Partition)
}

// Topic is the name of the journal of a flow.
func Topic(from, to string) string { return "switchback." + from + "." + to + ".journal" }

// TransactionalID is the transactional id of the owner of a slot.
func TransactionalID(from, to string, slot int32) string {
	return "switchback." + from + "." + to + "." + strconv.Itoa(int(slot))
}

// Slot is the slot that tp belongs to, of slots: murmur2 of `topic-partition`, as Kafka's default partitioner does it.
func Slot(tp TP, slots int) int32 {
	return int32(murmur2([]byte(tp.String()))&0x7fffffff) % int32(slots)
}

func murmur2(b []byte) uint32 {
	const m = 0x5bd1e995
	h := uint32(0x9747b28c) ^ uint32(len(b))
	for len(b) >= 4 {
		k := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
		k *= m
		k ^= k >> 24
		h = h*m ^ k*m
		b = b[4:]
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(b[0])) * m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}

// Ring is the number of claim keys of a partition: claim n has key n mod Ring. A settled record is written far more often,
// so a claim that is overwritten is always settled.
const Ring = 4096

// Kind is the kind of a journal record, the first byte of its key.
type Kind byte

const (
	KindClaim   Kind = 'C' // number: n mod Ring
	KindChunk   Kind = 'M' // number: which chunk
	KindSettled Kind = 'S' // no number
)

// Key names a journal record. Encoded it is text: `C|topic|partition|number`, `M|topic|partition|number`,
// `S|topic|partition`. A topic name cannot contain `|`.
type Key struct {
	Kind   Kind
	TP     TP
	Number int
}

func (k Key) Encode() []byte {
	b := append([]byte{byte(k.Kind), '|'}, k.TP.Topic...)
	b = append(b, '|')
	b = strconv.AppendInt(b, int64(k.TP.Partition), 10)
	if k.Kind != KindSettled {
		b = append(b, '|')
		b = strconv.AppendInt(b, int64(k.Number), 10)
	}
	return b
}

var errKey = errors.New("not a journal key")

// maxKeyBytes is above what a topic name (249) and two numbers need.
const maxKeyBytes = 512

// DecodeKey decodes what Encode made.
func DecodeKey(b []byte) (Key, error) {
	if len(b) > maxKeyBytes {
		return Key{}, fmt.Errorf("%w: %d bytes", errKey, len(b))
	}
	f := strings.Split(string(b), "|")
	want := 4
	if f[0] == string(KindSettled) {
		want = 3
	}
	if len(f) != want || len(f[0]) != 1 || f[1] == "" {
		return Key{}, fmt.Errorf("%w: %q", errKey, b)
	}
	k := Key{Kind: Kind(f[0][0]), TP: TP{Topic: f[1]}}
	p, err := strconv.ParseUint(f[2], 10, 31)
	if err != nil {
		return Key{}, fmt.Errorf("%w: %q", errKey, b)
	}
	k.TP.Partition = int32(p)
	switch k.Kind {
	case KindSettled:
		return k, nil
	case KindClaim, KindChunk:
		n, err := strconv.ParseUint(f[3], 10, 31)
		if err != nil {
			return Key{}, fmt.Errorf("%w: %q", errKey, b)
		}
		k.Number = int(n)
		return k, nil
	}
	return Key{}, fmt.Errorf("%w: %q", errKey, b)
}
