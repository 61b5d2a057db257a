package replicator

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/translate"
)

const (
	fetchWait      = 100 * time.Millisecond // long poll; also the longest that a newly wanting partition waits
	fetchBytes     = 32 << 20               // per request
	fetchPartBytes = 1 << 20
	feedBytes      = 2 << 20   // per partition: no more is asked for while so much waits
	buffered       = 256 << 20 // over all partitions
)

// chunk is what one fetch brought for one partition.
type chunk struct {
	from    translate.Physical // the position that was asked for
	next    translate.Physical // after the last whole batch
	records []byte             // raw; the chunk's owner may write in it
	aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction
}

// feed is what was fetched of one source partition and not taken yet. The fetcher of the leader fills it, the pump empties
// it.
type feed struct {
	topic     string
	id        [16]byte
	partition int32
	total     *atomic.Int64 // bytes in all feeds
	ready     chan struct{} // capacity 1

	mu       sync.Mutex // guards what follows
	open     bool       // a pump reads
	fetching bool       // a request is under way
	turn     int        // counts openings: an answer to a request of an earlier one is dropped
	chunks   []chunk
	bytes    int
	next     translate.Physical // to be fetched
	trouble  error              // why it does not go on; the pump opens the feed anew
	high     translate.Physical // high watermark; −1: not known
	stable   translate.Physical // last stable offset; −1: not known
	start    translate.Physical // log start
	seen     []sight            // of stable, oldest first; what is copied is forgotten
	answered time.Time          // the last answer, or when the feed was opened, or had room again
}

// sight: the last stable offset was first seen at or above below then.
type sight struct {
	below translate.Physical
	at    time.Time
}

const (
	sightStep = 10 * time.Millisecond // sights closer than this are one
	maxSights = 256                   // more are thinned out
)

// see notes the last stable offset of an answer.
func (f *feed) see(stable translate.Physical, now time.Time) {
	n := len(f.seen)
	switch {
	case n > 0 && stable <= f.seen[n-1].below:
		return
	case n > 0 && now.Sub(f.seen[n-1].at) < sightStep:
		f.seen[n-1].below = stable
		return
	case n >= maxSights: // each second one takes in the next
		for i := range n / 2 {
			f.seen[i] = sight{f.seen[2*i+1].below, f.seen[2*i].at}
		}
		f.seen = f.seen[:n/2]
	}
	f.seen = append(f.seen, sight{stable, now})
}

// ends is what the last answer said of the source's log.
type ends struct {
	high, stable translate.Physical // −1: not known
	copied       bool               // all below stable is copied
	fetched      bool               // all below stable was fetched
	waiting      int                // bytes not taken yet
	behind       time.Duration      // since when something that is not copied is known to be below stable; 0: it is not
	silent       time.Duration      // since when no answer came, though one is wanted
}

// ends is called with the place up to which all is copied; it never moves back while the feed is open.
func (f *feed) ends(copied translate.Physical) ends {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	e := ends{high: f.high, stable: f.stable, copied: copied >= f.stable, fetched: f.next >= f.stable, waiting: f.bytes}
	done := 0
	for done < len(f.seen) && f.seen[done].below <= copied {
		done++
	}
	f.seen = f.seen[done:]
	if len(f.seen) > 0 {
		e.behind = max(now.Sub(f.seen[0].at), time.Nanosecond)
	}
	if f.open && f.trouble == nil && f.bytes < feedBytes {
		e.silent = now.Sub(f.answered)
	}
	return e
}

func newFeed(topic string, id [16]byte, partition int32, total *atomic.Int64) *feed {
	return &feed{topic: topic, id: id, partition: partition, total: total, ready: make(chan struct{}, 1), high: -1, stable: -1}
}

// begin lets the feed be filled from a position on.
func (f *feed) begin(at translate.Physical) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop()
	f.open, f.next, f.trouble, f.answered = true, at, nil, time.Now()
	f.turn++
}

