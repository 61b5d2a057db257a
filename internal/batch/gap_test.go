package batch

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"
)

func TestGapMarkerSpansExactlyTheGap(t *testing.T) {
	for _, gap := range []struct {
		start, end int64
		batches    int
	}{
		{0, 0, 0}, {5, 4, 0}, {0, 1, 1}, {7, 8, 1}, {0, 64, 1}, {0, 65, 1}, {1 << 40, 1<<40 + 8193, 1},
		{0, math.MaxInt32, 1}, {0, 1 << 31, 1}, {0, 1<<31 + 1, 2}, {100, 100 + 5_000_000_000, 3}, {0, 3 << 31, 3},
		{math.MaxInt64 - 10, math.MaxInt64, 1},
	} {
		b := GapMarker(nil, gap.start, gap.end, 9)
		if len(b) != GapMarkerSize(gap.start, gap.end) {
			t.Fatalf("%v: %d bytes, announced %d", gap, len(b), GapMarkerSize(gap.start, gap.end))
		}
		next, n := gap.start, 0
		for it := Iter(b); it.Next(); n++ {
			mustBeSound(t, it.Batch())
			h := Header(it.Batch())
			if h.BaseOffset() != next || h.LeaderEpoch() != 9 || !IsGapMarker(h) {
				t.Fatalf("%v: batch %d", gap, n)
			}
			next = h.NextOffset()
		}
		if n != gap.batches || n > 0 && next != gap.end {
			t.Fatalf("%v: %d batches up to %d", gap, n, next)
		}
	}
}

func TestGapMarkerIsTheAbortMarkerThatClientsWereTriedWith(t *testing.T) {
	b := GapMarker([]byte("before"), 10, 15, 3)
	if string(b[:6]) != "before" {
		t.Fatal("does not append")
	}
	b = b[6:]
	k := kmsgBatch(t, b)
	if k.FirstOffset != 10 || k.PartitionLeaderEpoch != 3 || k.Magic != 2 || k.Attributes != 0x30 || k.LastOffsetDelta != 4 ||
		k.ProducerID != 1<<62 || k.ProducerEpoch != 0 || k.FirstSequence != -1 || k.NumRecords != 1 {
		t.Fatalf("%+v", k)
	}
	records := mustDecode(t, b)
	mustEqual(t, records, []Record{{Offset: 14, Timestamp: -1, Key: []byte{0, 0, 0, 0}, Value: []byte{0, 0, 0, 0, 0, 0}}})
	if kind, epoch, err := ControlType(b); kind != Abort || epoch != 0 || err != nil {
		t.Fatal(kind, epoch, err)
	}
}

// control builds a control batch as a broker writes it.
func control(t *testing.T, key, value []byte) []byte {
	b := encode(t, []Record{{Offset: 3, Timestamp: 1, Key: key, Value: value}}, Params{BaseOffset: 3, Transactional: true, Producer: &Producer{8, 1, -1}})
	Header(b).SetAttributes(attrTransactional | attrControl)
	Header(b).SetCRC(computeCRC(b))
	return b
}

func TestControlTypeReadsMarkers(t *testing.T) {
	value := binary.BigEndian.AppendUint32([]byte{0, 0}, 77)
	for _, c := range []struct {
		key   []byte
		kind  ControlKind
		epoch int32
	}{
		{[]byte{0, 0, 0, 0}, Abort, 77}, {[]byte{0, 0, 0, 1}, Commit, 77}, {[]byte{0, 0, 0, 2}, 2, -1}, {[]byte{0, 1, 0, 1, 9}, Commit, 77},
	} {
		kind, epoch, err := ControlType(control(t, c.key, value))
		if kind != c.kind || epoch != c.epoch || err != nil {
			t.Errorf("%v: %v %v %v", c.key, kind, epoch, err)
		}
	}
	for name, b := range map[string][]byte{
		"short key":   control(t, []byte{0, 0, 0}, value),
		"null key":    control(t, nil, value),
		"short value": control(t, []byte{0, 0, 0, 1}, value[:5]),
		"data batch":  encode(t, simpleRecords(0, 0, 1), Params{}),
	} {
		if _, _, err := ControlType(b); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	empty := holed(t, nil, 0, 0, None)
	Header(empty).SetAttributes(attrControl)
	if _, _, err := ControlType(empty); !errors.Is(err, ErrNoMarker) {
		t.Errorf("cleaned control batch: %v", err)
	}
}
