package proxy

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/obs"
	"github.com/switchback-proxy/switchback/internal/wire"
	"github.com/switchback-proxy/switchback/translate"
)

// Produce: v3–v13, held at a cutover; v0–2 are answered with UNSUPPORTED_VERSION
//
// Request → physical:  topic name or id; in each batch the producer id, where the cluster may know the shown one from an
//                      earlier generation (12 bytes of the header and the CRC, which is moved along: no record is read).
// Response → virtual:  topic name or id; BaseOffset, LogStartOffset (inclusive); CurrentLeader, NodeEndpoints; names in error
//                      messages.
// Across a move:       a batch that the states of earlier eras know is answered with its virtual offset and not sent; the
//                      first batch of a producer is guarded (producer.go). What is left of the request is sent, and both
//                      answers are merged.
// acks=0:              nothing is answered; the call leaves the gate when a later answer on its link says that it arrived.
// Transactions:        not carried over yet: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_TXN_STATE for a batch alone.
// Not handled:         message formats before v2 inside a v3+ request: the broker refuses them itself.

// prepareProduce walks the request, judges its batches, and makes it physical.
func (c *call) prepareProduce(ctx context.Context) error {
	if c.version < 3 {
		return c.refuseOldProduce()
	}
	p := c.produce
	if p == nil {
		p = c.s.p.produceCall()
		c.produce = p
	} else { // for another route
		p.giveUp()
		p.undo(c)
	}
	transactional, err := p.walk(c)
	if err != nil {
		return closing(closedMalformed, fmt.Errorf("read Produce v%d: %w", c.version, err))
	}
	if err := c.roomForEntries(len(p.parts)); err != nil {
		return err
	}
	c.silent = p.acks == 0
	for i := range p.parts {
		if transactional {
			p.parts[i].refuse(kerr.TransactionalIDAuthorizationFailed.Code)
		} else {
			c.inspect(&p.parts[i])
		}
	}
	if err := c.guard(ctx); err != nil {
		return err
	}
	for i := range p.parts {
		if p.parts[i].answered {
			p.local++
		}
	}
	switch {
	case c.silent && (transactional || p.local > 0):
		return closing(closedAcksNone, fmt.Errorf("a batch without acks was refused with code %d", p.firstCode()))
	case transactional || p.local > 0 && p.local == len(p.parts):
		c.local = c.produceAnswer(&kmsg.ProduceResponse{})
	default:
		c.makePhysical()
	}
	return nil
}

// refuseOldProduce answers every partition with UNSUPPORTED_VERSION.
func (c *call) refuseOldProduce() error {
	req := kmsg.NewPtrProduceRequest()
	if err := c.decode(req); err != nil {
		return err
	}
	code := kerr.UnsupportedVersion.Code
	if req.Acks == 0 {
		return closing(closedAcksNone, fmt.Errorf("a request of Produce v%d without acks is refused with code %d", c.version, code))
	}
	resp := kmsg.NewPtrProduceResponse()
	for _, t := range req.Topics {
		out := kmsg.ProduceResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions, producedAnswer(p.Partition, code, -1))
		}
		resp.Topics = append(resp.Topics, out)
	}
	c.answer(resp)
	return nil
}

func producedAnswer(partition int32, code int16, base int64) kmsg.ProduceResponseTopicPartition {
	a := kmsg.NewProduceResponseTopicPartition()
	a.Partition, a.ErrorCode, a.BaseOffset = partition, code, base
	return a
}

// walk finds the partitions of the request:
//
//	transactional id | acks int16 | timeout int32 | topics (name or id, partitions (index int32, records, tags), tags) | tags
func (p *produceCall) walk(c *call) (transactional bool, err error) {
	r := c.reader(c.frame[c.bodyAt:])
	f := fields{r, c.s.p.headers.Flexible(c.key, c.version)}
	transactional = f.str() != nil
	p.acks = f.Int16()
	f.Int32()
	most := c.mostPartitions()
	for topics := f.array(); topics > 0 && r.Err() == nil; topics-- {
		part := producePart{newTopic: true}
		if c.version >= 13 {
			part.idAt = len(c.frame) - r.Remaining()
			part.id = f.UUID()
		} else {
			part.name = f.str()
		}
		part.count = max(f.array(), 0)
		for n := part.count; n > 0 && r.Err() == nil; n-- {
			part.partition = f.Int32()
			size := max(f.bytes(), 0)
			part.start = len(c.frame) - r.Remaining()
			if c.streamed {
				part.run = max(size-batch.HeaderSize, 0)
			}
			part.end = part.start + size - part.run
			r.Skip(size - part.run)
			f.tags()
			if len(p.parts) == most {
				return false, fmt.Errorf("more than %d partitions in %d bytes", most, len(c.frame))
			}
			p.parts = append(p.parts, part)
			part.newTopic = false
		}
		f.tags()
	}
	f.tags()
	if r.Err() == nil && r.Remaining() > 0 {
		return false, fmt.Errorf("%d bytes too many", r.Remaining())
	}
	return transactional, r.Err()
}

