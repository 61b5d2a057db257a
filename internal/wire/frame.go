package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Errors of framing. All mean that the connection cannot go on.
var (
	// ErrFrameTooLarge: the length is above the limit, or negative.
	ErrFrameTooLarge = errors.New("frame too large")
	// ErrTLS: the other side begins with a TLS record, this one is plain.
	ErrTLS = errors.New("TLS on a plain connection")
	// ErrHTTP: the other side speaks HTTP.
	ErrHTTP = errors.New("HTTP on a Kafka connection")
)

// A frame is an int32 length and as many bytes:
//
//	request    length | key int16 | version int16 | correlation id int32 | client id | [tags] | body
//	response   length | correlation id int32 | [tags] | body
const lengthSize = 4

// frameSize checks a length against limit, both without the length field itself.
func frameSize(head []byte, limit int) (int, error) {
	size := int32(binary.BigEndian.Uint32(head))
	if size >= 0 && int64(size) <= int64(limit) {
		return int(size), nil
	}
	switch {
	case (head[0] == 0x16 || head[0] == 0x15) && head[1] == 3: // handshake or alert, any version since SSL 3.0
		return 0, fmt.Errorf("%w: it begins with a TLS record", ErrTLS)
	case looksLikeHTTP(string(head)):
		return 0, fmt.Errorf("%w: it begins with %q", ErrHTTP, head)
	case size < 0:
		return 0, fmt.Errorf("%w: negative length %d", ErrFrameTooLarge, size)
	}
	return 0, fmt.Errorf("%w: %d bytes, the limit is %d", ErrFrameTooLarge, size, limit)
}

// looksLikeHTTP compares the first four bytes with methods and with an answer. As lengths they are a gigabyte and more.
func looksLikeHTTP(head string) bool {
	switch head {
	case "GET ", "PUT ", "POST", "HEAD", "DELE", "OPTI", "PATC", "CONN", "TRAC", "PRI ", "HTTP":
		return true
	}
	return false
}

// AppendFrame appends a whole message as a frame.
func AppendFrame(dst, message []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(message)))
	return append(dst, message...)
}
