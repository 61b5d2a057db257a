package control

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/translate"
)

// fold reads a control partition from its start, batch by batch, and keeps what counts. It is pure.
//
// A record counts only if it is of the newest marker's producer id and epoch so far and its sequence is the next one. The
// cleaner makes holes, and each hole may hide what the rule needs, so directly behind a hole in the offsets it is
// relaxed: a higher sequence of the same epoch is the next one (batches between were removed), a higher epoch or an id
// not seen before has had its marker (a writer writes only behind its own). An id or epoch that was superseded never
// comes back, whatever lies between.
type fold struct {
	codecs *batch.Codecs

	owned      bool // there was a marker, or a hole that hid one
	producerID int64
	epoch      int16
	sequence   int32          // next one expected
	superseded map[int64]bool // producer ids that a later one took the place of

	end     int64 // the offset that follows what was read; 0 before the first batch
	values  map[string][]byte
	ignored int // batches that did not count
}

func newFold() *fold {
	return &fold{codecs: batch.NewCodecs(maxRecordBytes), superseded: make(map[int64]bool), values: make(map[string][]byte)}
}

// maxRecordBytes bounds one batch of the control topic, also decompressed.
const maxRecordBytes = 16 << 20

// add takes the next batch; batches below end (a broker answers with whole batches) were seen before. marker is set if
// it ended a transaction of that producer.
func (f *fold) add(b []byte) (marker bool, err error) {
	if err := batch.Valid(b); err != nil {
		return false, err
	}
	h := batch.Header(b)
	if h.NextOffset() <= f.end {
		return false, nil
	}
	hole := h.BaseOffset() > f.end
	f.end = h.NextOffset()
	if h.Control() {
		return f.control(b)
	}
	if !f.counts(h, hole) {
		f.ignored++
		return false, nil
	}
	f.sequence = nextSequence(h.FirstSequence(), h.LastOffsetDelta())
	return false, f.keep(b)
}

func nextSequence(first, lastDelta int32) int32 {
	return int32((int64(first) + int64(lastDelta) + 1) % (math.MaxInt32 + 1))
}

func (f *fold) control(b []byte) (marker bool, err error) {
	kind, _, err := batch.ControlType(b)
	if errors.Is(err, batch.ErrNoMarker) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if kind != batch.Abort && kind != batch.Commit {
		return false, nil
	}
	h := batch.Header(b)
	id, epoch := h.ProducerID(), h.ProducerEpoch()
	switch {
	case f.superseded[id] || f.owned && id == f.producerID && epoch < f.epoch:
		f.ignored++
		return false, nil
	case f.owned && id == f.producerID && epoch == f.epoch: // the coordinator may write a marker twice
		return true, nil
	}
	f.own(id, epoch, 0)
	return true, nil
}

func (f *fold) own(id int64, epoch int16, sequence int32) {
	if f.owned && id != f.producerID {
		f.superseded[f.producerID] = true
	}
	f.owned, f.producerID, f.epoch, f.sequence = true, id, epoch, sequence
}

func (f *fold) counts(h batch.Header, hole bool) bool {
	id, epoch, sequence := h.ProducerID(), h.ProducerEpoch(), h.FirstSequence()
	if id < 0 || h.Transactional() || f.superseded[id] {
		return false
	}
	if f.owned && id == f.producerID && epoch == f.epoch {
		return sequence == f.sequence || hole && sequence > f.sequence
	}
	if !hole || f.owned && id == f.producerID && epoch < f.epoch {
		return false
	}
	f.own(id, epoch, sequence)
	return true
}

// keep copies the records of a batch that counts.
func (f *fold) keep(b []byte) error {
	records, err := f.codecs.Decode(b)
	if err != nil {
		return fmt.Errorf("offset %d: %w", batch.Header(b).BaseOffset(), err)
	}
	for _, r := range records {
		if r.Value == nil {
			delete(f.values, string(r.Key))
			continue
		}
		f.values[string(r.Key)] = append([]byte(nil), r.Value...)
	}
	return nil
}

// snapshot decodes what is kept of one virtual cluster, with the eras of every generation. A record that cannot be read is an error: to serve without it
// would be a guess.
func (f *fold) snapshot(vc string) (Snapshot, error) {
	s := Snapshot{Topics: make(map[string]Topic), Groups: make(map[string]Group)}
	for key, value := range f.values {
		kind, rest, _ := strings.Cut(key, "/")
		owner, name, _ := strings.Cut(rest, "/")
		if owner != vc {
			continue
		}
		if err := s.put(kind, vc, name, value); err != nil {
			return Snapshot{}, fmt.Errorf("record %q: %w", key, err)
		}
	}
	return s, nil
}

func (s *Snapshot) put(kind, vc, name string, value []byte) (err error) {
	switch kind {
	case "state":
		if s.State, err = decodeState(value); err == nil && s.State.VirtualCluster != vc {
			err = fmt.Errorf("it is of virtual cluster %q", s.State.VirtualCluster)
		}
	case "topic":
		var t Topic
		if t, err = decodeTopic(value); err == nil && t.Name != name {
			err = fmt.Errorf("it is of topic %q", t.Name)
		}
		s.Topics[name] = t
	case "group":
		var g Group
		if g, err = decodeGroup(value); err == nil && g.Name != name {
			err = fmt.Errorf("it is of group %q", g.Name)
		}
		s.Groups[name] = g
	}
	return err
}

// upTo leaves out eras above generation g, which belong to a move that is not committed, and topics of which nothing is
// left.
func (s Snapshot) upTo(g translate.Generation) Snapshot {
	for name, t := range s.Topics {
		kept := make([][]Era, 0, len(t.Partitions))
		for _, eras := range t.Partitions {
			n := 0
			for n < len(eras) && eras[n].Generation <= g {
				n++
			}
			if n == 0 {
				break
			}
			kept = append(kept, eras[:n:n])
		}
		if len(kept) == 0 {
			delete(s.Topics, name)
			continue
		}
		t.Partitions = kept
		s.Topics[name] = t
	}
	return s
}
