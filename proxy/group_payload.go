package proxy

import (
	"encoding/binary"
)

// What members of a consumer group tell each other in JoinGroup and SyncGroup names topics. Brokers store it and hand it
// out to tools, so it has physical names there. Layouts, all big endian, string = int16 length + bytes:
//
//	subscription  int16 version · int32 n · n × string topic · int32 length (-1: null) · user data ·
//	              from version 1: int32 n · n × (string topic · int32 m · m × int32 partition) · what newer versions add
//	assignment    int16 version · int32 n · n × (string topic · int32 m · m × int32 partition) · user data and the rest
//
// Later versions only add at the end. User data belongs to the assignor: it is handed on unread, and so are payloads of
// other protocol types ("connect", …).

// consumerProtocol is the protocol type of consumers.
const consumerProtocol = "consumer"

// rename gives the other name of a topic; ok is false for one that is to be left out.
type rename func(topic string) (name string, ok bool)

// renameSubscription returns the subscription with other topic names, p itself if it cannot be read.
func renameSubscription(p []byte, to rename) []byte {
	r := payload{in: p, to: to, out: make([]byte, 0, len(p)+64)}
	version := r.int16()
	r.topics()
	r.data()
	if version >= 1 && len(r.in) > 0 { // a client may leave the field out
		r.partitions()
	}
	return r.done(p)
}

// renameAssignment returns the assignment with other topic names, p itself if it cannot be read.
func renameAssignment(p []byte, to rename) []byte {
	r := payload{in: p, to: to, out: make([]byte, 0, len(p)+64)}
	r.int16()
	r.partitions()
	return r.done(p)
}

// payload copies from in to out and renames on the way. Once bad, nothing more is read.
type payload struct {
	in, out []byte
	to      rename
	bad     bool
}

func (r *payload) done(whole []byte) []byte {
	if r.bad {
		return whole
	}
	return append(r.out, r.in...)
}

// take returns the next n bytes of in, which are not yet in out; nil if there are fewer.
func (r *payload) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.in) {
		r.bad = true
		return nil
	}
	b := r.in[:n]
	r.in = r.in[n:]
	return b
}

func (r *payload) int16() int16 {
	b := r.take(2)
	r.out = append(r.out, b...)
	if b == nil {
		return 0
	}
	return int16(binary.BigEndian.Uint16(b))
}

func (r *payload) count() int {
	b := r.take(4)
	if b == nil {
		return 0
	}
	return int(int32(binary.BigEndian.Uint32(b)))
}

func (r *payload) name() string {
	b := r.take(2)
	if b == nil {
		return ""
	}
	return string(r.take(int(int16(binary.BigEndian.Uint16(b)))))
}

// topics copies an array of names; partitions one of names with partitions.
func (r *payload) topics() { r.array(func() []byte { return nil }) }

func (r *payload) partitions() {
	r.array(func() []byte {
		rest := r.in
		n := r.count()
		r.bad = r.bad || n < 0 || n > len(r.in)/4
		if r.bad {
			return nil
		}
		r.take(4 * n)
		return rest[:4+4*n]
	})
}

// array copies an array whose elements are a name and what tail returns. Elements that have no other name are left out.
func (r *payload) array(tail func() []byte) {
	n := r.count()
	if n < 0 || n > len(r.in)/2 {
		r.bad = true
		return
	}
	at := len(r.out)
	r.out = append(r.out, 0, 0, 0, 0)
	kept := uint32(0)
	for range n {
		name := r.name()
		rest := tail()
		if r.bad {
			return
		}
		other, ok := r.to(name)
		if !ok {
			continue
		}
		kept++
		r.out = binary.BigEndian.AppendUint16(r.out, uint16(len(other)))
		r.out = append(append(r.out, other...), rest...)
	}
	binary.BigEndian.PutUint32(r.out[at:], kept)
}

// data copies nullable bytes.
func (r *payload) data() {
	rest := r.in
	n := r.count()
	if n < -1 {
		r.bad = true
		return
	}
	n = max(n, 0)
	r.take(n)
	if !r.bad {
		r.out = append(r.out, rest[:4+n]...)
	}
}
