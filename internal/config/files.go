package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
)

const maxPEMBytes = 1 << 20

// CheckFiles opens the PEM files that c names and reports, as *Problems, each that is missing or holds something else.
// Validate does not: it judges the text alone. Load does both.
func (c *Config) CheckFiles() error {
	problems := &collector{lines: c.lines}
	c.checkFiles(problems)
	return problems.err()
}

func (c *Config) checkFiles(p *collector) {
	for _, name := range sortedKeys(c.Clusters) {
		t := c.Clusters[name].TLS
		checkPEM(p, join(join("clusters", name), "tls"), t.CA, t.Cert, t.Key)
	}
	for i, v := range c.VirtualClusters {
		checkPEM(p, fmt.Sprintf("virtual_clusters[%d].tls", i), v.TLS.CA, v.TLS.Cert, v.TLS.Key)
	}
}

func checkPEM(p *collector, path, ca, cert, key string) {
	const hint = "relative paths start at the folder of the configuration file"
	if ca != "" {
		if data, err := readBounded(ca, maxPEMBytes); err != nil {
			p.add(path+".ca", hint, "%v", err)
		} else if !x509.NewCertPool().AppendCertsFromPEM(data) {
			p.add(path+".ca", "it must hold certificates in PEM form", "%s holds no certificate", ca)
		}
	}
	if cert != "" && key != "" {
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
			p.add(path+".cert", hint, "%v", err)
		}
	}
}

// resolvePaths makes every path of a PEM file independent of the working directory.
func (c *Config) resolvePaths(around surroundings) {
	for name, cluster := range c.Clusters {
		t := &cluster.TLS
		t.CA, t.Cert, t.Key = around.path(t.CA), around.path(t.Cert), around.path(t.Key)
		c.Clusters[name] = cluster
	}
	for i := range c.VirtualClusters {
		t := &c.VirtualClusters[i].TLS
		t.CA, t.Cert, t.Key = around.path(t.CA), around.path(t.Cert), around.path(t.Key)
	}
}
