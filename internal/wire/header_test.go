package wire

import (
	"bytes"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestRequestHeadersOfEveryKeyAndVersion(t *testing.T) {
	h := NewHeaders()
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		req := kmsg.RequestForKey(key)
		if req == nil {
			if h.Known(key, 0) {
				t.Errorf("key %d is known", key)
			}
			continue
		}
		for v := int16(0); v <= req.MaxVersion(); v++ {
			req.SetVersion(v)
			if h.Flexible(key, v) != req.IsFlexible() || !h.Known(key, v) {
				t.Errorf("key %d version %d", key, v)
			}
			for _, f := range []*kmsg.RequestFormatter{kmsg.NewRequestFormatter(kmsg.FormatterClientID("client")), kmsg.NewRequestFormatter()} {
				checkRequestHeader(t, h, req, f.AppendRequest(nil, req, 77)[4:])
			}
		}
		if h.Known(key, req.MaxVersion()+1) || h.Flexible(key, req.MaxVersion()+1) || h.Known(key, -1) {
			t.Errorf("key %d: versions out of range are known", key)
		}
	}
}

func checkRequestHeader(t *testing.T, h *Headers, req kmsg.Request, b []byte) {
	t.Helper()
	if req.Key() == keyControlledShutdown && req.GetVersion() == 0 {
		return // the formatter writes a client id, a broker of that time did not
	}
	got, err := h.ParseRequest(b)
	if err != nil {
		t.Fatal(err)
	}
	body := req.AppendTo(nil)
	if got.Key != req.Key() || got.Version != req.GetVersion() || got.CorrelationID != 77 || !bytes.Equal(b[got.BodyOffset:], body) {
		t.Fatalf("key %d version %d: %+v", req.Key(), req.GetVersion(), got)
	}
	if ours := h.AppendRequestHeader(nil, got.Key, got.Version, 77, got.ClientID); !bytes.Equal(ours, b[:got.BodyOffset]) {
		t.Fatalf("key %d version %d: appended %x, want %x", got.Key, got.Version, ours, b[:got.BodyOffset])
	}
	SetRequestCorrelationID(b, -5)
	if got, err = h.ParseRequest(b); err != nil || got.CorrelationID != -5 {
		t.Fatal(got, err)
	}
	for cut := range got.BodyOffset {
		if _, err := h.ParseRequest(b[:cut]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
}

func TestRequestHeaderOddities(t *testing.T) {
	h := NewHeaders()
	got, err := h.ParseRequest([]byte{0, 7, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1})
	if err != nil || got.BodyOffset != 8 || got.CorrelationID != 9 {
		t.Error("ControlledShutdown v0", got, err)
	}
	got, err = h.ParseRequest([]byte{0, 18, 0, 99, 0, 0, 0, 9, 0, 1, 'x', 0xff})
	if err != nil || got.BodyOffset != 11 || got.Version != 99 {
		t.Error("unknown ApiVersions", got, err)
	}
	if _, err = h.ParseRequest([]byte{0, 3, 0, 99, 0, 0, 0, 9, 0, 0}); !errors.Is(err, ErrUnknownVersion) {
		t.Error("unknown Metadata", err)
	}
	got, err = ParseRequestHeader([]byte{0, 3, 0, 12, 0, 0, 0, 9, 0xff, 0xff, 2, 5, 1, 'a', 0x80, 1, 0, 7}, true)
	if err != nil || got.BodyOffset != 17 || got.ClientID != nil {
		t.Error("tags", got, err)
	}
	got, err = ParseRequestHeader([]byte{0, 3, 0, 1, 0, 0, 0, 9, 0, 0}, false)
	if err != nil || got.ClientID == nil || len(got.ClientID) != 0 {
		t.Error("an empty client id is not null", got, err)
	}
	for name, b := range map[string][]byte{
		"client id of -2 bytes": {0, 3, 0, 12, 0, 0, 0, 9, 0xff, 0xfe, 0},
		"endless tag count":     {0, 3, 0, 12, 0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"varint of 6 bytes":     {0, 3, 0, 12, 0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"tag beyond the end":    {0, 3, 0, 12, 0, 0, 0, 9, 0xff, 0xff, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 1},
	} {
		if _, err := ParseRequestHeader(b, true); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestResponseHeaders(t *testing.T) {
	h := NewHeaders()
	for _, c := range []struct{ key, version, size int16 }{
		{18, 0, 4}, {18, 3, 4}, {18, 4, 4}, {3, 8, 4}, {3, 9, 5}, {1, 11, 4}, {1, 12, 5}, {7, 0, 4}, {3, 99, 4},
	} {
		b := h.AppendResponseHeader(nil, c.key, c.version, 123)
		got, err := h.ParseResponse(append(b, 1, 2, 3), c.key, c.version)
		if len(b) != int(c.size) || err != nil || got.CorrelationID != 123 || got.BodyOffset != len(b) {
			t.Errorf("%+v: %d bytes, %+v, %v", c, len(b), got, err)
		}
		SetResponseCorrelationID(b, 9)
		if got, _ := h.ParseResponse(b, c.key, c.version); got.CorrelationID != 9 {
			t.Error("correlation id not set")
		}
		for cut := range b {
			if _, err := h.ParseResponse(b[:cut], c.key, c.version); !errors.Is(err, ErrMalformed) {
				t.Errorf("%+v cut at %d: %v", c, cut, err)
			}
		}
	}
}

func TestReadersShowHeadersWithoutConsumingThem(t *testing.T) {
	h := NewHeaders()
	long := bytes.Repeat([]byte("c"), 30_000) // more than a buffer
	for _, client := range [][]byte{nil, []byte("me"), long} {
		request := append(h.AppendRequestHeader(nil, 0, 9, 42, client), "body"...)
		response := append(h.AppendResponseHeader(nil, 0, 9, 43), "body"...)
		r := NewReader(bytes.NewReader(AppendFrame(AppendFrame(nil, request), response)), new(Pool))
		n, err := r.Next(1 << 20)
		must(t, err)
		head, err := r.RequestHeader(h)
		if err != nil || head.CorrelationID != 42 || !bytes.Equal(head.ClientID, client) || r.Remaining() != n {
			t.Fatal(err, len(head.ClientID))
		}
		r.Skip(head.BodyOffset)
		mustSame(t, r.Peek(4), []byte("body"))
		must(t, r.Discard())
		_, err = r.Next(1 << 20)
		must(t, err)
		answer, err := r.ResponseHeader(h, 0, 9)
		if err != nil || answer.CorrelationID != 43 || answer.BodyOffset != 5 {
			t.Fatal(answer, err)
		}
	}
	r := NewReader(bytes.NewReader(AppendFrame(nil, []byte{0, 3, 0, 1, 0, 0})), new(Pool))
	_, err := r.Next(100)
	must(t, err)
	if _, err := r.RequestHeader(h); !errors.Is(err, ErrMalformed) {
		t.Fatal(err)
	}
}
