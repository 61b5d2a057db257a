package proxy

import (
	"bytes"
	"io"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/translate"
)

// BenchmarkFetch passes answers of 8 MiB in batches of 256 KiB on: as they are, and with each batch renumbered. It reports the
// CPU seconds of the whole process (a broker and a client of next to no work included) per gigabyte.
func BenchmarkFetch(b *testing.B) {
	m, err := translate.NewMap(0).OpenNative(1000, 10)
	if err != nil {
		b.Fatal(err)
	}
	moved := Partition{Map: m, Eras: []control.Era{{Generation: 2, Cluster: "green", Virtual: 1000, Physical: 10, Shift: 3, FirstEpoch: 3}}}
	for name, parts := range map[string][]Partition{"as it is": nil, "renumbered": {moved}} {
		b.Run(name, func(b *testing.B) {
			x := newStage(b, nil)
			r := x.route(2, "green")
			r.Topics = map[string]*Topic{"orders": {Name: "orders", VirtualID: [16]byte{1}, PhysicalID: [16]byte{2}, Partitions: parts}}
			x.p.Publish(r)
			var records []byte
			for i := range 32 {
				records = append(records, batchAt(int64(10+i), -1, 0, 0, 1, string(bytes.Repeat([]byte("v"), 256<<10)))...)
			}
			c := x.connect()
			fetch := fetchFrom("orders", 1000)
			frame := asked{key: 1, ver: 12, correlation: 1}.frame(fetched("orders", 500, records))
			b.SetBytes(int64(len(frame)))
			var before, after syscall.Rusage
			syscall.Getrusage(syscall.RUSAGE_SELF, &before)
			for b.Loop() {
				c.next = 0
				c.send(fetch)
				go func(a asked) { _, _ = a.conn.Write(frame) }(x.brokers["green"].next(kmsg.Fetch))
				if _, err := io.CopyN(io.Discard, c.conn, int64(len(frame))); err != nil {
					b.Fatal(err)
				}
			}
			syscall.Getrusage(syscall.RUSAGE_SELF, &after)
			cpu := float64(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano()) / 1e9
			b.ReportMetric(cpu/(float64(b.N)*float64(len(frame))/1e9), "cpu-s/GB")
		})
	}
}
