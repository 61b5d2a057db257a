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

// topic finds a topic, by name or, if that is nil, by id.
func (w *watermarks) topic(name []byte, id [16]byte) *topicMarks {
	w.mu.RLock()
	var t *topicMarks
	if name != nil {
		t = w.byName[string(name)]
	} else {
		t = w.byID[id]
	}
	w.mu.RUnlock()
	if t != nil {
		return t
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byName == nil {
		w.byName, w.byID = make(map[string]*topicMarks), make(map[[16]byte]*topicMarks)
	}
	if name != nil {
		if t = w.byName[string(name)]; t == nil {
			t = &topicMarks{}
			w.byName[string(name)] = t
		}
		return t
	}
	if t = w.byID[id]; t == nil {
		t = &topicMarks{}
		w.byID[id] = t
	}
	return t
}

// maxMarked bounds what a partition number can cost.
const maxMarked = 100_000

func (t *topicMarks) note(partition int32, hw int64) {
	if hw < 0 || partition < 0 || partition >= maxMarked {
		return
	}
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

func (t *topicMarks) get(partition int32) int64 {
	marks := t.marks.Load()
	if marks == nil || partition < 0 || int(partition) >= len(*marks) {
		return 0
	}
	return (*marks)[partition].Load()
}
