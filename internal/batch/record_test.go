package batch

import (
	"bytes"
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestEncodeAndDecodeKeepEveryOddity(t *testing.T) {
	for _, codec := range codecNames {
		want := oddRecords(40)
		b := encode(t, want, Params{Codec: codec, BaseOffset: 40, LeaderEpoch: 6})
		h := Header(b)
		if h.Codec() != codec || h.HasHoles() || h.LeaderEpoch() != 6 || h.ProducerID() != -1 || h.MaxTimestamp() != 1_700_000_000_500 {
			t.Fatalf("%s: header", codec)
		}
		mustEqual(t, mustDecode(t, b), want)
	}
}

func TestEncodeNumbersRecordsWithoutHolesWhateverTheirOffsets(t *testing.T) {
	records := oddRecords(0)
	for i := range records {
		records[i].Offset *= 10
	}
	b := encode(t, records, Params{BaseOffset: 7})
	mustEqual(t, mustDecode(t, b), oddRecords(7))
}

func TestEncodeRefusesAnEmptyBatch(t *testing.T) {
	if _, err := NewCodecs(0).Encode(nil, Params{Codec: Gzip}); err == nil {
		t.Fatal("accepted")
	}
}

func TestEncodeTakesExtremeTimestamps(t *testing.T) {
	want := []Record{{Timestamp: math.MaxInt64}, {Timestamp: math.MinInt64}, {Timestamp: -1}}
	for i := range want {
		want[i].Offset = int64(i)
	}
	mustEqual(t, mustDecode(t, encode(t, want, Params{})), want)
}

func TestLogAppendTimeIsTheTimeOfEveryRecord(t *testing.T) {
	for _, r := range mustDecode(t, logAppend(encode(t, oddRecords(0), Params{}), 99)) {
		if r.Timestamp != 99 {
			t.Fatal(r.Timestamp)
		}
	}
}

// kgoDecode reads b as a consumer does.
func kgoDecode(t testing.TB, b []byte, from int64) []Record {
	t.Helper()
	fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: from, Topic: "t"},
		&kmsg.FetchResponseTopicPartition{HighWatermark: math.MaxInt64, RecordBatches: b}, kgo.DefaultDecompressor(), nil)
	if fp.Err != nil {
		t.Fatal(fp.Err)
	}
	var out []Record
	for _, r := range fp.Records {
		out = append(out, fromKgo(r))
	}
	return out
}

func fromKgo(r *kgo.Record) Record {
	o := Record{Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		o.Headers = append(o.Headers, RecordHeader{Key: []byte(h.Key), Value: h.Value})
	}
	return o
}

func TestConsumersReadWhatWeEncode(t *testing.T) {
	for _, codec := range codecNames {
		b := encode(t, oddRecords(3), Params{Codec: codec, BaseOffset: 3})
		mustEqual(t, kgoDecode(t, b, 3), oddRecords(3))
	}
}

func TestConsumersSkipTheGapMarker(t *testing.T) {
	b := GapMarker(nil, 5, 5+3<<31, 1)
	b = append(b, encode(t, oddRecords(5+3<<31), Params{BaseOffset: 5 + 3<<31})...)
	mustEqual(t, kgoDecode(t, b, 5), oddRecords(5+3<<31))
}

// fetchRaw produces records with a real client to an embedded broker and returns the stored bytes.
func fetchRaw(t *testing.T, codec kgo.CompressionCodec, records []Record) []byte {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic("t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	var out []*kgo.Record
	for _, r := range records {
		k := &kgo.Record{Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Timestamp)}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: string(h.Key), Value: h.Value})
		}
		out = append(out, k)
	}
	if err := cl.ProduceSync(ctx, out...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.MinBytes, req.SessionEpoch = 1<<30, 1, -1
	part := kmsg.NewFetchRequestTopicPartition()
	part.PartitionMaxBytes = 1 << 30
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = "t", fake.TopicInfo("t").TopicID
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Topics[0].Partitions[0].RecordBatches
}