// inspect finds out what a partition's batch is, and answers what cannot be sent.
func (c *call) inspect(p *producePart) {
	key := seamKey{partition: p.partition}
	if c.version >= 13 {
		p.topic = c.route.byVirtual[p.id]
		key.id = p.id
	} else {
		p.topic = c.route.Topics[string(p.name)]
		if p.physical = c.s.sent.physical(c, p.name); p.physical == nil {
			p.refuse(kerr.UnknownTopicOrPartition.Code)
			return
		}
	}
	h := p.header(c)
	if h == nil {
		return
	}
	if h.Transactional() {
		p.refuse(kerr.InvalidTxnState.Code)
		return
	}
	if c.route.Generation < 2 || h.ProducerID() < 0 || h.FirstSequence() < 0 || c.silent {
		return
	}
	if p.topic != nil {
		key.topic, key.id = p.topic.Name, [16]byte{}
	} else if p.name != nil {
		key.topic = c.s.sent.keep(c, p.name)
	}
	p.sequenced, p.guarded = sequenceOf(h), !c.route.seam.issuedNow(h.ProducerID())
	p.sequenced.key = key
	if part := p.topic.partition(p.partition); part != nil {
		p.sequenced.states = part.Producers
	}
}

func (p *producePart) refuse(code int16) { p.answered, p.code, p.base = true, code, -1 }

