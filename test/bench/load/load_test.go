package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
)

func TestTemplateIsAValidBatch(t *testing.T) {
	made := newTemplate(16, 100)
	if err := batch.Valid(made.bytes); err != nil {
		t.Fatal(err)
	}
	if err := batch.CheckCRC(made.bytes); err != nil {
		t.Fatal(err)
	}
	records, err := batch.NewCodecs(1 << 20).Decode(made.bytes)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range records {
		if len(r.Value) != 100 {
			t.Fatalf("a value of %d bytes", len(r.Value))
		}
		n++
	}
	if n != 16 {
		t.Fatalf("%d records", n)
	}
}

func TestPatchedBatchStaysValidAndCarriesItsTime(t *testing.T) {
	made := newTemplate(3, 50)
	binary.BigEndian.PutUint64(made.bytes[made.sentAt:], 4711)
	setProducer(made.bytes, 7, 1, 99)
	seal(made.bytes)
	if err := batch.CheckCRC(made.bytes); err != nil {
		t.Fatal(err)
	}
	records, err := batch.NewCodecs(1 << 20).Decode(made.bytes)
	if err != nil {
		t.Fatal(err)
	}
	if got := binary.BigEndian.Uint64(records[0].Value); got != 4711 {
		t.Fatalf("the first value begins with %d", got)
	}
}

func TestProducedIsConsumed(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(6, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	job := Job{Bootstrap: cluster.ListenAddrs()[0], Topic: "t", Clients: 2, RecordBytes: 100, BatchRecords: 16, Window: 10 * time.Second}

	job.Work, job.Bytes = Produce, 1<<20
	written := runJob(t, job)
	if written.Bytes < 1<<20 || written.Batches == 0 {
		t.Fatalf("produced %+v", written)
	}
	job.Bytes, job.Warmup = 16<<10, 50*time.Millisecond
	if more := runJob(t, job); more.Bytes < job.Bytes {
		t.Fatalf("produced %+v: what was written before the window is in the amount", more)
	}
	job.Warmup = 0
	job.Work, job.Bytes, job.Window, job.Clients = Consume, 4<<20, 10*time.Second, 9
	read := runJob(t, job)
	if read.Bytes < 4<<20 {
		t.Fatalf("consumed %+v: the log was not read round and round", read)
	}
	job = Job{Work: Latency, Bootstrap: job.Bootstrap, Topic: "t", Clients: 1, RecordBytes: 100, BatchRecords: 1, Rate: 200, Window: 300 * time.Millisecond}
	if got := runJob(t, job); len(got.Micros) < 10 || got.Micros[0] <= 0 {
		t.Fatalf("latencies %v", got.Micros)
	}
}

func runJob(t *testing.T, job Job) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	result, err := Run(ctx, job, nil, nil)
	if err != nil {
		t.Fatalf("%s: %v", job.Work, err)
	}
	return result
}

func TestAnErrorOfTheBrokerEndsTheRun(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, asked := range req.(*kmsg.ProduceRequest).Topics {
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic, topic.TopicID = asked.Topic, asked.TopicID
			for _, p := range asked.Partitions {
				answer := kmsg.NewProduceResponseTopicPartition()
				answer.Partition, answer.ErrorCode = p.Partition, 6
				topic.Partitions = append(topic.Partitions, answer)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
	job := Job{Work: Produce, Bootstrap: cluster.ListenAddrs()[0], Topic: "t", Clients: 1, RecordBytes: 10, BatchRecords: 1, Window: 5 * time.Second}
	if _, err := Run(context.Background(), job, nil, nil); err == nil {
		t.Fatal("no error")
	}
}

func TestClientsShareThePartitions(t *testing.T) {
	l := layout{partitions: []int32{1, 2, 3, 1, 2, 3}}
	for _, clients := range []int{1, 2, 6, 9} {
		seen := make(map[int32]int)
		for client := range clients {
			for _, partitions := range l.share(client, clients) {
				for _, p := range partitions {
					seen[p]++
				}
			}
		}
		total := 0
		for _, n := range seen {
			total += n
		}
		if len(seen) != 6 || total != max(6, clients) {
			t.Errorf("%d clients: %v", clients, seen)
		}
	}
}

// FuzzFetchAnswer: whatever a broker answers, the walker ends, reads nothing beyond the frame and allocates nothing for it.
func FuzzFetchAnswer(f *testing.F) {
	made := newTemplate(2, 20)
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = 12
	topic := kmsg.NewFetchResponseTopic()
	topic.Topic = "t"
	partition := kmsg.NewFetchResponseTopicPartition()
	partition.RecordBatches = append(append(partition.RecordBatches, made.bytes...), made.bytes[:70]...)
	topic.Partitions = append(topic.Partitions, partition)
	resp.Topics = append(resp.Topics, topic)
	f.Add(append([]byte{0}, resp.AppendTo(nil)...))
	f.Fuzz(func(t *testing.T, body []byte) {
		frame := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
		frame = append(binary.BigEndian.AppendUint32(frame, 1), body...)
		in := bytes.NewReader(append(frame, "next"...))
		c := &consumer{
			of: &run{job: Job{Work: Consume}}, conn: &conn{in: bufio.NewReaderSize(in, 4096)}, layout: &layout{topic: "t", fetch: 12},
			positions: map[int32]*position{0: {end: 100}}, partitions: []int32{0}, sentAt: made.sentAt,
		}
		if err := c.answer(1); err != nil {
			return
		}
		if rest, err := io.ReadAll(c.conn.in); err != nil || string(rest) != "next" {
			t.Fatalf("%q is left, %v", rest, err)
		}
	})
}
