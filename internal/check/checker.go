package check

import (
	"fmt"
	"sync"
)

// Config says what the run should have been.
type Config struct {
	// Readers that must have read everything in their topics. A reader in the logs that is not listed here is held to the
	// topics that it read from or, if Partial names it, to nothing.
	Readers []Reader
	// Partial names readers that need not have read everything, for example because they started late.
	Partial []string
	// Direct names clients that read a cluster itself, not through the proxy: their offsets are in another numbering, so only
	// the identity of what they read is judged. Their group goes on being one reader with its members at the proxy.
	Direct []string
	// ExampleLimit bounds how many examples of each fault the report holds. Default 5.
	ExampleLimit int
}

// Reader is one logical reader of topics: a group, or a client that assigns itself.
type Reader struct {
	Name   string
	Topics []string
}

// Checker digests events; see the package comment. Use New.
type Checker struct {
	mu sync.Mutex // guards everything below

	config  Config
	partial map[string]bool
	direct  map[string]bool

	topics  map[string]*topic
	topicOf []*topic // by dense partition number

	producers    map[string]*producer
	producerByID []*producer
	readers      map[string]*reader
	readerByID   []*reader
	clients      map[string]*client
	others       map[recordKey][]sighting // sightings at a place that is not the record's first one; few in a good run
	window       window
	reads        int64
	errors       int64
	examples     map[string][]string
	lastProducer *producer // of the last event: saves a look-up
	lastTopic    *topic
	lastReader   *reader
}

// topic gives its partitions numbers that are dense over all topics.
type topic struct {
	name       string
	partitions map[int32]int32
}

// place is where a record lies: a partition by its dense number, and an offset.
type place struct {
	partition int32
	offset    int64
}

type recordKey struct {
	producer int32
	seq      int64
}

// sighting: reader read a record at a place other than the first where anyone saw it. first says that it was this reader's
// first sighting of the record.
type sighting struct {
	reader int32
	first  bool
	at     place
}

// client is what is known of a client by name.
type client struct {
	stopping, stopped bool
}

// New returns a checker without events.
func New(config Config) *Checker {
	if config.ExampleLimit == 0 {
		config.ExampleLimit = 5
	}
	c := &Checker{
		config:    config,
		partial:   setOf(config.Partial),
		direct:    setOf(config.Direct),
		topics:    make(map[string]*topic),
		producers: make(map[string]*producer),
		readers:   make(map[string]*reader),
		clients:   make(map[string]*client),
		others:    make(map[recordKey][]sighting),
		examples:  make(map[string][]string),
	}
	for _, r := range config.Readers {
		expected := c.readerNamed(r.Name)
		for _, name := range r.Topics {
			expected.topics[c.topicNamed(name)] = true
		}
	}
	return c
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// Add digests one event.
func (c *Checker) Add(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Kind {
	case Sent, Acked, Failed:
		c.client(e.Producer)
		c.produced(&e)
	case Read:
		c.client(e.Client)
		c.read(&e)
	case Committed:
		c.client(e.Client)
		c.committed(&e)
	case Assigned, Revoked, Lost:
		c.rebalanced(&e)
	case Error:
		c.client(e.Client)
		c.errors++
		c.example("error", "%s at %d: %s", e.Client, e.Millis, e.Text)
	case Stopping:
		c.client(e.Client).stopping = true
	case Stopped:
		c.client(e.Client).stopping = true
		c.client(e.Client).stopped = true
	case Mark:
		c.mark(e.Text, e.Millis)
	}
}

func (c *Checker) mark(text string, millis int64) {
	if text == MarkStart {
		c.window.start, c.window.hasStart = millis, true
		return
	}
	c.window.end, c.window.hasEnd = millis, true
}

func (c *Checker) client(name string) *client {
	known := c.clients[name]
	if known == nil {
		known = &client{}
		c.clients[name] = known
	}
	return known
}

func (c *Checker) topicNamed(name string) *topic {
	if c.lastTopic != nil && c.lastTopic.name == name {
		return c.lastTopic
	}
	t := c.topics[name]
	if t == nil {
		t = &topic{name: name, partitions: make(map[int32]int32)}
		c.topics[name] = t
	}
	c.lastTopic = t
	return t
}

func (c *Checker) place(e *Event) (*topic, place) {
	t := c.topicNamed(e.Topic)
	number, ok := t.partitions[e.Partition]
	if !ok {
		number = int32(len(c.topicOf))
		c.topicOf = append(c.topicOf, t)
		t.partitions[e.Partition] = number
	}
	return t, place{partition: number, offset: e.Offset}
}

// placeName is for examples only: it searches.
func (c *Checker) placeName(p place) string {
	t := c.topicOf[p.partition]
	for partition, number := range t.partitions {
		if number == p.partition {
			return fmt.Sprintf("%s-%d offset %d", t.name, partition, p.offset)
		}
	}
	return "nowhere"
}

func (c *Checker) example(fault, format string, args ...any) {
	if len(c.examples[fault]) < c.config.ExampleLimit {
		c.examples[fault] = append(c.examples[fault], fmt.Sprintf(format, args...))
	}
}