// end stops it.
func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop()
	f.open = false
	f.turn++
}

func (f *feed) drop() {
	if f.bytes >= feedBytes { // nothing was asked for while it was full
		f.answered = time.Now()
	}
	f.total.Add(-int64(f.bytes))
	f.chunks, f.bytes = nil, 0
}

// take returns what is there, and the trouble if nothing is left before it.
func (f *feed) take() (chunks []chunk, trouble error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	chunks = f.chunks
	f.drop()
	if len(chunks) == 0 {
		trouble = f.trouble
	}
	return chunks, trouble
}

// wants says from where a fetch should go on; ok is false if none should. full: one should soon, when there is room.
func (f *feed) wants() (at translate.Physical, turn int, ok, full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !f.open || f.fetching || f.trouble != nil:
		return 0, 0, false, false
	case f.bytes >= feedBytes:
		return 0, 0, false, true
	}
	f.fetching = true
	return f.next, f.turn, true, false
}

func (f *feed) wake() {
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

// failed ends a fetch that brought nothing for this partition.
func (f *feed) failed() {
	f.mu.Lock()
	f.fetching = false
	f.mu.Unlock()
}

// deliver takes an answer. alone: no partition of the answer has records, so that an empty one is not for lack of room.
func (f *feed) deliver(p *kmsg.FetchResponseTopicPartition, a askedFeed, alone bool) (again bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.wake()
	f.fetching = false
	if a.turn != f.turn || a.at != f.next {
		return false
	}
	f.answered = time.Now()
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		if kerr.IsRetriable(err) && !errors.Is(err, kerr.UnknownTopicID) {
			return true
		}
		f.trouble = err
		return false
	}
	if p.DivergingEpoch.EndOffset >= 0 {
		f.trouble = errDiverged
		return false
	}
	f.high, f.stable = translate.Physical(p.HighWatermark), translate.Physical(p.LastStableOffset)
	f.start = translate.Physical(p.LogStartOffset)
	f.see(f.stable, f.answered)
	c := chunk{from: f.next, next: f.next, records: p.RecordBatches, aborted: p.AbortedTransactions}
	it := batch.Iter(p.RecordBatches)
	for it.Next() {
		h := batch.Header(it.Batch())
		if it.Legacy() {
			c.next = max(c.next, translate.Physical(h.BaseOffset()+1))
		} else {
			c.next = max(c.next, translate.Physical(h.NextOffset()))
		}
	}
	switch err := it.Err(); {
	case err != nil:
		f.trouble = err
		return false
	case len(p.RecordBatches) == 0 && alone && f.stable > f.next && f.start <= f.next:
		c.next = f.stable // nothing is there: the cleaner removed it all
	}
	if c.next > f.next {
		f.chunks = append(f.chunks, c)
		f.bytes += len(c.records)
		f.total.Add(int64(len(c.records)))
		f.next = c.next
	}
	return false
}

var errDiverged = errors.New("the source log diverged from what was copied")

// fetchers run one fetcher per broker of the source.
type fetchers struct {
	source *cluster
	pace   *pace
	total  atomic.Int64

	mu    sync.Mutex // guards feeds
	feeds []*feed
}

func newFetchers(source *cluster, pace *pace) *fetchers { return &fetchers{source: source, pace: pace} }

func (f *fetchers) feed(topic string, id [16]byte, partition int32) *feed {
	out := newFeed(topic, id, partition, &f.total)
	f.mu.Lock()
	f.feeds = append(f.feeds, out)
	f.mu.Unlock()
	return out
}

// remove takes a feed out for good.
func (f *fetchers) remove(gone *feed) {
	gone.end()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, one := range f.feeds {
		if one == gone {
			f.feeds = append(f.feeds[:i:i], f.feeds[i+1:]...)
			return
		}
	}
}

