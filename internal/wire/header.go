package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Keys whose headers do not follow the general rule.
const (
	keyControlledShutdown = 7
	keyAPIVersions        = 18
)

var (
	// ErrMalformed: the bytes cannot be what they should be.
	ErrMalformed = errors.New("malformed message")
	// ErrUnknownVersion: no such key, or no such version of it, so not even the form of its header is known.
	ErrUnknownVersion = errors.New("unknown key or version")

	errShort = fmt.Errorf("%w: it ends too early", ErrMalformed)
)

// RequestHeader is what precedes the body of a request, in three forms:
//
//	v0  key int16 | version int16 | correlation id int32                     ControlledShutdown v0 only
//	v1  v0 | client id: int16 length (−1: null) and bytes
//	v2  v1 | tagged fields                                                   flexible versions
type RequestHeader struct {
	Key, Version  int16
	CorrelationID int32
	ClientID      []byte // a view; nil: null
	BodyOffset    int    // where the body begins, counted from the key
}

// ResponseHeader is what precedes the body of a response.
//
//	v0  correlation id int32
//	v1  v0 | tagged fields      flexible versions, but never ApiVersions: its reader does not know the version yet
type ResponseHeader struct {
	CorrelationID int32
	BodyOffset    int // counted from the correlation id
}

// Headers knows the form of the headers of every key and version. Immutable.
type Headers struct {
	keys []versions // by key
}

// versions of one key; max is −1 if the key does not exist, flexible is above max if no version is flexible.
type versions struct{ max, flexible int16 }

// NewHeaders takes what it knows from kmsg.
func NewHeaders() *Headers {
	h := &Headers{keys: make([]versions, kmsg.MaxKey+1)}
	for key := range h.keys {
		h.keys[key] = versions{max: -1}
		req := kmsg.RequestForKey(int16(key))
		if req == nil {
			continue
		}
		v := versions{max: req.MaxVersion(), flexible: req.MaxVersion() + 1}
		for n := v.max; n >= 0; n-- {
			if req.SetVersion(n); !req.IsFlexible() {
				break
			}
			v.flexible = n
		}
		h.keys[key] = v
	}
	return h
}

// Known says whether the key exists and its version is known.
func (h *Headers) Known(key, version int16) bool {
	return key >= 0 && int(key) < len(h.keys) && version >= 0 && version <= h.keys[key].max
}

// Flexible says whether a known version has compact fields and tags.
func (h *Headers) Flexible(key, version int16) bool {
	return h.Known(key, version) && version >= h.keys[key].flexible
}

// ParseRequest reads the header of a request whose bytes, from the key on, begin with b. One exception to
// ErrUnknownVersion: any version of ApiVersions is read as far as its client id (all have that) and returned with
// BodyOffset at the end of it, because a broker answers unknown ones with those it has.
func (h *Headers) ParseRequest(b []byte) (RequestHeader, error) {
	if len(b) < 4 {
		return RequestHeader{}, errShort
	}
	key, version := int16(binary.BigEndian.Uint16(b)), int16(binary.BigEndian.Uint16(b[2:]))
	if !h.Known(key, version) && key != keyAPIVersions {
		return RequestHeader{}, fmt.Errorf("%w: key %d version %d", ErrUnknownVersion, key, version)
	}
	return ParseRequestHeader(b, h.Flexible(key, version))
}

