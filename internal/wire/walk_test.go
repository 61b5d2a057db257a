package wire

import (
	"bytes"
	"errors"
	"io"
	"math"
	"testing"
	"testing/iotest"

	"github.com/twmb/franz-go/pkg/kbin"
)

// sample has every kind of field, written by another implementation; walk passes it on field by field.
func sample() []byte {
	long := string(bytes.Repeat([]byte("long"), 6000))
	b := kbin.AppendInt8(nil, -1)
	b = kbin.AppendInt16(b, -2)
	b = kbin.AppendInt32(b, math.MinInt32)
	b = kbin.AppendInt64(b, math.MinInt64)
	b = kbin.AppendUuid(b, [16]byte{1, 2, 3, 15: 9})
	for _, v := range []uint32{0, 127, 128, 1 << 21, math.MaxUint32} {
		b = kbin.AppendUvarint(b, v)
	}
	for _, s := range []*string{nil, new(string), new(long)} {
		b = kbin.AppendNullableString(b, s)
		b = kbin.AppendCompactNullableString(b, s)
	}
	b = kbin.AppendArrayLen(b, 2)
	b = kbin.AppendCompactArrayLen(b, 3)
	b = kbin.AppendNullableArrayLen(b, 0, true)
	b = append(b, 2, 0, 3, 'a', 'b', 'c', 0x81, 1, 0, 0) // two tags, then none
	return append(b, noise(40_000)...)
}

func walk(t Tee) error {
	t.Int8()
	t.Int16()
	t.Int32()
	t.Int64()
	t.UUID()
	for range 5 {
		t.Uvarint()
	}
	for range 3 {
		t.String()
		t.CompactString()
	}
	t.ArrayLen()
	t.CompactArrayLen()
	t.ArrayLen()
	t.Tags()
	t.Tags()
	t.Bytes(t.In.Remaining())
	return errors.Join(t.In.Err(), t.Out.Err(), t.Out.Flush())
}

func TestTeePassesEveryFieldOnUnchanged(t *testing.T) {
	want := sample()
	readers := map[string]*Reader{"memory": NewBytesReader(want)}
	for name, src := range map[string]io.Reader{
		"stream": bytes.NewReader(AppendFrame(nil, want)), "byte by byte": iotest.OneByteReader(bytes.NewReader(AppendFrame(nil, want))),
	} {
		r := NewReader(src, new(Pool))
		_, err := r.Next(1 << 20)
		must(t, err)
		readers[name] = r
	}
	for name, r := range readers {
		var out bytes.Buffer
		if err := walk(Tee{r, NewWriter(&out, new(Pool))}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		mustSame(t, out.Bytes(), want)
	}
}

func TestFieldsReadWhatWasPut(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out, new(Pool))
	w.PutInt8(-1)
	w.PutInt16(300)
	w.PutInt32(-70000)
	w.PutInt64(1 << 60)
	w.PutUUID([16]byte{7})
	w.PutUvarint(300)
	w.PutString(nil)
	w.PutString([]byte{})
	w.PutString([]byte("s"))
	w.PutCompactString(nil)
	w.PutCompactString([]byte("cs"))
	w.PutArrayLen(-1)
	w.PutArrayLen(3)
	w.PutCompactArrayLen(-1)
	w.PutCompactArrayLen(3)
	w.PutNoTags()
	must(t, w.Flush())
	r := NewBytesReader(append(out.Bytes(), "rest"...))
	if r.Int8() != -1 || r.Int16() != 300 || r.Int32() != -70000 || r.Int64() != 1<<60 || r.UUID() != [16]byte{7} || r.Uvarint() != 300 {
		t.Fatal("numbers")
	}
	if r.String() != nil {
		t.Fatal("null")
	}
	if s := r.String(); s == nil || len(s) != 0 {
		t.Fatal("empty is null")
	}
	if string(r.String()) != "s" || r.CompactString() != nil || string(r.CompactString()) != "cs" {
		t.Fatal("strings")
	}
	if r.ArrayLen() != -1 || r.ArrayLen() != 3 || r.CompactArrayLen() != -1 || r.CompactArrayLen() != 3 {
		t.Fatal("counts")
	}
	r.SkipTags()
	if string(r.PeekUpTo(10)) != "rest" || r.Remaining() != 4 || r.Err() != nil {
		t.Fatal("rest")
	}
}

