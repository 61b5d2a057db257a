package engine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/switchback-proxy/switchback/internal/config"
)

const (
	clientID     = "switchback"
	dialTimeout  = 5 * time.Second
	pingTimeout  = 3 * time.Second
	pingTries    = 3 // within pingTimeout
	retryTimeout = 5 * time.Second
)

// upstream is one cluster as we reach it. It may be shared by several virtual clusters.
type upstream struct {
	name   string
	client *kgo.Client
	tls    *tls.Config      // nil: plain
	sasl   []sasl.Mechanism // at most one
	seen   func(bool)       // told after each ping whether the cluster answered; nil: nobody is

	mu      sync.Mutex // guards what follows
	err     error      // of the last ping
	since   time.Time  // since when err is what it is
	id      string     // of the cluster, as far as known
	pinged  bool
	brokers []int32 // sorted
}

// connect makes the client of a cluster. Nothing is asked yet.
func connect(name string, c config.Cluster) (*upstream, error) {
	u := &upstream{name: name}
	var err error
	if u.tls, err = clusterTLS(c.TLS); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", name, err)
	}
	if u.sasl, err = mechanism(c.SASL); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", name, err)
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Bootstrap...), kgo.ClientID(clientID), kgo.DialTimeout(dialTimeout), kgo.RetryTimeout(retryTimeout),
		kgo.MetadataMinAge(250 * time.Millisecond), kgo.MetadataMaxAge(30 * time.Second), kgo.DisableClientMetrics(),
	}
	if u.tls != nil {
		opts = append(opts, kgo.DialTLSConfig(u.tls))
	}
	if len(u.sasl) > 0 {
		opts = append(opts, kgo.SASL(u.sasl...))
	}
	if u.client, err = kgo.NewClient(opts...); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", name, err)
	}
	return u, nil
}

// clusterTLS is nil where TLS is off.
func clusterTLS(c config.ClusterTLS) (*tls.Config, error) {
	if !c.Enabled {
		return nil, nil
	}
	out := &tls.Config{ServerName: c.ServerName, MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("read the CA: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", c.CA)
		}
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, fmt.Errorf("read the client certificate: %w", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// listenerTLS is nil where clients speak plain TCP.
func listenerTLS(c config.ListenerTLS) (*tls.Config, error) {
	if !c.Enabled() {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("read the listener's certificate: %w", err)
	}
	out := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("read the CA of clients: %w", err)
		}
		out.ClientCAs = x509.NewCertPool()
		if !out.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", c.CA)
		}
	}
	switch c.ClientAuth {
	case config.ClientAuthOptional:
		out.ClientAuth = tls.VerifyClientCertIfGiven
	case config.ClientAuthRequired:
		out.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return out, nil
}

func mechanism(c config.SASL) ([]sasl.Mechanism, error) {
	switch c.Mechanism {
	case "":
		return nil, nil
	case config.MechanismPlain:
		return []sasl.Mechanism{plain.Auth{User: c.Username, Pass: c.Password.Reveal()}.AsMechanism()}, nil
	case config.MechanismScramSHA256:
		return []sasl.Mechanism{scram.Auth{User: c.Username, Pass: c.Password.Reveal()}.AsSha256Mechanism()}, nil
	case config.MechanismScramSHA512:
		return []sasl.Mechanism{scram.Auth{User: c.Username, Pass: c.Password.Reveal()}.AsSha512Mechanism()}, nil
	}
	return nil, fmt.Errorf("SASL mechanism %q", c.Mechanism)
}

// dial connects to a broker and logs in; the connection is ready for the first request, and the caller's.
func (u *upstream) dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if u.tls != nil {
		cfg := u.tls.Clone()
		if cfg.ServerName == "" {
			cfg.ServerName, _, _ = net.SplitHostPort(addr)
		}
		secure := tls.Client(conn, cfg)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("TLS to %s: %w", u.name, err)
		}
		conn = secure
	}
	if len(u.sasl) > 0 {
		if err := login(ctx, conn, u.sasl[0], addr); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("log in to %s: %w", u.name, err)
		}
	}
	return conn, nil
}

// ping asks the cluster who it is.
func (u *upstream) ping(ctx context.Context) error {
	began := time.Now()
	meta, err := u.askMetadata(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	if (err == nil) != (u.err == nil) || !u.pinged {
		u.since = began
	}
	u.err, u.pinged = err, true
	if u.seen != nil {
		u.seen(err == nil)
	}
	if err != nil {
		return fmt.Errorf("cluster %s cannot be reached: %w", u.name, err)
	}
	u.id, u.brokers = "", nil
	if meta.ClusterID != nil {
		u.id = *meta.ClusterID
	}
	for _, b := range meta.Brokers {
		u.brokers = append(u.brokers, b.NodeID)
	}
	slices.Sort(u.brokers)
	return nil
}

// askMetadata asks for the brokers, over the network: what the client remembers says nothing of a cluster that is gone. While
// no answer comes it asks once more now and then: a broker that hangs is not the cluster, and the client takes another each time.
func (u *upstream) askMetadata(ctx context.Context) (*kmsg.MetadataResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	type answer struct {
		meta *kmsg.MetadataResponse
		err  error
	}
	answers := make(chan answer, pingTries)
	more := time.NewTicker(pingTimeout / pingTries)
	defer more.Stop()
	for asked := 0; ; {
		if asked < pingTries {
			asked++
			asking.Go(func() {
				req := kmsg.NewPtrMetadataRequest()
				req.Topics = []kmsg.MetadataRequestTopic{} // none; nil means all
				meta, err := req.RequestWith(ctx, u.client)
				if err == nil && len(meta.Brokers) == 0 {
					err = errors.New("no broker is there")
				}
				answers <- answer{meta, err}
			})
		}
		select {
		case a := <-answers:
			return a.meta, a.err
		case <-more.C:
		}
	}
}

// health is what the last ping got, and since when that holds.
func (u *upstream) health() (since time.Time, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.since, u.err
}

// clusterID is empty while it is not known.
func (u *upstream) clusterID() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.id
}

// brokerIDs are those of the last ping, sorted.
func (u *upstream) brokerIDs() []int32 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.brokers
}

// apiVersions are what all brokers of the cluster speak.
func (u *upstream) apiVersions(ctx context.Context) (map[int16][2]int16, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*pingTimeout)
	defer cancel()
	all, err := kadm.NewClient(u.client).ApiVersions(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask %s for its API versions: %w", u.name, err)
	}
	var out map[int16][2]int16
	for _, broker := range all {
		if broker.Err != nil {
			return nil, fmt.Errorf("ask broker %d of %s for its API versions: %w", broker.NodeID, u.name, broker.Err)
		}
		one := make(map[int16][2]int16)
		broker.EachKeySorted(func(key, low, high int16) { one[key] = [2]int16{low, high} })
		out = intersect(out, one)
	}
	if out == nil {
		return nil, fmt.Errorf("no broker of %s told its API versions", u.name)
	}
	return out, nil
}

// intersect keeps what both speak; a is nil for "all".
func intersect(a, b map[int16][2]int16) map[int16][2]int16 {
	if a == nil {
		return b
	}
	out := make(map[int16][2]int16)
	for key, r := range a {
		other, ok := b[key]
		low, high := max(r[0], other[0]), min(r[1], other[1])
		if ok && low <= high {
			out[key] = [2]int16{low, high}
		}
	}
	return out
}