func TestBatchesOfARealProducerDecode(t *testing.T) {
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		t.Run(name, func(t *testing.T) {
			want := oddRecords(0)
			var got []Record
			it := Iter(fetchRaw(t, codec, want))
			for it.Next() {
				mustBeSound(t, it.Batch())
				Rewrite(it.Batch(), Header(it.Batch()).BaseOffset(), Producer{9, 9, 9})
				mustBeSound(t, it.Batch())
				got = append(got, mustDecode(t, it.Batch())...)
			}
			if it.Err() != nil || it.Truncated() {
				t.Fatal(it.Err())
			}
			mustEqual(t, got, want)
		})
	}
}

func TestDecodeReadsRawSnappyAndOtherFramings(t *testing.T) {
	value := bytes.Repeat([]byte("abc"), 50_000) // more than one xerial block
	rest := appendRest(nil, &Record{Value: value})
	payload := appendRaw(nil, rawRecord{rest: rest}, 0, 0)
	lz := func(opts ...lz4.Option) []byte {
		var out bytes.Buffer
		w := lz4.NewWriter(&out)
		if err := w.Apply(opts...); err != nil {
			t.Fatal(err)
		}
		w.Write(payload)
		w.Close()
		return out.Bytes()
	}
	for name, c := range map[string]struct {
		codec Codec
		bytes []byte
	}{
		"raw snappy":        {Snappy, s2.EncodeSnappy(nil, payload)},
		"xerial":            {Snappy, snappy(nil, payload)},
		"lz4 4M, checksums": {LZ4, lz(lz4.BlockSizeOption(lz4.Block4Mb), lz4.BlockChecksumOption(true), lz4.ChecksumOption(true))},
		"lz4 with size":     {LZ4, lz(lz4.SizeOption(uint64(len(payload))))},
	} {
		b := append(make([]byte, HeaderSize), c.bytes...)
		w := builder{codec: c.codec, count: 1}
		w.fillHeader(b)
		t.Run(name, func(t *testing.T) { mustEqual(t, mustDecode(t, b), []Record{{Value: value}}) })
	}
}

func TestDecodeStopsABombAtTheLimit(t *testing.T) {
	b := make(map[Codec][]byte)
	for _, codec := range codecNames {
		b[codec] = encode(t, []Record{{Value: make([]byte, 4<<20)}}, Params{Codec: codec})
	}
	small, enough := NewCodecs(1<<20), NewCodecs(5<<20)
	for _, codec := range codecNames[1:] {
		if _, err := small.Decode(b[codec]); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", codec, err)
		}
		if _, err := enough.Decode(b[codec]); err != nil {
			t.Errorf("%s: %v", codec, err)
		}
	}
}

func TestDecodeRefusesRecordsThatDoNotAddUp(t *testing.T) {
	c := NewCodecs(0)
	cases := map[string]func(Header){
		"count too low":      func(h Header) { h.SetNumRecords(4) },
		"count too high":     func(h Header) { h.SetNumRecords(6); h.SetLastOffsetDelta(5) },
		"huge count":         func(h Header) { h.SetNumRecords(math.MaxInt32); h.SetLastOffsetDelta(math.MaxInt32 - 1) },
		"delta beyond last":  func(h Header) { h.SetLastOffsetDelta(3); h.SetNumRecords(4) },
		"not that codec":     func(h Header) { h.SetAttributes(int16(Gzip)) },
		"not that codec (2)": func(h Header) { h.SetAttributes(int16(Snappy)) },
		"not that codec (3)": func(h Header) { h.SetAttributes(int16(LZ4)) },
		"not that codec (4)": func(h Header) { h.SetAttributes(int16(Zstd)) },
	}
	for name, spoil := range cases {
		b := encode(t, oddRecords(0), Params{})
		spoil(b)
		if _, err := c.Decode(b); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func BenchmarkDecode(bench *testing.B) {
	c := NewCodecs(0)
	for _, codec := range codecNames {
		b := encode(bench, simpleRecords(0, 0, 1000), Params{Codec: codec})
		bench.Run(codec.String(), func(bench *testing.B) {
			bench.ReportAllocs()
			for bench.Loop() {
				if _, err := c.Decode(b); err != nil {
					bench.Fatal(err)
				}
			}
		})
	}
}
