package proxy

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/wire"
)

// Leader hints in Produce and Fetch answers (KIP-951): who leads now, and where it is. Both are shown as virtual nodes.

// tagLeader of a produced partition and tagFetchLeader of a fetched one; tagNodes of either answer.
const (
	tagLeader      = 0
	tagDiverging   = 0
	tagFetchLeader = 1
	tagSnapshot    = 2 // between controllers
	tagNodes       = 0
)

// shownLeader is a hint as clients see it; −1, −1 if it names nobody they know.
func (c *call) shownLeader(part *Partition, broker, epoch int32) (node, shown int32) {
	if node = c.route.nodeOf(broker); node < 0 {
		return -1, -1
	}
	return node, part.shownEpoch(epoch)
}

// showLeader passes the tagged fields of a partition on, with the leader's shown:
//
//	count | tag, size, (broker int32, epoch int32, tags) | other fields
func (c *call) showLeader(f fields, m *maker, part *Partition, leaderTag uint32) {
	c.showTags(f, m, func(tag uint32, size int) bool {
		if tag != leaderTag {
			return false
		}
		node, epoch := c.shownLeader(part, f.Int32(), f.Int32())
		m.int32(node)
		m.int32(epoch)
		copyBytes(f, m, size-8)
		return true
	})
}

// showFetchTags is showLeader for a fetched partition, where an epoch from which on the log differs may stand too.
func (c *call) showFetchTags(f fields, m *maker, part *Partition) {
	c.showTags(f, m, func(tag uint32, size int) bool {
		switch tag {
		case tagDiverging:
			m.int32(part.shownEpoch(f.Int32()))
			m.int64(part.shownOffset(f.Int64()))
			copyBytes(f, m, size-12)
		case tagFetchLeader:
			node, epoch := c.shownLeader(part, f.Int32(), f.Int32())
			m.int32(node)
			m.int32(epoch)
			copyBytes(f, m, size-8)
		case tagSnapshot:
			f.Skip(12)
			m.int64(-1)
			m.int32(-1)
			copyBytes(f, m, size-12)
		default:
			return false
		}
		return true
	})
}

// showTags passes tagged fields on. show writes a field anew, in the same length, or says that it does not.
func (c *call) showTags(f fields, m *maker, show func(tag uint32, size int) bool) {
	count := f.Uvarint()
	m.uvarint(int(count))
	for ; count > 0 && f.Err() == nil; count-- {
		tag, size := f.Uvarint(), int(f.Uvarint())
		m.uvarint(int(tag))
		m.uvarint(size)
		if !show(tag, size) {
			copyBytes(f, m, size)
		}
	}
}

// copyBytes passes n bytes on; fewer than none means that a field was shorter than it must be.
func copyBytes(f fields, m *maker, n int) {
	if n < 0 {
		f.Skip(n) // fails
		return
	}
	for n > 0 && f.Err() == nil {
		b := f.Peek(min(n, wire.BufferSize))
		m.b = append(m.b, b...)
		f.Skip(len(b))
		n -= len(b)
	}
}

// showNodes passes the tagged fields at the end of an answer on, with the addresses of nodes replaced by those that clients
// know.
func (c *call) showNodes(f fields, m *maker) {
	count := f.Uvarint()
	m.uvarint(int(count))
	for ; count > 0 && f.Err() == nil; count-- {
		tag, size := f.Uvarint(), int(f.Uvarint())
		m.uvarint(int(tag))
		if tag != tagNodes {
			m.uvarint(size)
			copyBytes(f, m, size)
			continue
		}
		nodes := maker{flexible: true}
		c.shownNodes(f, &nodes)
		m.uvarint(len(nodes.b))
		m.b = append(m.b, nodes.b...)
	}
}

// shownNodes reads real nodes and makes the virtual ones:
//
//	count | id int32, host, port int32, rack, tags
func (c *call) shownNodes(f fields, m *maker) {
	var ids []int32
	for n := f.array(); n > 0 && f.Err() == nil; n-- {
		ids = append(ids, f.Int32())
		f.str()
		f.Int32()
		f.str()
		f.tags()
	}
	ids = c.route.nodesOf(ids)
	m.array(len(ids))
	for _, node := range ids {
		host, port := c.s.p.advertised(node)
		m.int32(node)
		m.str([]byte(host))
		m.int32(port)
		m.str(nil)
		m.noTags()
	}
}

// showEndpoints is showNodes for an answer that is decoded.
func (c *call) showEndpoints(brokers []kmsg.ProduceResponseBroker) []kmsg.ProduceResponseBroker {
	var ids []int32
	for _, b := range brokers {
		ids = append(ids, b.NodeID)
	}
	var out []kmsg.ProduceResponseBroker
	for _, node := range c.route.nodesOf(ids) {
		b := kmsg.NewProduceResponseBroker()
		b.NodeID = node
		b.Host, b.Port = c.s.p.advertised(node)
		out = append(out, b)
	}
	return out
}

// fitTags makes the tagged fields at the end of an answer exactly size bytes long, because the length of the frame has been
// told: shown is what they should be. What is missing is filled with a field that nobody knows, which all clients skip;
// what is too long is left out, the client then asks for metadata.
func fitTags(shown []byte, count, size int) []byte {
	if len(shown) == size {
		return shown
	}
	if count < 0x7f && len(shown) < size {
		if fill := filler(size - len(shown)); fill != nil {
			out := append(bytes.Clone(shown), fill...)
			out[0] = byte(count + 1)
			return out
		}
	}
	return append([]byte{1}, filler(size-1)...)
}

// filler is one tagged field of exactly n bytes; nil if there is none.
func filler(n int) []byte {
	for _, tag := range []int{100, 10_000, 1_000_000} { // varints of one, two and three bytes
		m := maker{}
		m.uvarint(tag)
		left, sizeBytes := n-len(m.b), 1
		for left-sizeBytes >= 1<<(7*sizeBytes) {
			sizeBytes++
		}
		if left < sizeBytes || wire.UvarintSize(uint32(left-sizeBytes)) != sizeBytes {
			continue
		}
		m.uvarint(left - sizeBytes)
		return append(m.b, make([]byte, left-sizeBytes)...)
	}
	return nil
}
