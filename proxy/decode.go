package proxy

import (
	"fmt"
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
)

// What a request takes here beyond its frame depends on its entries: the elements of its lists and its unknown tags. One may take
// two bytes of the frame and hundreds here, with what is kept of it until the call is answered.
const (
	// maxEntries bounds the entries of one request: more than the partitions of any broker.
	maxEntries = 100_000
	// entryTakes is how many bytes one entry is taken to hold.
	entryTakes = 256
	// maxDecoded bounds a request that is decoded, in bytes. The largest are those of groups, which a broker must be able to write
	// as one record. Decoding takes up to a hundred times as much for a moment; see Memory.decoding.
	maxDecoded = 32 << 20
	// fewEntries are not counted: the frame is room enough.
	fewEntries = 64
)

// decode decodes the request into req, and takes room for what comes of it. What is not walked comes this way.
func (c *call) decode(req kmsg.Request) error {
	if n := len(c.frame); n > maxDecoded {
		return closing(closedFrameSize, fmt.Errorf("%s of %d bytes; at most %d", c.row.name, n, maxDecoded))
	}
	req.SetVersion(c.version)
	n, err := c.decodeAlone(req)
	if err != nil {
		return closing(closedMalformed, fmt.Errorf("read %s v%d: %w", c.row.name, c.version, err))
	}
	return c.roomForEntries(n)
}

// decodeAlone decodes a request and counts its entries, one large request at a time.
func (c *call) decodeAlone(req kmsg.Request) (n int, err error) {
	if len(c.frame) > smallFrame {
		c.s.p.memory.decoding.Lock()
		defer c.s.p.memory.decoding.Unlock()
	}
	if err := req.ReadFrom(c.frame[c.bodyAt:]); err != nil {
		return 0, err
	}
	return entries(reflect.ValueOf(req).Elem()), nil
}

// roomForEntries takes room for n entries of the request. It does not wait, since the frame is held already: who comes next does.
func (c *call) roomForEntries(n int) error {
	if n > maxEntries {
		return closing(closedFrameSize, fmt.Errorf("%s with %d entries; at most %d", c.row.name, n, maxEntries))
	}
	c.s.giveBack(&c.entries)
	if n > fewEntries {
		bytes := int64(n) * entryTakes
		c.s.holding.bytes.Add(bytes)
		c.entries = c.s.p.memory.takeBeyond(bytes)
	}
	return nil
}

// entries counts the elements of all lists in a message, and its unknown tags.
func entries(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			n += entries(v.Field(i))
		}
	case reflect.Map:
		n = v.Len()
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return 0
		}
		n = v.Len()
		if v.Type().Elem().Kind() == reflect.Struct {
			for i := range v.Len() {
				n += entries(v.Index(i))
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			n = entries(v.Elem())
		}
	}
	return n
}

// mostPartitions is how many partitions a Produce request may have: each has a batch, but for a few.
func (c *call) mostPartitions() int { return min(maxEntries, fewEntries+len(c.frame)/batch.HeaderSize) }
