package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
)

const (
	handshakeVersion    = 1 // frames SaslAuthenticate as a request
	authenticateVersion = 1
	maxLoginBytes       = 1 << 20 // of one answer
)

// login authenticates a fresh connection. Nothing else is under way on it, and nothing is read beyond the last answer.
func login(ctx context.Context, conn net.Conn, m sasl.Mechanism, addr string) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(dialTimeout)
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	session, first, err := m.Authenticate(ctx, addr)
	if err != nil {
		return err
	}
	handshake := kmsg.NewPtrSASLHandshakeRequest()
	handshake.Version, handshake.Mechanism = handshakeVersion, m.Name()
	answer := kmsg.NewPtrSASLHandshakeResponse()
	if err := exchange(conn, handshake, answer, 0); err != nil {
		return err
	}
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return fmt.Errorf("mechanism %s, brokers have %v: %w", m.Name(), answer.SupportedMechanisms, err)
	}
	if err := authenticate(conn, session, first); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

func authenticate(conn net.Conn, session sasl.Session, write []byte) error {
	done := false
	for step := int32(1); !done || len(write) > 0; step++ {
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.Version, req.SASLAuthBytes = authenticateVersion, write
		resp := kmsg.NewPtrSASLAuthenticateResponse()
		if err := exchange(conn, req, resp, step); err != nil {
			return err
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			if resp.ErrorMessage != nil {
				return fmt.Errorf("%s: %w", *resp.ErrorMessage, err)
			}
			return err
		}
		write = nil
		if !done {
			var err error
			if done, write, err = session.Challenge(resp.SASLAuthBytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// exchange sends one request with a plain header and reads its answer.
func exchange(conn net.Conn, req kmsg.Request, resp kmsg.Response, correlation int32) error {
	resp.SetVersion(req.GetVersion())
	out := kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID)).AppendRequest(nil, req, correlation)
	if _, err := conn.Write(out); err != nil {
		return err
	}
	var head [8]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	size := int32(binary.BigEndian.Uint32(head[:4]))
	if size < 4 || size > maxLoginBytes {
		return fmt.Errorf("an answer of %d bytes", size)
	}
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != correlation {
		return fmt.Errorf("the answer to request %d, not %d", got, correlation)
	}
	body := make([]byte, size-4)
	if _, err := io.ReadFull(conn, body); err != nil {
		return err
	}
	return resp.ReadFrom(body)
}