func TestNothingIsReadBeyondTheFrame(t *testing.T) {
	all := AppendFrame(AppendFrame(nil, []byte{0, 9, 'x'}), []byte("next frame"))
	r := NewReader(bytes.NewReader(all), new(Pool))
	_, err := r.Next(100)
	must(t, err)
	if r.String() != nil || !errors.Is(r.Err(), ErrMalformed) {
		t.Fatal("read into the next frame")
	}
	if r.Int64() != 0 || r.Uvarint() != 0 || r.CompactString() != nil || r.ArrayLen() != 0 || r.CompactArrayLen() != 0 || r.Peek(1) != nil {
		t.Fatal("something after an error")
	}
}

func TestHostileFieldsAreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		b    []byte
		read func(*Reader)
	}{
		"count above what is left":   {kbin.AppendInt32(nil, 1<<30), func(r *Reader) { r.ArrayLen() }},
		"count of -2":                {kbin.AppendInt32(nil, -2), func(r *Reader) { r.ArrayLen() }},
		"compact count":              {kbin.AppendUvarint(nil, math.MaxUint32), func(r *Reader) { r.CompactArrayLen() }},
		"string of -2 bytes":         {kbin.AppendInt16(nil, -2), func(r *Reader) { _ = r.String() }},
		"compact string":             {kbin.AppendUvarint(nil, math.MaxUint32), func(r *Reader) { r.CompactString() }},
		"varint of 33 bits":          {[]byte{0xff, 0xff, 0xff, 0xff, 0x1f}, func(r *Reader) { r.Uvarint() }},
		"varint of 6 bytes":          {[]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0}, func(r *Reader) { r.Uvarint() }},
		"varint cut off":             {[]byte{0x80}, func(r *Reader) { r.Uvarint() }},
		"tag of 4 GB":                {[]byte{1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f}, func(r *Reader) { r.SkipTags() }},
		"four billion tags":          {[]byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0}, func(r *Reader) { r.SkipTags() }},
		"skip of a negative number":  {[]byte{1, 2}, func(r *Reader) { r.Skip(-1) }},
		"copy of a negative number":  {[]byte{1, 2}, func(r *Reader) { _ = r.CopyN(NewWriter(io.Discard, new(Pool)), -1) }},
		"copy of more than is there": {[]byte{1, 2}, func(r *Reader) { _ = r.CopyN(NewWriter(io.Discard, new(Pool)), 3) }},
	} {
		r := NewBytesReader(c.b)
		if c.read(r); !errors.Is(r.Err(), ErrMalformed) {
			t.Errorf("%s: %v", name, r.Err())
		}
	}
	r := NewReader(bytes.NewReader(AppendFrame(nil, make([]byte, 1<<20))), new(Pool))
	_, err := r.Next(1 << 20)
	must(t, err)
	if r.Peek(maxPeek+1) != nil || r.Err() == nil {
		t.Error("a view larger than the limit")
	}
}

func TestAFrameHasTheLengthItSays(t *testing.T) {
	newWriter := func() (*Writer, *bytes.Buffer) {
		var out bytes.Buffer
		return NewWriter(&out, new(Pool)), &out
	}
	w, out := newWriter()
	must(t, w.WriteFrame(noise(30_000)))
	must(t, w.WriteFrame(nil))
	mustSame(t, out.Bytes(), AppendFrame(AppendFrame(nil, noise(30_000)), nil))

	w, _ = newWriter()
	w.Begin(5)
	w.PutInt32(1)
	if w.End() == nil {
		t.Error("too short")
	}
	w, out = newWriter()
	w.Begin(5)
	w.PutInt64(1)
	if w.Err() == nil || w.Flush() == nil || out.Len() != 0 {
		t.Error("too long")
	}
	w, _ = newWriter()
	w.Begin(5)
	if w.Begin(5); w.Err() == nil {
		t.Error("a frame in a frame")
	}
	w, _ = newWriter()
	if w.PutString(make([]byte, 1<<15)); w.Err() == nil {
		t.Error("a string that is too long")
	}
	w.PutInt64(1)
	if n, err := w.Write([]byte("x")); n != 0 || err == nil || w.Buffered() != 0 {
		t.Error("writes after an error")
	}
}

func TestClosedReadersAndWritersDoNothing(t *testing.T) {
	var pool Pool
	r, w := NewReader(bytes.NewReader(AppendFrame(nil, noise(9))), &pool), NewWriter(io.Discard, &pool)
	_, err := r.Next(9)
	must(t, err)
	w.PutInt8(1)
	r.Close()
	r.Close()
	w.Close()
	w.Close()
	if r.Int8() != 0 || r.Err() == nil || w.Flush() == nil {
		t.Fatal("still open")
	}
}
