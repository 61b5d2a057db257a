package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/switchback-proxy/switchback/internal/admin"
	"github.com/switchback-proxy/switchback/test/cluster"
	"github.com/switchback-proxy/switchback/test/proc"
)

const (
	virtualCluster = "bench"
	brokerPorts    = 8
)

// product is one switchback process at a time, on ports that stay.
type product struct {
	h           *harness
	binary      string
	dir         string
	port        int // bootstrap; brokers follow, then admin
	blue, green *cluster.Cluster
	process     *proc.Process
	cert, key   string
	starts      int
	include     []string // topics that are copied and seen; empty: all
}

// newProduct builds the binary unless one is given. "none" gives nil.
func newProduct(ctx context.Context, h *harness, given string, blue, green *cluster.Cluster) (*product, error) {
	if given == "none" {
		return nil, nil
	}
	p := &product{h: h, binary: given, dir: proc.Dir(h), blue: blue, green: green, port: proc.FreePorts(h, brokerPorts+2)}
	if given == "" {
		p.binary = filepath.Join(h.dir, "switchback")
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", p.binary, "./cmd/switchback")
		build.Dir = proc.Root(h)
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build switchback: %w\n%s", err, out)
		}
	}
	p.cert, p.key = filepath.Join(h.dir, "cert.pem"), filepath.Join(h.dir, "key.pem")
	return p, writeCertificate(p.cert, p.key)
}

func (p *product) address() string { return fmt.Sprintf("127.0.0.1:%d", p.port) }

func (p *product) admin() *admin.Client {
	return &admin.Client{URL: fmt.Sprintf("http://127.0.0.1:%d", p.port+brokerPorts+1)}
}

func (p *product) config(tls bool) string {
	secure := ""
	if tls {
		secure = fmt.Sprintf("\n    tls: {cert: %q, key: %q, client_auth: none}", p.cert, p.key)
	}
	include := ""
	if len(p.include) > 0 {
		include = fmt.Sprintf("\n    topics: {include: [%s]}", strings.Join(p.include, ", "))
	}
	list := func(c *cluster.Cluster) string { return `"` + strings.Join(c.Addrs(), `", "`) + `"` }
	return fmt.Sprintf(`instance: bench
clusters:
  blue:  {bootstrap: [%s]}
  green: {bootstrap: [%s]}
virtual_clusters:
  - name: %s
    active: blue
    standby: green
    listen: %s
    broker_ports: {start: %d, count: %d}
    advertised_host: 127.0.0.1%s%s
replication: {on_lost_range: skip}
cutover: {drain_timeout: 5s, max_pause: 60s}
admin: {listen: "127.0.0.1:%d"}
log: {level: info, format: json}
`, list(p.blue), list(p.green), virtualCluster, p.address(), p.port+1, brokerPorts, secure, include, p.port+brokerPorts+1)
}

// start runs the product and returns when it is ready.
func (p *product) start(ctx context.Context, tls bool) error {
	p.stop()
	p.starts++
	path := filepath.Join(p.dir, "switchback.yaml")
	if err := os.WriteFile(path, []byte(p.config(tls)), 0o600); err != nil {
		return err
	}
	p.process = proc.Start(p.h, proc.Config{
		Name: "switchback", Path: p.binary, Args: []string{"serve", "-c", path}, Output: filepath.Join(p.dir, fmt.Sprintf("switchback-%d.log", p.starts)),
	})
	return p.until(ctx, 2*time.Minute, "switchback is ready", func() error {
		resp, err := http.Get(p.admin().URL + "/readyz")
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz: %s", resp.Status)
		}
		return nil
	})
}

func (p *product) stop() {
	if p == nil || p.process == nil {
		return
	}
	if err := p.process.Stop(20 * time.Second); err != nil {
		p.process.Kill()
	}
	p.process = nil
}

// until is proc.Until with a look at the process and at ctx.
func (p *product) until(ctx context.Context, timeout time.Duration, what string, f func() error) error {
	for deadline := time.Now().Add(timeout); ; pause(ctx, 50*time.Millisecond) {
		err := f()
		if err == nil {
			return nil
		}
		if !p.process.Running() {
			return fmt.Errorf("%s: switchback has ended:\n%s", what, proc.Tail(p.process.Output(), 3000))
		}
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %v: %w; log:\n%s", what, timeout, err, proc.Tail(p.process.Output(), 2000))
		}
	}
}

// caughtUp waits until every partition of the topics is copied.
func (p *product) caughtUp(ctx context.Context, partitions map[string]int) error {
	return p.until(ctx, 4*time.Minute, "every partition is CaughtUp", func() error {
		status, err := p.admin().Status(ctx, admin.StatusQuery{})
		if err != nil {
			return err
		}
		left := make(map[string]int)
		for topic, n := range partitions {
			left[topic] = n
		}
		for _, vc := range status.VirtualClusters {
			for _, at := range vc.Partitions {
				if at.State != "CaughtUp" {
					err = fmt.Errorf("%s-%d: %s, %d records behind, %s", at.Topic, at.Partition, at.State, at.LagRecords, at.Reason)
				}
				left[at.Topic]--
			}
		}
		for topic, n := range left {
			if _, wanted := partitions[topic]; wanted && n > 0 {
				err = fmt.Errorf("%s: %d partitions are not in the status", topic, n)
			}
		}
		return err
	})
}

// cutover moves to green and returns how long clients had to wait.
func (p *product) cutover(ctx context.Context) (time.Duration, error) {
	id, err := p.admin().StartCutover(ctx, admin.CutoverOrder{VirtualCluster: virtualCluster, To: "green", Mode: "planned", MaxPause: "60s"})
	if err != nil {
		return 0, fmt.Errorf("start cutover: %w", err)
	}
	var last admin.Cutover
	err = p.until(ctx, 3*time.Minute, "the cutover is over", func() error {
		if last, err = p.admin().Cutover(ctx, id); err != nil {
			return err
		}
		if !last.Over() {
			return fmt.Errorf("it is in %s", last.Phase)
		}
		return nil
	})
	if err == nil && last.Phase != "Done" {
		err = fmt.Errorf("the cutover ended in %s: %v", last.Phase, last.Error)
	}
	return time.Duration(last.PauseMillis) * time.Millisecond, err
}

// writeCertificate makes one for 127.0.0.1 that is its own authority.
func writeCertificate(cert, key string) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "switchback bench"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(48 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
}
