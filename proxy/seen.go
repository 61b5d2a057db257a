package proxy

import (
	"sync"
	"sync/atomic"
)

// watermarks are the high watermarks (virtual, exclusive) that clients were last shown, for answers that are made here.
type watermarks struct {
	mu     sync.RWMutex // guards both maps
	byName map[string]*topicMarks
	byID   map[[16]byte]*topicMarks // virtual ids
}

// topicMarks are those of one topic, by partition; 0: not seen.
type topicMarks struct {
	marks atomic.Pointer[[]atomic.Int64]
	mu    sync.Mutex // guards growing
}

// find finds a topic, by name or, if that is nil, by id; nil if nothing was shown of it. Clients make names up, so looking
// for one keeps nothing.
func (w *watermarks) find(name []byte, id [16]byte) *topicMarks {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if name != nil {
		return w.byName[string(name)]
	}
	return w.byID[id]
}

// topic is find, making one.
func (w *watermarks) topic(name []byte, id [16]byte) *topicMarks {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byName == nil {
		w.byName, w.byID = make(map[string]*topicMarks), make(map[[16]byte]*topicMarks)
	}
	if name != nil {
		t := w.byName[string(name)]
		if t == nil {
			t = &topicMarks{}
			w.byName[string(name)] = t
		}
		return t
	}
	t := w.byID[id]
	if t == nil {
		t = &topicMarks{}
		w.byID[id] = t
	}
	return t
}

// seenTopic is one topic of an answer, called as the client does.
type seenTopic struct {
	name  []byte // nil: by id
	id    [16]byte
	marks *topicMarks // nil: nothing was shown of it yet
}

// note keeps the high watermark of a partition. A broker that does not know the topic has none.
func (w *watermarks) note(t *seenTopic, partition int32, hw int64) {
	if hw < 0 || partition < 0 || partition >= maxMarked {
		return
	}
	if t.marks == nil {
		t.marks = w.topic(t.name, t.id)
	}
	t.marks.note(partition, hw)
}

// maxMarked bounds what a partition number can cost.
const maxMarked = 100_000

func (t *topicMarks) note(partition int32, hw int64) {
	marks := t.marks.Load()
	if marks == nil || int(partition) >= len(*marks) {
		marks = t.grow(int(partition))
	}
	(*marks)[partition].Store(hw)
}

func (t *topicMarks) grow(partition int) *[]atomic.Int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.marks.Load()
	if old != nil && partition < len(*old) {
		return old
	}
	grown := make([]atomic.Int64, partition+1)
	if old != nil {
		for i := range *old {
			grown[i].Store((*old)[i].Load())
		}
	}
	t.marks.Store(&grown)
	return &grown
}

// get is the high watermark of a partition; 0 if none was shown. t may be nil.
func (t *topicMarks) get(partition int32) int64 {
	if t == nil {
		return 0
	}
	marks := t.marks.Load()
	if marks == nil || partition < 0 || int(partition) >= len(*marks) {
		return 0
	}
	return (*marks)[partition].Load()
}
