package journal

import (
	"fmt"

	"github.com/switchback-proxy/switchback/translate"
)

// Owner is the identity that the owner of a slot writes under: the producer id and epoch of its fence.
type Owner struct {
	ID    int64
	Epoch int16
}

// Newer says that o fenced e: the same producer id with a higher epoch. Owners with other ids have no order.
func (o Owner) Newer(e Owner) bool { return o.ID == e.ID && o.Epoch > e.Epoch }

// Claim says what is about to be written, before it is written. A claim without records only moves the frontier.
//
// Encoded:
//
//	byte     1        version: 1
//	uvarint           virtual start
//	uvarint           records (0: only reach advances)
//	uvarint           reach − virtual start: the frontier after it; what is left after the records is a known gap
//	uvarint           producer id
//	uvarint           producer epoch
//	uvarint           first sequence
//	uvarint           predicted physical offset + 1 (a hint; 0: none)
//	uvarint           confirmed sequence + 1 (0: nothing confirmed under this owner)
//	uvarint           confirmed physical offset + 1: where the batch with the confirmed sequence landed
//	uvarint           time of the claim, ms since 1970
//	uvarint           number of source batches; for each:
//	  uvarint           virtual base
//	  uvarint           records
//	  uvarint           producer id as clients see it
//	  uvarint           producer epoch
//	  uvarint           first sequence
//	uvarint           number of epoch starts; for each:
//	  uvarint           epoch as clients see it
//	  uvarint           virtual start
//
// Version rule: a reader refuses a version that it does not know; any change of the layout takes a new number.
type Claim struct {
	Virtual   translate.Virtual
	Records   int32
	Reach     translate.Virtual
	Owner     Owner
	Sequence  int32
	Predicted translate.Physical // −1: none

	ConfirmedSequence int32 // −1: none
	ConfirmedOffset   translate.Physical

	AtMillis int64
	Sources  []Source
	Epochs   []translate.EpochStart

	// From a later claim, while the journal is read: where this one landed. Not encoded.
	confirmed bool
	landedAt  translate.Physical
}

// Source is an idempotent batch of the source, by which a retry of it is recognised.
type Source struct {
	Virtual  translate.Virtual
	Records  int32
	ID       int64 // as clients see it
	Epoch    int16
	Sequence int32
}

const claimVersion = 1

// Encode appends the claim to b.
func (c *Claim) Encode(b []byte) []byte {
	b = append(b, claimVersion)
	b = putUint(b, c.Virtual)
	b = putUint(b, c.Records)
	b = putUint(b, c.Reach-c.Virtual)
	b = putUint(b, c.Owner.ID)
	b = putUint(b, c.Owner.Epoch)
	b = putUint(b, c.Sequence)
	b = putOptional(b, c.Predicted)
	b = putOptional(b, c.ConfirmedSequence)
	b = putOptional(b, c.ConfirmedOffset)
	b = putUint(b, c.AtMillis)
	b = putUint(b, len(c.Sources))
	for _, s := range c.Sources {
		b = putUint(b, s.Virtual)
		b = putUint(b, s.Records)
		b = putUint(b, s.ID)
		b = putUint(b, s.Epoch)
		b = putUint(b, s.Sequence)
	}
	b = putUint(b, len(c.Epochs))
	for _, e := range c.Epochs {
		b = putUint(b, e.Epoch)
		b = putUint(b, e.Start)
	}
	return b
}

// DecodeClaim decodes what Encode made; b is not kept.
func DecodeClaim(b []byte) (*Claim, error) {
	r := open(b, claimVersion)
	c := &Claim{Virtual: r.virtual(), Records: r.int32()}
	c.Reach = c.Virtual + r.virtual()
	c.Owner = Owner{r.int64(), r.int16()}
	c.Sequence = r.int32()
	c.Predicted = translate.Physical(r.optional())
	c.ConfirmedSequence = int32(r.in(1<<31)) - 1
	c.ConfirmedOffset = translate.Physical(r.optional())
	c.AtMillis = r.int64()
	for range r.count(5) {
		c.Sources = append(c.Sources, Source{r.virtual(), r.int32(), r.int64(), r.int16(), r.int32()})
	}
	for range r.count(2) {
		e := translate.Epoch(r.int32())
		c.Epochs = append(c.Epochs, translate.EpochStart{Epoch: e, Start: r.virtual()})
	}
	if c.Reach < c.End() || c.Reach > translate.MaxOffset {
		r.fail(errNumber)
	}
	if err := r.finish(); err != nil {
		return nil, fmt.Errorf("decode claim: %w", err)
	}
	return c, nil
}

func (r *reader) virtual() translate.Virtual { return translate.Virtual(r.in(translate.MaxOffset)) }

// End is the virtual end of the records (exclusive).
func (c *Claim) End() translate.Virtual { return c.Virtual + translate.Virtual(c.Records) }

// NextSequence is the sequence after n records from first; sequences wrap from the largest int32 to 0.
func NextSequence(first int32, n int64) int32 { return int32((int64(first) + n) & 0x7fffffff) }

// ahead is how far seq lies in front of next, in (−2^30, 2^30].
func ahead(seq, next int32) int64 {
	d := (int64(seq) - int64(next)) & 0x7fffffff
	if d > 1<<30 {
		d -= 1 << 31
	}
	return d
}
