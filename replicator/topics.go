package replicator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/translate"
)

// topicState is one topic that is copied.
type topicState struct {
	virtual, source, target string
	trouble                 *trouble
	format                  *trouble // the target cannot store it as we write; nil: it can, as far as known
	maxBytes                int      // max.message.bytes on the target; 0: not known
}

// discover finds the topics of the source that are to be copied, makes them on the target whole, in one request, and gives
// each partition a pump. What fails for one topic stops that topic.
func (f *Flow) discover(ctx context.Context) error {
	if err := f.discovering.take(ctx); err != nil {
		return err
	}
	defer f.discovering.put()
	f.dropMadeAgain()
	source := f.source.view.Load()
	var missing []*topicState
	grow := map[*topicState]int{}
	wanted := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(source.topics)) {
		t := source.topics[name]
		virtual, ok := f.cfg.SourceNames.Virtual(name)
		target := f.cfg.TargetNames.Physical(virtual)
		if !ok || t.internal || translate.IsInternal(name) || target == "" || !f.cfg.Topics.Match(virtual) {
			continue
		}
		wanted[virtual] = true
		state := f.topicOf(virtual, name, target)
		switch there := f.target.topic(target); {
		case there == nil:
			missing = append(missing, state)
		case len(there.partitions) < len(t.partitions):
			grow[state] = len(t.partitions)
		default: // whoever has made it so
			state.trouble = nil
		}
	}
	var errs []error
	if len(missing) > 0 {
		errs = append(errs, f.createTopics(ctx, missing))
	}
	if len(grow) > 0 {
		errs = append(errs, f.growTopics(ctx, grow))
	}
	if len(missing)+len(grow) > 0 {
		errs = append(errs, f.awaitTarget(ctx, missing, grow))
	}
	errs = append(errs, f.loadLimits(ctx, wanted))
	errs = append(errs, f.dropGone(ctx, wanted))
	f.plant(wanted)
	return errors.Join(errs...)
}

func (f *Flow) topicOf(virtual, source, target string) *topicState {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.topics[virtual]
	if t == nil {
		t = &topicState{virtual: virtual, source: source, target: target}
		f.topics[virtual] = t
	}
	return t
}

// awaitTarget waits until the target's metadata show what was made. Topics that could not be made are not waited for.
func (f *Flow) awaitTarget(ctx context.Context, missing []*topicState, grow map[*topicState]int) error {
	for range 100 {
		if err := f.target.refresh(ctx); err != nil {
			return err
		}
		ready := true
		for _, t := range missing {
			there := f.target.topic(t.target)
			ready = ready && (t.trouble != nil || there != nil && allLed(there))
		}
		for t, n := range grow {
			there := f.target.topic(t.target)
			ready = ready && (t.trouble != nil || there != nil && len(there.partitions) >= n && allLed(there))
		}
		if ready {
			return nil
		}
		if err := sleep(ctx, kickInterval); err != nil {
			return err
		}
	}
	return errors.New("topics that were made on the target have no leaders yet")
}

func allLed(t *topicView) bool {
	return !slices.ContainsFunc(t.partitions, func(p partitionView) bool { return p.leader < 0 })
}

// plant gives each partition of the wanted topics a pump.
func (f *Flow) plant(wanted map[string]bool) {
	for virtual := range wanted {
		f.mu.Lock()
		state := f.topics[virtual]
		f.mu.Unlock()
		source, target := f.source.topic(state.source), f.target.topic(state.target)
		if source == nil {
			continue
		}
		t := mismatch(state, source, target)
		for n := range source.partitions {
			p := f.plantOne(state, int32(n), source, target)
			if p.setTopic(cmp.Or(t, p.madeAgain(source, target)), state.maxBytes) {
				p.slot.end(errGone) // the next reign reads the topic again
			}
		}
	}
}

// mismatch says why a topic cannot be copied; nil if it can.
func mismatch(state *topicState, source, target *topicView) *trouble {
	switch {
	case state.trouble != nil:
		return state.trouble
	case state.format != nil:
		return state.format
	case target == nil:
		return &trouble{"the topic is not on the target yet", "it is tried again"}
	case len(target.partitions) > len(source.partitions):
		return &trouble{
			fmt.Sprintf("the topic has %d partitions on the source and %d on the target", len(source.partitions), len(target.partitions)),
			"add partitions on the source, or delete the topic on the target",
		}
	case len(target.partitions) < len(source.partitions):
		return &trouble{
			fmt.Sprintf("the topic has %d partitions on the source and %d on the target", len(source.partitions), len(target.partitions)),
			"our user needs ALTER on the target's topic to add partitions; it is tried again",
		}
	}
	return nil
}

