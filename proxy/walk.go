package proxy

import (
	"encoding/binary"

	"github.com/switchback-proxy/switchback/internal/wire"
)

// Produce and Fetch are walked field by field, so that record bytes are never held and nothing is allocated per partition.
// Flexible versions have compact lengths and tagged fields, the others have neither.

// fields reads a message in one of the two encodings.
type fields struct {
	*wire.Reader
	flexible bool
}

// str is a view; nil for null.
func (f fields) str() []byte {
	if f.flexible {
		return f.CompactString()
	}
	return f.String()
}

// array is the number of elements; −1 for null.
func (f fields) array() int {
	if f.flexible {
		return f.CompactArrayLen()
	}
	return f.ArrayLen()
}

// bytes is the length of a byte string that follows; −1 for null.
func (f fields) bytes() int {
	if f.flexible {
		return int(f.Uvarint()) - 1
	}
	return int(f.Int32())
}

func (f fields) tags() {
	if f.flexible {
		f.SkipTags()
	}
}

// maker appends a message in one of the two encodings.
type maker struct {
	b        []byte
	flexible bool
}

func (m *maker) int8(v int8)     { m.b = append(m.b, byte(v)) }
func (m *maker) int16(v int16)   { m.b = binary.BigEndian.AppendUint16(m.b, uint16(v)) }
func (m *maker) int32(v int32)   { m.b = binary.BigEndian.AppendUint32(m.b, uint32(v)) }
func (m *maker) int64(v int64)   { m.b = binary.BigEndian.AppendUint64(m.b, uint64(v)) }
func (m *maker) uuid(v [16]byte) { m.b = append(m.b, v[:]...) }
func (m *maker) uvarint(v int)   { m.b = binary.AppendUvarint(m.b, uint64(v)) }

func (m *maker) array(n int) {
	if m.flexible {
		m.uvarint(n + 1)
	} else {
		m.int32(int32(n))
	}
}

func (m *maker) str(v []byte) {
	switch {
	case m.flexible && v == nil:
		m.uvarint(0)
	case m.flexible:
		m.uvarint(len(v) + 1)
	case v == nil:
		m.int16(-1)
	default:
		m.int16(int16(len(v)))
	}
	m.b = append(m.b, v...)
}

func (m *maker) noTags() {
	if m.flexible {
		m.b = append(m.b, 0)
	}
}

// copyTags passes tagged fields on, but for those below drop.
func (m *maker) copyTags(f fields, drop uint32) {
	if !f.flexible {
		return
	}
	count := int(f.Uvarint())
	countAt := len(m.b)
	m.uvarint(0)
	kept := 0
	for ; count > 0 && f.Err() == nil; count-- {
		tag, size := f.Uvarint(), int(f.Uvarint())
		if tag < drop {
			f.Skip(size)
			continue
		}
		kept++
		m.uvarint(int(tag))
		m.uvarint(size)
		m.b = append(m.b, f.Peek(size)...)
		f.Skip(size)
	}
	if kept < 0x80 {
		m.b[countAt] = byte(kept)
	}
}

// names remembers, for one goroutine of a session, how topics are called, so that nothing is made anew for each call.
type names struct {
	route      *Route
	toPhysical map[string][]byte // nil value: clients do not see it
	toVirtual  map[string][]byte // nil value: clients do not see it
	kept       map[string]string // names as they are
}

// Names that clients make up must not fill the memory.
const (
	enoughNames = 10_000
	longestName = 249 // bytes; no cluster has a topic of a longer one
)

func (n *names) of(route *Route) {
	if n.route != route || len(n.toPhysical)+len(n.toVirtual)+len(n.kept) > enoughNames {
		*n = names{route: route, toPhysical: make(map[string][]byte), toVirtual: make(map[string][]byte), kept: make(map[string]string)}
	}
}

// keep is a name that stays valid.
func (n *names) keep(c *call, name []byte) string {
	n.of(c.route)
	known, ok := n.kept[string(name)]
	if !ok {
		known = string(name)
		if len(name) <= longestName {
			n.kept[known] = known
		}
	}
	return known
}

// physical is the name on the cluster; nil if clients do not see such a topic. The result must not be changed.
func (n *names) physical(c *call, virtual []byte) []byte {
	n.of(c.route)
	if known, ok := n.toPhysical[string(virtual)]; ok {
		return known
	}
	var made []byte
	if name := c.topicToPhysical(string(virtual)); name != "" {
		made = []byte(name)
	}
	if len(virtual) <= longestName {
		n.toPhysical[string(virtual)] = made
	}
	return made
}

// virtual is the name that clients see; nil if they do not see the topic. The result must not be changed.
func (n *names) virtual(c *call, physical []byte) []byte {
	n.of(c.route)
	if known, ok := n.toVirtual[string(physical)]; ok {
		return known
	}
	var made []byte
	if name, ok := c.topicToVirtual(string(physical)); ok {
		made = []byte(name)
	}
	if len(physical) <= longestName {
		n.toVirtual[string(physical)] = made
	}
	return made
}