// ParseRequestHeader is ParseRequest for one who knows whether the version is flexible.
func ParseRequestHeader(b []byte, flexible bool) (RequestHeader, error) {
	if len(b) < 8 {
		return RequestHeader{}, errShort
	}
	out := RequestHeader{
		Key:           int16(binary.BigEndian.Uint16(b)),
		Version:       int16(binary.BigEndian.Uint16(b[2:])),
		CorrelationID: int32(binary.BigEndian.Uint32(b[4:])),
		BodyOffset:    8,
	}
	if out.Key == keyControlledShutdown && out.Version == 0 {
		return out, nil
	}
	if len(b) < 10 {
		return RequestHeader{}, errShort
	}
	n := int(int16(binary.BigEndian.Uint16(b[8:])))
	switch out.BodyOffset = 10; {
	case n < -1:
		return RequestHeader{}, fmt.Errorf("%w: client id of %d bytes", ErrMalformed, n)
	case n > len(b)-10:
		return RequestHeader{}, errShort
	case n >= 0:
		out.ClientID = b[10 : 10+n : 10+n]
		out.BodyOffset += n
	}
	if !flexible {
		return out, nil
	}
	tags, err := tagsSize(b[out.BodyOffset:])
	if err != nil {
		return RequestHeader{}, err
	}
	out.BodyOffset += tags
	return out, nil
}

// ParseResponse reads the header of a response to the given key and version.
func (h *Headers) ParseResponse(b []byte, key, version int16) (ResponseHeader, error) {
	if len(b) < 4 {
		return ResponseHeader{}, errShort
	}
	out := ResponseHeader{CorrelationID: int32(binary.BigEndian.Uint32(b)), BodyOffset: 4}
	if !h.responseTags(key, version) {
		return out, nil
	}
	tags, err := tagsSize(b[4:])
	if err != nil {
		return ResponseHeader{}, err
	}
	out.BodyOffset += tags
	return out, nil
}

// responseTags says whether the header of a response has tagged fields.
func (h *Headers) responseTags(key, version int16) bool {
	return key != keyAPIVersions && h.Flexible(key, version)
}

// AppendResponseHeader appends the header of an answer of our own.
func (h *Headers) AppendResponseHeader(dst []byte, key, version int16, correlationID int32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if h.responseTags(key, version) {
		dst = append(dst, 0)
	}
	return dst
}

// AppendRequestHeader appends the header of a request of our own. A nil client id is null.
func (h *Headers) AppendRequestHeader(dst []byte, key, version int16, correlationID int32, clientID []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(key))
	dst = binary.BigEndian.AppendUint16(dst, uint16(version))
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if key == keyControlledShutdown && version == 0 {
		return dst
	}
	n := len(clientID)
	if clientID == nil {
		n = -1
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(n))
	dst = append(dst, clientID...)
	if h.Flexible(key, version) {
		dst = append(dst, 0)
	}
	return dst
}

// SetRequestCorrelationID changes the id in the bytes of a request, from its key on.
func SetRequestCorrelationID(b []byte, id int32) { binary.BigEndian.PutUint32(b[4:8], uint32(id)) }

// SetResponseCorrelationID changes the id in the bytes of a response.
func SetResponseCorrelationID(b []byte, id int32) { binary.BigEndian.PutUint32(b[:4], uint32(id)) }

// tagsSize is the length of the tagged fields that b begins with: a count, then per field a number, a size and as many
// bytes; all numbers are unsigned varints.
func tagsSize(b []byte) (int, error) {
	count, at, err := uvarint(b)
	if err != nil {
		return 0, err
	}
	for range count {
		_, n, err := uvarint(b[at:])
		if err != nil {
			return 0, err
		}
		at += n
		size, n, err := uvarint(b[at:])
		if err != nil {
			return 0, err
		}
		at += n
		if uint64(size) > uint64(len(b)-at) {
			return 0, errShort
		}
		at += int(size)
	}
	return at, nil
}

// uvarint reads one unsigned varint of at most 32 bits.
func uvarint(b []byte) (v uint32, n int, err error) {
	for n < len(b) && n < maxUvarint {
		c := b[n]
		if n == maxUvarint-1 && c > 0x0f {
			return 0, 0, errUvarint
		}
		v |= uint32(c&0x7f) << (7 * n)
		n++
		if c < 0x80 {
			return v, n, nil
		}
	}
	if n == maxUvarint {
		return 0, 0, errUvarint
	}
	return 0, 0, errShort
}

// maxUvarint is the length in bytes of the longest unsigned varint of 32 bits.
const maxUvarint = 5

var errUvarint = fmt.Errorf("%w: varint of more than 32 bits", ErrMalformed)
