package translate

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"
)

// History is the virtual leader-epoch history of one partition: which epoch clients see from which virtual offset on. It
// covers all eras, and never goes down. A History is immutable; the zero History knows nothing.
//
// Invariants: epochs are ≥ 0 and strictly rising, starts are ≥ 0 and strictly rising.
type History struct {
	entries []EpochStart
}

// EpochStart says that the records from Start on have Epoch, up to the next entry.
type EpochStart struct {
	Epoch Epoch
	Start Virtual
}

// Append adds an epoch that begins at start. An epoch that is not above the last is ignored. Entries at or above start
// are dropped, because their epochs have no records left (as brokers do it); it is how the same start replaces.
func (h History) Append(e Epoch, start Virtual) History {
	if e <= h.Last() || start < 0 {
		return h
	}
	keep := len(h.entries)
	for keep > 0 && h.entries[keep-1].Start >= start {
		keep--
	}
	return History{entries: append(slices.Clip(h.entries[:keep]), EpochStart{e, start})}
}

// At is the epoch of the record at v; UnknownEpoch below the first entry.
func (h History) At(v Virtual) Epoch {
	i, found := slices.BinarySearchFunc(h.entries, v, func(e EpochStart, v Virtual) int { return cmp.Compare(e.Start, v) })
	if found {
		return h.entries[i].Epoch
	}
	if i == 0 {
		return UnknownEpoch
	}
	return h.entries[i-1].Epoch
}

// EndOf answers OffsetForLeaderEpoch as a broker does: the largest epoch at or below e and its end (exclusive), which is the
// start of the next epoch, or logEnd for the last. So the end of an era is the start of the next, also over the hole of a
// forced move: an answer that is lower makes Java and librdkafka clients stop for good. An epoch below the first is answered
// with itself and the first start. ok is false, and nothing is known, for e < 0, for an empty history and for an epoch
// above the last: it may have been shown and not reached us yet, so this is a retriable error and not an end.
func (h History) EndOf(e Epoch, logEnd Virtual) (epoch Epoch, end Virtual, ok bool) {
	if e < 0 || e > h.Last() {
		return UnknownEpoch, -1, false
	}
	i, found := slices.BinarySearchFunc(h.entries, e, func(s EpochStart, e Epoch) int { return cmp.Compare(s.Epoch, e) })
	if found {
		i++
	}
	epoch = e // i is the first entry above e
	if i > 0 {
		epoch = h.entries[i-1].Epoch
	}
	if i == len(h.entries) {
		return epoch, logEnd, true
	}
	return epoch, h.entries[i].Start, true
}

// Last is the highest epoch; UnknownEpoch if there is none.
func (h History) Last() Epoch {
	if len(h.entries) == 0 {
		return UnknownEpoch
	}
	return h.entries[len(h.entries)-1].Epoch
}

// Len is the number of entries.
func (h History) Len() int { return len(h.entries) }

// All yields the entries, oldest first.
func (h History) All() iter.Seq[EpochStart] { return slices.Values(h.entries) }

// AppendBinary appends the encoded history to dst:
//
//	offset  bytes    field
//	0       1        format: 129 = history, version 1
//	1       uvarint  number of entries
//	                 for each entry, oldest first:
//	        uvarint    epoch − (epoch of the one before + 1)      (before the first: −1)
//	        uvarint    start − (start of the one before + 1)      (before the first: −1)
//	end−4   4        CRC32C of all before, big endian
func (h History) AppendBinary(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, formatHistory)
	dst = binary.AppendUvarint(dst, uint64(len(h.entries)))
	before := EpochStart{-1, -1}
	for _, e := range h.entries {
		dst = binary.AppendUvarint(dst, uint64(e.Epoch-before.Epoch-1))
		dst = binary.AppendUvarint(dst, uint64(e.Start-before.Start-1))
		before = e
	}
	return seal(dst, start)
}

// DecodeHistory decodes what AppendBinary made. Memory is bounded by a small multiple of len(b), which is not kept.
func DecodeHistory(b []byte) (History, error) {
	d := openDecoder(b, formatHistory)
	count := d.count(2)
	h := History{entries: make([]EpochStart, 0, count)}
	before := EpochStart{-1, -1}
	for range count {
		epoch := d.offset(int64(before.Epoch) + 1)
		if epoch > math.MaxInt32 {
			d.fail(errNumber)
		}
		before = EpochStart{Epoch(epoch), Virtual(d.offset(int64(before.Start) + 1))}
		h.entries = append(h.entries, before)
	}
	if err := d.finish(); err != nil {
		return History{}, fmt.Errorf("decode epoch history: %w", err)
	}
	return h, nil
}

// EpochMargin lies between the highest epoch shown so far and the first of a new era. The shift of the new era is fixed
// while the old active still serves, so its epoch may rise, by an election or two, before the switch; what it then shows
// must stay below the new era.
const EpochMargin = 16

// Shift belongs to one native segment: shown epoch = real epoch + shift.
type Shift int32

// ShiftFor returns the shift of a new era, given the highest epoch ever shown for the partition and the target's real epoch
// now. Real epochs only rise, so the era's first shown epoch is above highestShown + EpochMargin. It is never negative, so
// that no known epoch is shown as an unknown one.
func ShiftFor(highestShown Epoch, targetReal RealEpoch) Shift {
	first := int64(max(highestShown, UnknownEpoch)) + 1 + EpochMargin
	return Shift(min(max(first-int64(max(targetReal, 0)), 0), math.MaxInt32))
}

// Show is the epoch that clients see. Unknown stays unknown.
func (s Shift) Show(e RealEpoch) Epoch {
	if e < 0 {
		return UnknownEpoch
	}
	return Epoch(min(int64(e)+int64(s), math.MaxInt32))
}

// Real is the epoch that the cluster has for a shown one of this era. Unknown stays unknown, and an epoch that is too low
// to be of this era becomes unknown: a cluster is never asked about an epoch that it did not issue.
func (s Shift) Real(e Epoch) RealEpoch {
	if e < 0 || int64(e) < int64(s) {
		return -1
	}
	return RealEpoch(int64(e) - int64(s))
}