func (f *Flow) plantOne(state *topicState, n int32, source, target *topicView) *pump {
	tp := journal.TP{Topic: state.virtual, Partition: n}
	f.mu.Lock()
	p := f.pumps[tp]
	f.mu.Unlock()
	if p != nil {
		p.setTarget(target)
		return p
	}
	p = &pump{
		flow: f, slot: f.slots[journal.Slot(tp, len(f.slots))], tp: tp,
		source: state.source, target: state.target, sourceID: source.id, state: StateProbing, confirmed: -1,
	}
	p.feed = f.fetchers.feed(state.source, source.id, n)
	p.setTarget(target)
	f.mu.Lock()
	f.pumps[tp] = p
	p.anew = f.reseeding[tp]
	delete(f.reseeding, tp)
	f.mu.Unlock()
	p.slot.add(p)
	return p
}

// setTarget notes the id of the target topic, once: another one later is a topic that was made again.
func (p *pump) setTarget(t *topicView) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t != nil && !known(p.targetID) {
		p.targetID = t.id
	}
}

// madeAgain says that one of the two topics is not the one that the pump began with; nil if both are.
func (p *pump) madeAgain(source, target *topicView) *trouble {
	switch {
	case known(p.sourceID) && source.id != p.sourceID:
		return recreated("source", p.sourceID, source.id)
	case target != nil && known(p.targetID) && target.id != p.targetID:
		return recreated("target", p.targetID, target.id)
	}
	return nil
}

// setTopic says whether the source did not show the topic before; then the pump's feed has ended.
func (p *pump) setTopic(t *trouble, maxBytes int) (back bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	back = p.topic != nil && *p.topic == *notOnSource()
	p.topic, p.maxBytes = t, maxBytes
	return back
}

// maxJoin bounds what small batches are put together to.
func (p *pump) maxJoin() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.maxBytes > 0 && p.maxBytes < roundBytes {
		return p.maxBytes
	}
	return roundBytes
}

// defaultMaxBytes is max.message.bytes where nothing is set. A little less leaves room for a header.
const defaultMaxBytes = 1_000_000

func (f *Flow) createTopics(ctx context.Context, list []*topicState) error {
	configs, err := f.sourceConfigs(ctx, list)
	if err != nil {
		return err
	}
	var all []kmsg.CreateTopicsRequestTopic
	for _, t := range list {
		source := f.source.topic(t.source)
		if source == nil || configs[t.source] == nil {
			continue
		}
		one := kmsg.NewCreateTopicsRequestTopic()
		one.Topic = t.target
		f.layOut(&one, source)
		for _, name := range slices.Sorted(maps.Keys(configs[t.source])) {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = name, kmsg.StringPtr(configs[t.source][name])
			one.Configs = append(one.Configs, c)
		}
		all = append(all, one)
		t.maxBytes = defaultMaxBytes
		if n, err := strconv.Atoi(configs[t.source][maxMessageBytes]); err == nil {
			t.maxBytes = n
		}
	}
	for len(all) > 0 {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.TimeoutMillis = 30_000
		n := madeAtOnce(all)
		req.Topics, all = all[:n], all[n:]
		resp, err := req.RequestWith(ctx, f.target.client)
		if err != nil {
			return fmt.Errorf("create %d topics on %s: %w", n, f.cfg.To, err)
		}
		f.judgeCreation(ctx, list, req, resp)
	}
	return nil
}

// creationRecords bounds what one request makes: a KRaft controller writes it at once, a record for each topic, partition and
// config, and refuses more than 10,000 ("excessively large batch operation").
const creationRecords = 5_000

// madeAtOnce is how many of the topics, at least one, go into one request.
func madeAtOnce(topics []kmsg.CreateTopicsRequestTopic) int {
	records := 0
	for n, t := range topics {
		records += 1 + max(int(t.NumPartitions), len(t.ReplicaAssignment)) + len(t.Configs)
		if n > 0 && records > creationRecords {
			return n
		}
	}
	return len(topics)
}

