package replicator

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/translate"
)

// lone is a pump that only checks and rewrites.
func lone() *pump {
	tp := journal.TP{Topic: "orders"}
	return &pump{
		flow: &Flow{codecs: batch.NewCodecs(0)}, tp: tp, part: journal.NewPartition(tp, 0),
		era: control.Era{Generation: 1, Cluster: "blue"},
	}
}

func encoded(t *testing.T, base int64, n int, p batch.Params) []byte {
	t.Helper()
	p.BaseOffset = base
	records := make([]batch.Record, n)
	for i := range records {
		records[i] = batch.Record{Timestamp: 1000 + int64(i), Value: []byte("v")}
	}
	raw, err := batch.NewCodecs(0).Encode(records, p)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestTimestampsThatTheBrokerSetAreKeptAsTheyWereRead(t *testing.T) {
	p := lone()
	raw := encoded(t, 0, 3, batch.Params{Codec: batch.Zstd, TimestampType: batch.LogAppendTime})
	if err := p.open(&chunk{next: 3, records: raw}); err != nil {
		t.Fatal(err)
	}
	if len(p.queue) != 1 || p.known != 3 {
		t.Fatalf("queue %+v", p.queue)
	}
	h := batch.Header(p.queue[0].raw)
	records, err := p.flow.codecs.Decode(p.queue[0].raw)
	if err != nil || h.TimestampType() != batch.CreateTime || h.Codec() != batch.Zstd {
		t.Fatalf("%v, %v, %v", h.TimestampType(), h.Codec(), err)
	}
	for _, r := range records {
		if r.Timestamp != 1002 {
			t.Fatalf("%+v", r)
		}
	}
}

// C07.
func TestOldMessageFormatsAreRewritten(t *testing.T) {
	p := lone()
	var set []byte
	for i := range int64(4) {
		set = append(set, message(int8(i/2), 10+i, "k", "v")...)
	}
	set = append(set, encoded(t, 14, 2, batch.Params{})...)
	set = append(set, message(1, 20, "k", "v")...)
	if err := p.open(&chunk{next: 21, records: set}); err != nil {
		t.Fatal(err)
	}
	next := translate.Physical(10)
	total := 0
	for _, one := range p.queue {
		records, err := p.flow.codecs.Decode(one.raw)
		if err != nil || one.base < next || string(records[0].Value) != "v" {
			t.Fatalf("%+v, %v", one, err)
		}
		next = one.next
		total += len(records)
	}
	if total != 7 || next != 21 {
		t.Fatalf("%d records up to %d", total, next)
	}
}

// message is one of format 0 or 1.
func message(magic int8, offset int64, key, value string) []byte {
	body := []byte{byte(magic), 0}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, 5000)
	}
	for _, s := range []string{key, value} {
		body = binary.BigEndian.AppendUint32(body, uint32(len(s)))
		body = append(body, s...)
	}
	out := binary.BigEndian.AppendUint64(nil, uint64(offset))
	out = binary.BigEndian.AppendUint32(out, uint32(4+len(body)))
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(body))
	return append(out, body...)
}

func TestAbortedTransactionsAreSkippedUpToTheirMarker(t *testing.T) {
	p := lone()
	txn := func(base, id int64) []byte {
		return encoded(t, base, 2, batch.Params{Transactional: true, Producer: &batch.Producer{ID: id, FirstSequence: 0}})
	}
	abort := func(base, id int64) []byte {
		m := batch.GapMarker(nil, base, base+1, 0)
		batch.SetProducer(m, batch.Producer{ID: id, FirstSequence: -1})
		return m
	}
	var records []byte
	for _, one := range [][]byte{txn(0, 1), txn(2, 2), abort(4, 1), txn(5, 1), abort(7, 2), txn(8, 2)} {
		records = append(records, one...)
	}
	aborted := []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 2, FirstOffset: 2}, {ProducerID: 1, FirstOffset: 0}}
	if err := p.open(&chunk{next: 10, records: records, aborted: aborted}); err != nil {
		t.Fatal(err)
	}
	if len(p.queue) != 2 || p.queue[0].base != 5 || p.queue[1].base != 8 {
		t.Fatalf("queue %+v", p.queue)
	}
}
