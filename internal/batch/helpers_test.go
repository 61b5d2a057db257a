package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var codecNames = []Codec{None, Gzip, Snappy, LZ4, Zstd}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// oddRecords has what encoders get wrong: null and empty keys and values, repeated names, null header values, times
// before 1970 and out of order.
func oddRecords(base int64) []Record {
	records := []Record{
		{Timestamp: 1_700_000_000_000, Key: []byte("k"), Value: []byte("v")},
		{Timestamp: -5, Key: nil, Value: []byte("null key")},
		{Timestamp: 1_700_000_000_500, Key: []byte("tombstone"), Value: nil},
		{Timestamp: 0, Key: []byte{}, Value: []byte{}},
		{Timestamp: 1, Value: bytes.Repeat([]byte("long "), 5000), Headers: []RecordHeader{
			{Key: []byte("h"), Value: []byte("1")}, {Key: []byte("h"), Value: nil}, {Key: []byte("h"), Value: []byte{}},
			{Key: []byte{}, Value: []byte("no name")}, {Key: []byte{0xff, 0xfe}, Value: []byte("not UTF-8")},
		}},
	}
	for i := range records {
		records[i].Offset = base + int64(i)
	}
	return records
}

// simpleRecords are small and compress well; offsets from base, one millisecond apart from time.
func simpleRecords(base, time int64, n int) []Record {
	records := make([]Record, n)
	for i := range records {
		records[i] = Record{
			Offset: base + int64(i), Timestamp: time + int64(i),
			Key: fmt.Appendf(nil, "key-%d", base+int64(i)), Value: fmt.Appendf(nil, "value-%d", base+int64(i)),
		}
	}
	return records
}

func encode(t testing.TB, records []Record, p Params) []byte {
	t.Helper()
	b := must[[]byte](t)(NewCodecs(0).Encode(records, p))
	mustBeSound(t, b)
	return b
}

// holed encodes records at their own offsets, holes and all, in one batch from base with the given last offset delta.
func holed(t testing.TB, records []Record, base int64, lastDelta int32, codec Codec) []byte {
	t.Helper()
	c := NewCodecs(0)
	var payload, rest []byte
	first, latest := int64(0), int64(0)
	for i := range records {
		r := &records[i]
		if i == 0 {
			first, latest = r.Timestamp, r.Timestamp
		}
		latest = max(latest, r.Timestamp)
		rest = appendRest(nil, r)
		payload = appendRaw(payload, rawRecord{rest: rest}, r.Timestamp-first, int32(r.Offset-base))
	}
	b := must[[]byte](t)(c.compress(make([]byte, HeaderSize), payload, codec))
	w := builder{base: base, codec: codec, count: int32(len(records)), first: first, max: latest}
	w.fillHeader(b)
	h := Header(b)
	h.SetLastOffsetDelta(lastDelta)
	h.SetCRC(computeCRC(b))
	if err := Valid(b); err != nil {
		t.Fatal(err)
	}
	return b
}

// logAppend turns b into what a broker with LogAppendTime stores.
func logAppend(b []byte, time int64) []byte {
	b = bytes.Clone(b)
	h := Header(b)
	h.SetAttributes(h.Attributes() | attrLogAppendTime)
	h.SetMaxTimestamp(time)
	h.SetCRC(computeCRC(b))
	return b
}

func mustBeSound(t testing.TB, b []byte) {
	t.Helper()
	if err := Valid(b); err != nil {
		t.Fatal(err)
	}
	if err := CheckCRC(b); err != nil {
		t.Fatal(err)
	}
}

func mustDecode(t testing.TB, b []byte) []Record {
	t.Helper()
	return must[[]Record](t)(NewCodecs(0).Decode(b))
}

func mustEqual(t testing.TB, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %.600v\nwant %.600v", fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", want))
	}
}

// legacyMessage builds one message of format 0 or 1.
func legacyMessage(magic int8, offset int64, attributes byte, time int64, key, value []byte) []byte {
	body := []byte{byte(magic), attributes}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, uint64(time))
	}
	for _, b := range [][]byte{key, value} {
		n := uint32(len(b))
		if b == nil {
			n = 0xffffffff
		}
		body = append(binary.BigEndian.AppendUint32(body, n), b...)
	}
	m := binary.BigEndian.AppendUint64(nil, uint64(offset))
	m = binary.BigEndian.AppendUint32(m, uint32(4+len(body)))
	m = binary.BigEndian.AppendUint32(m, crc32.ChecksumIEEE(body))
	return append(m, body...)
}

// legacyWrapper compresses a set of messages into one.
func legacyWrapper(t testing.TB, magic int8, offset int64, codec Codec, attributes byte, time int64, inner ...[]byte) []byte {
	t.Helper()
	value := must[[]byte](t)(NewCodecs(0).compress(nil, bytes.Join(inner, nil), codec))
	return legacyMessage(magic, offset, byte(codec)|attributes, time, nil, value)
}

// kmsgBatch is the view of the same bytes by another implementation.
func kmsgBatch(t testing.TB, b []byte) kmsg.RecordBatch {
	t.Helper()
	var k kmsg.RecordBatch
	if err := k.ReadFrom(b); err != nil {
		t.Fatal(err)
	}
	return k
}