// layOut copies the partition count, and, where both clusters look alike, the place of each replica: so the leader of a
// partition is the same virtual node on both.
func (f *Flow) layOut(t *kmsg.CreateTopicsRequestTopic, source *topicView) {
	from, to := f.source.view.Load(), f.target.view.Load()
	factor := len(to.brokers)
	for _, p := range source.partitions {
		factor = min(factor, len(p.replicas))
	}
	factor = max(factor, 1)
	if len(from.brokers) != len(to.brokers) || from.racks || to.racks {
		t.NumPartitions, t.ReplicationFactor = int32(len(source.partitions)), int16(factor)
		return
	}
	t.NumPartitions, t.ReplicationFactor = -1, -1
	for n, p := range source.partitions {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition = int32(n)
		a.Replicas = alike(p, from.brokers, to.brokers, n, factor)
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
}

// alike returns the brokers of to that stand where the partition's leader and replicas stand in from, leader first.
func alike(p partitionView, from, to []int32, n, factor int) []int32 {
	var out []int32
	add := func(broker int32) {
		if i, ok := slices.BinarySearch(from, broker); ok && len(out) < factor && !slices.Contains(out, to[i]) {
			out = append(out, to[i])
		}
	}
	add(p.leader)
	for _, r := range p.replicas {
		add(r)
	}
	for i := 0; len(out) < factor; i++ {
		add(from[(n+i)%len(from)])
	}
	return out
}

// judgeCreation notes what could not be made. Configs that the target does not know are left out, and listed; then the topic
// is asked for once more.
func (f *Flow) judgeCreation(ctx context.Context, list []*topicState, req *kmsg.CreateTopicsRequest, resp *kmsg.CreateTopicsResponse) {
	byTarget := map[string]*topicState{}
	for _, t := range list {
		byTarget[t.target] = t
	}
	for _, r := range resp.Topics {
		t := byTarget[r.Topic]
		if t == nil {
			continue
		}
		err := kerr.ErrorForCode(r.ErrorCode)
		if errors.Is(err, kerr.InvalidConfig) {
			err = f.createWithout(ctx, t, req)
		}
		t.trouble = nil
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			message := err.Error()
			if r.ErrorMessage != nil {
				message += ": " + *r.ErrorMessage
			}
			t.maxBytes = 0 // whoever makes it may give it another
			t.trouble = &trouble{"the topic cannot be made on the target: " + message, "make it there, or give our user the right to; it is tried again"}
		}
	}
}