// guard lets the batches of earlier producers pass one by one until the cluster knows them. It waits for answers to batches
// that are in flight; nothing of this call is in flight meanwhile, so no two calls wait for each other.
func (c *call) guard(ctx context.Context) error {
	for i := range c.produce.parts {
		p := &c.produce.parts[i]
		if !p.guarded || p.answered {
			continue
		}
		err := c.route.seam.learnWriters(ctx, p.sequenced.key, func(ctx context.Context) (writers, error) {
			return c.s.p.writersOf(ctx, c.route.Active, c.clusterName(p), p.partition)
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			c.s.p.trouble.note(c.s.log, "producers of a partition not known, batches have to come again", obs.KeyTopic, p.sequenced.key.topic, err)
			c.route.seam.putOff(&p.sequenced)
			p.refuse(notKnownYet())
		}
	}
	for {
		wait := c.rule()
		if wait == nil {
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// clusterName is the topic's name on the cluster; "" if it is not known.
func (c *call) clusterName(p *producePart) string {
	if p.physical != nil {
		return string(p.physical)
	}
	name := c.s.p.known.name(p.id)
	if p.topic != nil {
		name = p.topic.Name
	}
	return c.topicToPhysical(name)
}

// rule judges all batches at once, or none if one of them has to wait.
func (c *call) rule() (wait chan struct{}) {
	s := c.route.seam
	c.produce.seam = s
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := c.produce.parts
	for i := range parts {
		if p := &parts[i]; p.guarded && !p.answered {
			if busy := s.busy(&p.sequenced); busy != nil {
				return busy
			}
		}
	}
	for i := range parts {
		p := &parts[i]
		if !p.guarded || p.answered {
			continue
		}
		r := s.rule(&p.sequenced, c.route.Forced)
		switch {
		case r.known:
			p.answered, p.base = true, int64(r.base)
			c.s.p.metrics.Duplicate()
		case r.wait != nil: // a second batch of this producer in the same request
			p.refuse(kerr.OutOfOrderSequenceNumber.Code)
		case r.code != 0:
			p.refuse(r.code)
		}
		p.producer = r.producer
	}
	return nil
}

// makePhysical rewrites the request. Where lengths stay, it is changed where it lies; otherwise it is made anew.
func (c *call) makePhysical() {
	parts := c.produce.parts
	for i := range parts {
		p := &parts[i]
		if p.answered {
			continue
		}
		if h := p.header(c); h != nil {
			tagProducer(h, c.route.Generation)
		}
	}
	if c.produce.local == 0 && (c.version >= 13 || c.route.names.IsIdentity()) {
		for i := range parts {
			p := &parts[i]
			p.cut = p.end
			if c.version >= 13 && p.newTopic {
				id := c.route.physicalID(p.id)
				copy(c.frame[p.idAt:], id[:])
			}
		}
		return
	}
	c.composeProduce()
}

// tagProducer gives a batch the producer id under which the cluster knows it.
func tagProducer(b []byte, generation translate.Generation) {
	if id := batch.Header(b).ProducerID(); id >= 0 {
		setProducerID(b, translate.OnCluster(id, generation))
	}
}

func setProducerID(b []byte, id int64) {
	if h := batch.Header(b); id != h.ProducerID() {
		batch.SetProducer(b, batch.Producer{ID: id, Epoch: h.ProducerEpoch(), FirstSequence: h.FirstSequence()})
	}
}

// composeProduce makes the request anew, without the partitions that are answered here. Tagged fields, of which the API
// has none, are not passed on.
func (c *call) composeProduce() {
	r := c.reader(c.frame[c.bodyAt:])
	f := fields{r, c.s.p.headers.Flexible(c.key, c.version)}
	f.str()
	acks, timeout := f.Int16(), f.Int32()
	c.physical = c.s.p.pool.Get()
	m := maker{b: append(c.physical.B, c.frame[:c.bodyAt]...), flexible: f.flexible}
	m.str(nil)
	m.int16(acks)
	m.int32(timeout)
	groups := sentTopics(c.produce.parts)
	m.array(len(groups))
	for _, parts := range groups {
		if c.version >= 13 {
			m.uuid(c.route.physicalID(parts[0].id))
		} else {
			m.str(parts[0].physical)
		}
		m.array(len(parts))
		for _, p := range parts {
			m.int32(p.partition)
			if size := p.end - p.start + p.run; m.flexible {
				m.uvarint(size + 1)
			} else {
				m.int32(int32(size))
			}
			m.b = append(m.b, c.frame[p.start:p.end]...)
			p.cut = len(m.b)
			m.noTags()
		}
		m.noTags()
	}
	m.noTags()
	c.physical.B = m.b
}

// sentTopics groups what is sent by topic, as the client did.
func sentTopics(parts []producePart) [][]*producePart {
	var out [][]*producePart
	fresh := false
	for i := range parts {
		fresh = fresh || parts[i].newTopic
		if parts[i].answered {
			continue
		}
		if fresh {
			out = append(out, nil)
			fresh = false
		}
		out[len(out)-1] = append(out[len(out)-1], &parts[i])
	}
	return out
}

// receiveProduce reads the answer and writes it to out.
func (c *call) receiveProduce(bodyAt int, out *wire.Writer) error {
	room := c.s.roomForAnswer(c, rewrittenTakes*c.link.in.Remaining())
	defer c.s.giveBack(&room)
	b := c.s.p.pool.Get()
	defer b.Release()
	var err error
	if b.B, err = c.link.in.ReadAll(b.B); err != nil {
		return err
	}
	c.leaveGate()
	if c.produce.local > 0 {
		return c.mergeProduce(b.B, bodyAt, out)
	}
	shown := c.s.p.pool.Get()
	defer shown.Release()
	w := produceWalk{c: c, r: c.reader(b.B[bodyAt:])}
	w.m = maker{b: append(shown.B, b.B[:bodyAt]...), flexible: c.s.p.headers.Flexible(c.key, c.version)}
	err = w.answer()
	shown.B = w.m.b
	if err != nil {
		return err
	}
	return out.WriteFrame(shown.B)
}

// produceWalk rewrites an answer to virtual:
//
//	topics (name or id, partitions (index int32, code int16, base int64, append time int64, log start int64,
//	  record errors (index int32, message), message, tags {0: leader id int32, epoch int32}), tags) |
//	throttle int32 | tags {0: nodes (id int32, host, port int32, rack)}
type produceWalk struct {
	c *call
	r *wire.Reader
	m maker
}

func (w *produceWalk) answer() error {
	f := fields{w.r, w.m.flexible}
	topics := f.array()
	w.m.array(topics)
	for ; topics > 0 && w.r.Err() == nil; topics-- {
		if err := w.topic(f); err != nil {
			return err
		}
	}
	w.m.int32(f.Int32())
	if w.m.flexible {
		w.c.showNodes(f, &w.m)
	}
	if err := w.r.Err(); err != nil {
		return w.c.badAnswer(err.Error())
	}
	return nil
}

func (w *produceWalk) topic(f fields) error {
	c := w.c
	var topic *Topic
	var physical, name, message, shown []byte // the latter two in texts
	var id [16]byte
	if c.version >= 13 {
		real := f.UUID()
		topic, id = c.route.byPhysical[real], c.route.virtualID(real)
		w.m.uuid(id)
		if !c.route.names.IsIdentity() {
			message, shown = c.namesBehind(topic, id)
		}
	} else {
		physical = f.str()
		if name = c.s.shown.virtual(c, physical); name == nil {
			return c.badAnswer("a topic that was not asked for")
		}
		topic = c.route.Topics[string(name)]
		w.m.str(name)
		message, shown = physical, name
	}
	n := f.array()
	w.m.array(n)
	for ; n > 0 && w.r.Err() == nil; n-- {
		w.partition(f, topic, producedName{id, name}, message, shown)
	}
	w.m.copyTags(f, 0)
	return nil
}

// producedName is what the client calls a topic: by id or by name.
type producedName struct {
	id   [16]byte
	name []byte
}

func (w *produceWalk) partition(f fields, topic *Topic, called producedName, physical, shown []byte) {
	m, v := &w.m, w.c.version
	partition, code := f.Int32(), f.Int16()
	part := topic.partition(partition)
	m.int32(partition)
	m.int16(code)
	m.int64(part.shownOffset(f.Int64()))
	m.int64(f.Int64())
	w.c.produce.told(called, partition, code)
	if v >= 5 {
		m.int64(part.shownOffset(f.Int64()))
	}
	if v >= 8 {
		n := f.array()
		m.array(n)
		for ; n > 0 && w.r.Err() == nil; n-- {
			m.int32(f.Int32())
			m.str(renamed(f.str(), physical, shown))
			m.copyTags(f, 0)
		}
		m.str(renamed(f.str(), physical, shown))
	}
	if m.flexible {
		w.c.showLeader(f, m, part, 0)
	}
}

// renamed is a broker's text with the topic called as the client does.
func renamed(text, physical, virtual []byte) []byte {
	if physical == nil || !bytes.Contains(text, physical) || bytes.Equal(physical, virtual) {
		return text
	}
	return []byte(strings.ReplaceAll(string(text), string(physical), string(virtual)))
}

// mergeProduce adds what was answered here to the broker's answer.
func (c *call) mergeProduce(message []byte, bodyAt int, out *wire.Writer) error {
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = c.version
	if err := resp.ReadFrom(message[bodyAt:]); err != nil {
		return c.badAnswer(err.Error())
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		physical, topic := t.Topic, c.route.byPhysical[t.TopicID]
		if c.version < 13 {
			name := c.s.shown.virtual(c, []byte(physical))
			if name == nil {
				return c.badAnswer("a topic that was not asked for")
			}
			t.Topic = string(name)
			topic = c.route.topic(t.Topic)
		}
		t.TopicID = c.route.virtualID(t.TopicID)
		for j := range t.Partitions {
			c.showProduced(&t.Partitions[j], topic, t, physical)
		}
	}
	resp.Brokers = c.showEndpoints(resp.Brokers)
	c.local = c.produceAnswer(resp)
	return c.writeLocal(out)
}

func (c *call) showProduced(p *kmsg.ProduceResponseTopicPartition, topic *Topic, t *kmsg.ProduceResponseTopic, physical string) {
	part, called := topic.partition(p.Partition), producedName{name: []byte(t.Topic)}
	shown := []byte(t.Topic)
	if c.version >= 13 {
		called = producedName{id: t.TopicID}
		before, after := c.namesBehind(topic, t.TopicID)
		physical, shown = string(before), after
	}
	p.BaseOffset, p.LogStartOffset = part.shownOffset(p.BaseOffset), part.shownOffset(p.LogStartOffset)
	p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = c.shownLeader(part, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch)
	p.ErrorMessage = words(p.ErrorMessage, physical, string(shown))
	for i := range p.ErrorRecords {
		p.ErrorRecords[i].ErrorMessage = words(p.ErrorRecords[i].ErrorMessage, physical, string(shown))
	}
	c.produce.told(called, p.Partition, p.ErrorCode)
}

// namesBehind are the names of a topic that is known by its virtual id; nil if they are not known.
func (c *call) namesBehind(topic *Topic, id [16]byte) (physical, virtual []byte) {
	name := c.s.p.known.name(id)
	if topic != nil {
		name = topic.Name
	}
	if name == "" {
		return nil, nil
	}
	return c.s.shown.physical(c, []byte(name)), []byte(name)
}

// produceAnswer adds what is answered here to a virtual answer.
func (c *call) produceAnswer(resp *kmsg.ProduceResponse) *kmsg.ProduceResponse {
	for i := range c.produce.parts {
		p := &c.produce.parts[i]
		if !p.answered {
			continue
		}
		var into *kmsg.ProduceResponseTopic
		for j := range resp.Topics {
			if t := &resp.Topics[j]; t.Topic == string(p.name) && t.TopicID == p.id {
				into = t
			}
		}
		if into == nil {
			resp.Topics = append(resp.Topics, kmsg.ProduceResponseTopic{Topic: string(p.name), TopicID: p.id})
			into = &resp.Topics[len(resp.Topics)-1]
		}
		into.Partitions = append(into.Partitions, producedAnswer(p.partition, p.code, p.base))
	}
	return resp
}
