package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	readBytes   = 256 << 10
	callTimeout = 30 * time.Second
	// maxFrame bounds what a peer that speaks something else can make us allocate.
	maxFrame = 256 << 20
)

// conn is one connection to a broker. It belongs to one goroutine, but for a producer's, whose writer and reader are two.
type conn struct {
	net.Conn
	in     *bufio.Reader
	format *kmsg.RequestFormatter
	next   int32 // correlation id
	out    []byte
}

func (r *run) dial(ctx context.Context, address string) (*conn, error) {
	if mapped, ok := r.job.Dial[address]; ok {
		address = mapped
	}
	dialer := net.Dialer{Timeout: callTimeout}
	plain, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	c := &conn{Conn: plain, format: kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench"))}
	if r.tls != nil {
		config := r.tls.Clone()
		config.ServerName, _, _ = net.SplitHostPort(address)
		c.Conn = tls.Client(plain, config)
	}
	c.in = bufio.NewReaderSize(c.Conn, readBytes)
	return c, nil
}

// send writes a request and returns its correlation id.
func (c *conn) send(req kmsg.Request) (int32, error) {
	c.next++
	c.out = c.format.AppendRequest(c.out[:0], req, c.next)
	_, err := c.Write(c.out)
	return c.next, err
}

// call is send and the decoded answer; for everything that is not measured.
func (c *conn) call(req kmsg.Request) (kmsg.Response, error) {
	id, err := c.send(req)
	if err != nil {
		return nil, fmt.Errorf("send %s: %w", kmsg.NameForKey(req.Key()), err)
	}
	if err := c.SetReadDeadline(time.Now().Add(callTimeout)); err != nil {
		return nil, err
	}
	body, err := c.answer(nil, id, req.IsFlexible() && req.Key() != int16(kmsg.ApiVersions))
	if err != nil {
		return nil, fmt.Errorf("answer to %s: %w", kmsg.NameForKey(req.Key()), err)
	}
	resp := req.ResponseKind()
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("answer to %s v%d: %w", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp, c.SetReadDeadline(time.Time{})
}

// answer reads a whole frame into buffer, which it may replace, and returns the body.
func (c *conn) answer(buffer []byte, id int32, flexible bool) ([]byte, error) {
	size, err := c.frame(id)
	if err != nil {
		return nil, err
	}
	if cap(buffer) < size {
		buffer = make([]byte, size)
	}
	buffer = buffer[:size]
	if _, err := io.ReadFull(c.in, buffer); err != nil {
		return nil, err
	}
	if !flexible {
		return buffer, nil
	}
	if len(buffer) == 0 || buffer[0] != 0 {
		return nil, errors.New("a header with tags")
	}
	return buffer[1:], nil
}

// frame reads length and correlation id and returns how many bytes follow.
func (c *conn) frame(id int32) (int, error) {
	var head [8]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return 0, err
	}
	size, got := int32(binary.BigEndian.Uint32(head[:])), int32(binary.BigEndian.Uint32(head[4:]))
	if size < 4 || size > maxFrame {
		return 0, fmt.Errorf("a frame of %d bytes", size)
	}
	if got != id {
		return 0, fmt.Errorf("correlation id %d, want %d", got, id)
	}
	return int(size) - 4, nil
}

// versions are the highest that the other end offers, by key.
func (c *conn) versions() (map[int16]int16, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "bench", "1"
	req.Version = 3
	resp, err := c.call(req)
	if err != nil {
		return nil, err
	}
	answer := resp.(*kmsg.ApiVersionsResponse)
	if answer.ErrorCode != 0 {
		return nil, fmt.Errorf("ApiVersions: code %d", answer.ErrorCode)
	}
	highest := make(map[int16]int16)
	for _, key := range answer.ApiKeys {
		highest[key.ApiKey] = key.MaxVersion
	}
	return highest, nil
}
