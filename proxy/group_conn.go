package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxOwnAnswerBytes bounds the answers to requests of our own; the longest are descriptions of large groups.
const maxOwnAnswerBytes = 256 << 20

var errAnswerSize = errors.New("answer size is out of bounds")

// brokerConn is a connection of our own to a broker, on which one request is answered at a time: for what has to come from
// a client's name (the shadows of its members) or in a client's version. It is used by one goroutine at a time.
type brokerConn struct {
	conn          net.Conn
	format        *kmsg.RequestFormatter
	correlationID int32
}

// newBrokerConn takes over conn. Requests carry clientID.
func newBrokerConn(conn net.Conn, clientID string) *brokerConn {
	return &brokerConn{conn: conn, format: kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID))}
}

func (b *brokerConn) close() { b.conn.Close() }

// ask sends req, in the version it has, and waits for the answer. After an error the connection is of no more use.
func (b *brokerConn) ask(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	stop := context.AfterFunc(ctx, func() { b.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	resp, err := b.exchange(req)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return resp, err
}

func (b *brokerConn) exchange(req kmsg.Request) (kmsg.Response, error) {
	b.correlationID++
	if _, err := b.conn.Write(b.format.AppendRequest(nil, req, b.correlationID)); err != nil {
		return nil, fmt.Errorf("send %s: %w", kmsg.NameForKey(req.Key()), err)
	}
	var head [8]byte // int32 length of what follows · int32 correlation id
	if _, err := io.ReadFull(b.conn, head[:]); err != nil {
		return nil, fmt.Errorf("read the answer to %s: %w", kmsg.NameForKey(req.Key()), err)
	}
	size := int32(binary.BigEndian.Uint32(head[:]))
	if size < 4 || size > maxOwnAnswerBytes {
		return nil, fmt.Errorf("read the answer to %s: %w: %d", kmsg.NameForKey(req.Key()), errAnswerSize, size)
	}
	if id := int32(binary.BigEndian.Uint32(head[4:])); id != b.correlationID {
		return nil, fmt.Errorf("read the answer to %s: correlation id %d, not %d", kmsg.NameForKey(req.Key()), id, b.correlationID)
	}
	body := make([]byte, size-4)
	if _, err := io.ReadFull(b.conn, body); err != nil {
		return nil, fmt.Errorf("read the answer to %s: %w", kmsg.NameForKey(req.Key()), err)
	}
	return decodeAnswer(req, body)
}

// decodeAnswer decodes what follows the correlation id.
func decodeAnswer(req kmsg.Request, body []byte) (kmsg.Response, error) {
	resp := req.ResponseKind()
	if resp.IsFlexible() {
		var err error
		if body, err = skipTags(body); err != nil {
			return nil, fmt.Errorf("decode the answer to %s: %w", kmsg.NameForKey(req.Key()), err)
		}
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("decode the answer to %s: %w", kmsg.NameForKey(req.Key()), err)
	}
	return resp, nil
}

// skipTags drops the tagged fields of a flexible header: uvarint count · count × (uvarint tag · uvarint length · bytes).
func skipTags(b []byte) ([]byte, error) {
	count, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, io.ErrUnexpectedEOF
	}
	b = b[n:]
	for ; count > 0; count-- {
		_, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, io.ErrUnexpectedEOF
		}
		b = b[n:]
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, io.ErrUnexpectedEOF
		}
		b = b[n+int(size):]
	}
	return b, nil
}
