package batch

import (
	"bytes"
	"fmt"
	"testing"
)

func TestSmallBatchesOfDifferentCodecsAreJoinedAndLargeOnesAreNot(t *testing.T) {
	c := NewCodecs(0)
	at := func(base int64, codec Codec, size int) []byte {
		b, err := c.Encode([]Record{{Offset: base, Timestamp: base, Key: fmt.Append(nil, base), Value: bytes.Repeat([]byte{byte(base * 7)}, size)}},
			Params{Codec: codec, BaseOffset: base, LeaderEpoch: -1})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	list := [][]byte{at(0, None, 10), at(1, Snappy, 10), at(2, None, 20), at(3, Zstd, 10), at(4, None, SmallBytes), at(5, Gzip, 10)}
	if CanCoalesce(list[0], list[1]) || !CanCoalesceSmall(list[0], list[1]) || CanCoalesceSmall(list[3], list[4]) || CanCoalesceSmall(list[4], list[5]) {
		t.Fatal("who may follow whom is wrong")
	}
	out, used, err := c.CoalesceSmall(nil, list, 1<<20)
	if err != nil || used != 4 {
		t.Fatalf("joined %d, %v; want the four small ones", used, err)
	}
	if got := Header(out).Codec(); got != Snappy {
		t.Errorf("codec %v, want the first that compresses", got)
	}
	records, err := c.Decode(out)
	if err != nil || len(records) != 4 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for i, r := range records {
		want, err := c.Decode(list[i])
		if err != nil {
			t.Fatal(err)
		}
		if r.Offset != int64(i) || r.Timestamp != int64(i) || !bytes.Equal(r.Key, want[0].Key) || !bytes.Equal(r.Value, want[0].Value) {
			t.Errorf("record %d changed: %+v", i, r)
		}
	}
	if _, used, err := c.Coalesce(nil, list, 1<<20); err != nil || used != 1 {
		t.Errorf("Coalesce joined %d batches of different codecs, %v", used, err)
	}
}
