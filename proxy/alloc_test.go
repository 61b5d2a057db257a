//go:build !race

package proxy

import (
	"encoding/binary"
	"io"
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Not under the race detector, where pools lose some of what they keep.
func TestProduceAndFetchAllocateNothing(t *testing.T) {
	for name, one := range map[string]struct {
		req  kmsg.Request
		resp kmsg.Response
	}{
		"Fetch":             {fetchFrom("orders", 1000), fetched("orders", 500, batches(3, 1000))},
		"Produce":           {produceTo("orders", 1, batches(1, 1000)), produced("orders", 5, 0)},
		"Produce, streamed": {produceTo("orders", 1, streamedBatch(-1, -1)), produced("orders", 5, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			x := newStage(t, func(c *Config) { c.Log = zerolog.Nop() })
			x.p.cluster("blue").known = map[int32]string{0: echo(t, asked{key: one.req.Key(), ver: one.req.GetVersion()}.frame(one.resp))}
			c := x.connect()
			ask := kmsg.NewRequestFormatter().AppendRequest(nil, one.req, 1)
			in := make([]byte, 64<<10)
			n := testing.AllocsPerRun(200, func() {
				if _, err := c.conn.Write(ask); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(c.conn, in[:4]); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(c.conn, in[4:4+binary.BigEndian.Uint32(in)]); err != nil {
					t.Fatal(err)
				}
			})
			if n != 0 {
				t.Errorf("%v allocations a call", n)
			}
		})
	}
}
