package journal

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/switchback-proxy/switchback/translate"
)

func FuzzDecodeKey(f *testing.F) {
	for _, k := range []Key{{KindClaim, tp, 17}, {KindChunk, tp, 0}, {Kind: KindSettled, TP: TP{"a.b_c-d", 9}}} {
		f.Add(k.Encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := DecodeKey(b)
		if err != nil {
			return
		}
		if again, err := DecodeKey(k.Encode()); err != nil || again != k {
			t.Fatalf("%+v, then %+v, %v", k, again, err)
		}
	})
}

func FuzzDecodeClaim(f *testing.F) {
	c := &Claim{Virtual: 5, Records: 3, Reach: 10, Owner: Owner{7, 1}, Sequence: 4, Predicted: 9, ConfirmedSequence: 3, ConfirmedOffset: 8,
		AtMillis: 12, Sources: []Source{{5, 3, 1 << 40, 2, 7}}, Epochs: []translate.EpochStart{{Epoch: 4, Start: 5}}}
	f.Add(c.Encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeClaim(b)
		if err != nil {
			return
		}
		again, err := DecodeClaim(c.Encode(nil))
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%+v, then %+v, %v", c, again, err)
		}
	})
}

func FuzzDecodeSettled(f *testing.F) {
	p := NewPartition(tp, 3)
	c := &Claim{Virtual: 5, Records: 3, Reach: 10, Sources: []Source{{5, 3, 1 << 40, 2, 7}}, Epochs: []translate.EpochStart{{Epoch: 4, Start: 5}}}
	if err := p.Acked(c, 0, 1); err != nil {
		f.Fatal(err)
	}
	p.Strays = []Stray{{tp, 1, 2, Owner{3, 4}}}
	f.Add(p.EncodeSettled(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeSettled(tp, b)
		if err != nil {
			return
		}
		p, err := s.assemble(nil)
		if err != nil {
			return
		}
		again, err := decodeSettled(tp, p.EncodeSettled(nil))
		if err != nil {
			t.Fatal(err)
		}
		q, err := again.assemble(nil)
		if err != nil || !bytes.Equal(p.EncodeSettled(nil), q.EncodeSettled(nil)) {
			t.Fatalf("another partition, %v", err)
		}
	})
}

func TestSlotsAreThoseOfKafkasPartitioner(t *testing.T) {
	// murmur2 as Java's Utils.murmur2 has it.
	for s, want := range map[string]int32{"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536} {
		if got := int32(murmur2([]byte(s))); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", s, got, want)
		}
	}
}