// createWithout leaves out, one after the other, configs that the target refuses. After another error the topic is not made: it
// would lack, for good, a config that the target takes.
func (f *Flow) createWithout(ctx context.Context, t *topicState, all *kmsg.CreateTopicsRequest) error {
	i := slices.IndexFunc(all.Topics, func(one kmsg.CreateTopicsRequestTopic) bool { return one.Topic == t.target })
	if i < 0 {
		return kerr.InvalidConfig
	}
	one := all.Topics[i]
	configs := one.Configs
	ask := func(validate bool, with []kmsg.CreateTopicsRequestTopicConfig) error {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.TimeoutMillis, req.ValidateOnly = all.TimeoutMillis, validate
		one.Configs = with
		req.Topics = []kmsg.CreateTopicsRequestTopic{one}
		resp, err := req.RequestWith(ctx, f.target.client)
		if err != nil {
			return err
		}
		if len(resp.Topics) != 1 {
			return errNotAnswered
		}
		return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	var good []kmsg.CreateTopicsRequestTopicConfig
	for _, c := range configs {
		if err := ask(true, append(slices.Clone(good), c)); err != nil {
			if !errors.Is(err, kerr.InvalidConfig) {
				return err
			}
			f.log.Warn().Str("topic", t.virtual).Str("config", c.Name).Msg("the target does not take a config of the topic; it is left out")
			continue
		}
		good = append(good, c)
	}
	return ask(false, good)
}

// loadLimits reads configs of target topics of which they are not known: max.message.bytes, so that no batch is put together that
// they would not take; and the message format, because one without producer ids takes nothing of ours, not even the marker of a
// fence. That one is read again, so that the topic is copied once it was changed.
func (f *Flow) loadLimits(ctx context.Context, wanted map[string]bool) error {
	req := kmsg.NewPtrDescribeConfigsRequest()
	byTarget := map[string]*topicState{}
	f.mu.Lock()
	for virtual := range wanted {
		if t := f.topics[virtual]; (t.maxBytes == 0 || t.format != nil) && f.target.topic(t.target) != nil {
			r := kmsg.NewDescribeConfigsRequestResource()
			r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, t.target, []string{maxMessageBytes, batch.FormatConfig}
			req.Resources = append(req.Resources, r)
			byTarget[t.target] = t
		}
	}
	f.mu.Unlock()
	if len(byTarget) == 0 {
		return nil
	}
	resp, err := req.RequestWith(ctx, f.target.client)
	if err != nil {
		return fmt.Errorf("configs of %d topics on %s: %w", len(byTarget), f.cfg.To, err)
	}
	for _, r := range resp.Resources {
		t := byTarget[r.ResourceName]
		for _, c := range r.Configs {
			switch {
			case c.Value == nil || t == nil:
			case c.Name == batch.FormatConfig:
				t.format = f.unwritable(*c.Value)
			case c.Name == maxMessageBytes:
				if n, err := strconv.Atoi(*c.Value); err == nil {
					t.maxBytes = n
				}
			}
		}
	}
	return nil
}

// unwritable says why a topic of the target with this message format cannot be written; nil if it can.
func (f *Flow) unwritable(format string) *trouble {
	if !f.target.formats.Load() || !batch.OldFormat(format) {
		return nil
	}
	return &trouble{
		fmt.Sprintf("%s stores the topic in message format %s, which has no producer ids", f.cfg.To, format),
		fmt.Sprintf("set %s of the topic to %s or later there; it goes on by itself", batch.FormatConfig, batch.FirstFormat),
	}
}

const maxMessageBytes = "max.message.bytes"

// sourceConfigs reads what is set on the source's topics themselves. Timestamps stay as they are copied, whatever the target's
// default. A topic of which it cannot be read is stopped, and left out.
func (f *Flow) sourceConfigs(ctx context.Context, list []*topicState) (map[string]map[string]string, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	out, bySource := map[string]map[string]string{}, map[string]*topicState{}
	for _, t := range list {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, t.source
		req.Resources = append(req.Resources, r)
		out[t.source] = map[string]string{timestampType: "CreateTime"}
		bySource[t.source] = t
		if f.target.oldFormat.Load() {
			out[t.source][batch.FormatConfig] = batch.FirstFormat
		}
	}
	resp, err := req.RequestWith(ctx, f.source.client)
	if err != nil {
		return nil, fmt.Errorf("configs of %d topics on %s: %w", len(list), f.cfg.From, err)
	}
	for _, r := range resp.Resources {
		t := bySource[r.ResourceName]
		if t == nil {
			continue
		}
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			delete(out, t.source)
			t.trouble = &trouble{"the topic's configs cannot be read on the source: " + err.Error(), "our user needs DESCRIBE_CONFIGS on it; it is tried again"}
			continue
		}
		for _, c := range r.Configs {
			if c.Value == nil || c.IsSensitive || c.ReadOnly || !setOnTopic(&c) || notCopied(c.Name) {
				continue
			}
			out[t.source][c.Name] = *c.Value
		}
	}
	return out, nil
}

const timestampType = "message.timestamp.type"

// notCopied: configs that name brokers of one cluster, that Kafka 4 has no more, or that we set ourselves.
func notCopied(config string) bool {
	switch config {
	case timestampType, "leader.replication.throttled.replicas", "follower.replication.throttled.replicas",
		batch.FormatConfig, "message.downconversion.enable":
		return true
	}
	return false
}

// setOnTopic: not a broker's or Kafka's default.
func setOnTopic(c *kmsg.DescribeConfigsResponseResourceConfig) bool {
	return c.Source == kmsg.ConfigSourceDynamicTopicConfig
}

func (f *Flow) growTopics(ctx context.Context, grow map[*topicState]int) error {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 30_000
	byTarget := map[string]*topicState{}
	for t, n := range grow {
		one := kmsg.NewCreatePartitionsRequestTopic()
		one.Topic, one.Count = t.target, int32(n)
		req.Topics = append(req.Topics, one)
		byTarget[t.target] = t
	}
	resp, err := req.RequestWith(ctx, f.target.client)
	if err != nil {
		return fmt.Errorf("add partitions to %d topics on %s: %w", len(grow), f.cfg.To, err)
	}
	for _, r := range resp.Topics {
		t := byTarget[r.Topic]
		if t == nil {
			continue
		}
		t.trouble = nil
		// INVALID_PARTITIONS: there are as many already, and the metadata do not show it yet.
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil && !errors.Is(err, kerr.InvalidPartitions) {
			t.trouble = &trouble{
				fmt.Sprintf("the topic has %d partitions on the source and fewer on the target, which adds none: %v", grow[t], err),
				"add partitions on the target; it is tried again",
			}
		}
	}
	return nil
}
