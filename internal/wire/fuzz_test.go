package wire

import (
	"bytes"
	"io"
	"testing"
	"testing/iotest"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func FuzzRequestHeader(f *testing.F) {
	h := NewHeaders()
	for _, key := range []int16{0, 1, 3, 7, 18, 68} {
		for _, v := range []int16{0, kmsg.RequestForKey(key).MaxVersion()} {
			f.Add(append(h.AppendRequestHeader(nil, key, v, 7, []byte("client")), "body"...))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, flexible := range []bool{false, true} {
			if got, err := ParseRequestHeader(b, flexible); err == nil && (got.BodyOffset > len(b) || len(got.ClientID) > len(b)) {
				t.Fatal("overread")
			}
		}
		fromBytes, err := h.ParseRequest(b)
		r := NewReader(iotest.OneByteReader(bytes.NewReader(AppendFrame(nil, b))), new(Pool))
		if _, err := r.Next(len(b)); err != nil {
			t.Fatal(err)
		}
		streamed, streamErr := r.RequestHeader(h)
		if (err == nil) != (streamErr == nil) && len(b) <= maxPeek {
			t.Fatalf("in memory %v, streamed %v", err, streamErr)
		}
		if err == nil && streamErr == nil && (streamed.BodyOffset != fromBytes.BodyOffset || !bytes.Equal(streamed.ClientID, fromBytes.ClientID)) {
			t.Fatal("in memory and streamed differ")
		}
	})
}

// A walk over anything ends, and what it read in memory is what it reads from a stream.
func FuzzWalk(f *testing.F) {
	f.Add(sample(), []byte("aiqjlsSkKcCtTb"))
	f.Add([]byte{0, 1, 2, 3}, []byte("uS"))
	f.Fuzz(func(t *testing.T, b, fields []byte) {
		run := func(r *Reader) []byte {
			var out bytes.Buffer
			w := NewWriter(&out, new(Pool))
			walkFields(Tee{r, w}, fields)
			_ = w.Flush()
			return out.Bytes()
		}
		stream := NewReader(iotest.HalfReader(bytes.NewReader(AppendFrame(nil, b))), new(Pool))
		if _, err := stream.Next(len(b)); err != nil {
			t.Fatal(err)
		}
		memory := NewBytesReader(b)
		x, y := run(memory), run(stream)
		if !bytes.Equal(x, y) || memory.Remaining() != stream.Remaining() {
			t.Fatal("in memory and streamed differ")
		}
	})
}

func walkFields(t Tee, fields []byte) {
	for _, f := range fields {
		switch f {
		case 'a':
			t.Int8()
		case 'i':
			t.Int16()
		case 'q':
			t.Int32()
		case 'j':
			t.Int64()
		case 'l':
			t.UUID()
		case 'u':
			t.Uvarint()
		case 's':
			t.String()
		case 'S':
			t.CompactString()
		case 'k':
			t.ArrayLen()
		case 'K':
			t.CompactArrayLen()
		case 't':
			t.Tags()
		case 'T':
			t.In.SkipTags()
		case 'b':
			t.Bytes(min(100, t.In.Remaining()))
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(AppendFrame(AppendFrame(nil, []byte("one")), nil))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte{0, 0, 0, 0x10, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 1 << 16
		r := NewReader(iotest.OneByteReader(bytes.NewReader(b)), new(Pool))
		var again []byte
		for {
			n, err := r.Next(limit)
			if err != nil {
				if err == io.EOF && !bytes.Equal(again, b) {
					t.Fatal("bytes lost")
				}
				return
			}
			message, err := r.ReadAll(nil)
			if err != nil {
				if len(message) > n || cap(message) > 2*limit {
					t.Fatal("overread, or too large a buffer")
				}
				return
			}
			again = AppendFrame(again, message)
		}
	})
}