// run starts a fetcher for each broker that comes, until ctx ends.
func (f *fetchers) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	running := map[int32]bool{}
	for {
		for _, node := range f.source.nodes() {
			if !running[node] {
				running[node] = true
				wg.Go(func() { f.fetchFrom(ctx, node) })
			}
		}
		if sleep(ctx, fetchWait) != nil {
			return
		}
	}
}

// idleWait is how long a fetcher that nobody wants anything from looks away.
const idleWait = 5 * time.Millisecond

func (f *fetchers) fetchFrom(ctx context.Context, node int32) {
	for ctx.Err() == nil {
		req, asked := f.request(node)
		if len(asked) == 0 {
			if sleep(ctx, idleWait) != nil {
				return
			}
			continue
		}
		reqCtx, cancel := context.WithTimeout(ctx, 30*time.Second)
		kresp, err := f.source.client.Broker(int(node)).Request(reqCtx, req)
		cancel()
		resp, _ := kresp.(*kmsg.FetchResponse)
		again, size := true, 0
		if err == nil && resp != nil && resp.ErrorCode == 0 {
			size = answerBytes(resp)
			again = dispatch(req, resp, asked)
		}
		for _, a := range asked {
			a.feed.failed()
		}
		if again {
			f.source.kick()
			if sleep(ctx, kickInterval) != nil {
				return
			}
		}
		if size > 0 && size < smallRound && f.pace.wait(ctx, fetchPhase) != nil {
			return
		}
	}
}

// answerBytes is how many bytes of records came.
func answerBytes(resp *kmsg.FetchResponse) (n int) {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			n += len(resp.Topics[i].Partitions[j].RecordBatches)
		}
	}
	return n
}

// askedFeed is what was asked for one partition; a feed takes the answer only if it still wants exactly that.
type askedFeed struct {
	feed *feed
	turn int
	at   translate.Physical
}

// request asks for all partitions that a broker leads and whose feed wants more.
func (f *fetchers) request(node int32) (*kmsg.FetchRequest, map[sentPartition]askedFeed) {
	if f.total.Load() >= buffered {
		return nil, nil
	}
	f.mu.Lock()
	feeds := f.feeds
	f.mu.Unlock()
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.MaxWaitMillis = int32(fetchWait.Milliseconds())
	req.MinBytes = 1
	req.MaxBytes = fetchBytes
	req.IsolationLevel = 1
	req.SessionEpoch = -1
	asked := map[sentPartition]askedFeed{}
	topics := map[string]int{}
	for _, one := range feeds {
		if leader, _, ok := f.source.leader(one.topic, one.partition); !ok || leader != node {
			continue
		}
		at, turn, ok, full := one.wants()
		if full { // a backlog does not wait until a partition without one has news
			req.MaxWaitMillis = int32(idleWait.Milliseconds())
		}
		if !ok {
			continue
		}
		asked[sentPartition{one.topic, one.partition}] = askedFeed{one, turn, at}
		i, ok := topics[one.topic]
		if !ok {
			i = len(req.Topics)
			topics[one.topic] = i
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = one.topic, one.id
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = one.partition, int64(at), fetchPartBytes
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	return req, asked
}

// dispatch hands the answer to the feeds and removes them from asked. again: some partition's leader is elsewhere.
func dispatch(req *kmsg.FetchRequest, resp *kmsg.FetchResponse, asked map[sentPartition]askedFeed) (again bool) {
	names := make(map[[16]byte]string, len(req.Topics))
	for i := range req.Topics {
		names[req.Topics[i].TopicID] = req.Topics[i].Topic
	}
	alone := true
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			alone = alone && len(resp.Topics[i].Partitions[j].RecordBatches) == 0
		}
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		name := t.Topic
		if name == "" {
			name = names[t.TopicID]
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			key := sentPartition{name, p.Partition}
			if a, ok := asked[key]; ok {
				delete(asked, key)
				again = a.feed.deliver(p, a, alone) || again
			}
		}
	}
	return again
}
