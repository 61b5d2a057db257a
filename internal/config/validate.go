package config

import (
	"fmt"
	"slices"
	"strings"
)

// Validate reports every mistake in c at once, as *Problems. It does no I/O. What Parse and Load return without an
// error has passed it; it is for a Config that was built or changed in code.
func (c *Config) Validate() error {
	problems := &collector{lines: c.lines}
	c.validate(problems)
	return problems.err()
}

func (c *Config) validate(p *collector) {
	c.validateClusters(p)
	if len(c.VirtualClusters) == 0 {
		p.add("virtual_clusters", "add one with name, active, standby and listen", "there is no virtual cluster")
	}
	for i := range c.VirtualClusters {
		c.validateVirtualCluster(p, i)
	}
	c.validateTogether(p)
	c.validatePorts(p)
	c.validateProcess(p)
}

// validateClusters judges each cluster, and that no two names mean one cluster as far as the text shows it; the
// cluster ids are compared when they are known.
func (c *Config) validateClusters(p *collector) {
	if len(c.Clusters) == 0 {
		p.add("clusters", "add the two clusters, each with its bootstrap addresses", "there is no cluster")
	}
	owner := make(map[string]string) // canonical address → cluster
	for _, name := range sortedKeys(c.Clusters) {
		cluster, path := c.Clusters[name], join("clusters", name)
		checkName(p, path, name)
		if len(cluster.Bootstrap) == 0 {
			p.add(path+".bootstrap", `write bootstrap: ["host:9092"]`, "cluster %s has no bootstrap address", name)
		}
		for i, address := range cluster.Bootstrap {
			at := fmt.Sprintf("%s.bootstrap[%d]", path, i)
			host, port, err := splitAddress(address)
			switch {
			case err != nil:
				p.add(at, "write host:port", "%q: %v", address, err)
				continue
			case isWildcard(host):
				p.add(at, "name the broker's own address", "%q is an address to listen on, not to connect to", address)
				continue
			}
			key := fmt.Sprintf("%s:%d", canonicalHost(host), port)
			if other, taken := owner[key]; taken && other != name {
				p.add(at, "one cluster has one name", "%q is a bootstrap address of cluster %s too", address, other)
			}
			owner[key] = name
		}
		validateClusterTLS(p, path+".tls", cluster.TLS)
		validateSASL(p, path+".sasl", cluster.SASL)
	}
}

func validateClusterTLS(p *collector, path string, t ClusterTLS) {
	if !t.Enabled && t != (ClusterTLS{}) {
		p.add(path, "set enabled: true, or remove the other keys", "there are TLS settings, but TLS is not enabled")
	}
	checkPair(p, path, t.Cert, t.Key)
	if t.ServerName != "" && !isHost(t.ServerName) {
		p.add(path+".server_name", "write a host name without a port", "%q is not a host name", t.ServerName)
	}
}

func validateSASL(p *collector, path string, s SASL) {
	if s == (SASL{}) {
		return
	}
	checkWord(p, path+".mechanism", s.Mechanism, MechanismPlain, MechanismScramSHA256, MechanismScramSHA512)
	if s.Username == "" {
		p.add(path+".username", "add it, or remove the whole sasl", "there is no user name to log in with")
	}
	if s.Password == "" {
		p.add(path+".password", "use ${ENV} or file:PATH", "there is no password to log in with")
	}
}

func (c *Config) validateVirtualCluster(p *collector, i int) {
	v, path := c.VirtualClusters[i], fmt.Sprintf("virtual_clusters[%d]", i)
	if v.Name == "" {
		p.add(path+".name", "clients do not see it; metrics, logs and commands do", "the virtual cluster has no name")
	} else {
		checkName(p, path+".name", v.Name)
	}
	c.checkRole(p, path+".active", v.Active)
	c.checkRole(p, path+".standby", v.Standby)
	if v.Active != "" && v.Active == v.Standby {
		p.add(path+".standby", "name the other cluster", "active and standby are both %s", v.Active)
	}
	validateListener(p, path, v)
	switch v.Offsets {
	case OffsetsPreserved:
	case OffsetsTranslated:
		p.add(path+".offsets", "use preserved", "translated is not built yet; use preserved")
	default:
		checkWord(p, path+".offsets", v.Offsets, OffsetsPreserved, OffsetsTranslated)
	}
	checkPatterns(p, path+".topics", v.Topics.Include, v.Topics.Exclude)
	checkPatterns(p, path+".groups", v.Groups.Include, v.Groups.Exclude)
	validateNaming(p, path+".topics.naming", v)
}

func (c *Config) checkRole(p *collector, path, name string) {
	if name == "" {
		p.add(path, "name one of the clusters", "no cluster is named")
		return
	}
	if _, known := c.Clusters[name]; known {
		return
	}
	names := sortedKeys(c.Clusters)
	hint := "clusters: " + strings.Join(names, ", ")
	if near := nearest(name, names); near != "" {
		hint = fmt.Sprintf("did you mean %q? %s", near, hint)
	}
	p.add(path, hint, "there is no cluster %q", name)
}

// validateListener judges where clients connect, and what they are told to connect to.
func validateListener(p *collector, path string, v VirtualCluster) {
	if v.Listen == "" {
		p.add(path+".listen", "write host:port, such as 0.0.0.0:9092", "there is no address to listen on")
	} else if _, _, err := splitAddress(v.Listen); err != nil {
		p.add(path+".listen", "write host:port, such as 0.0.0.0:9092", "%q: %v", v.Listen, err)
	} else if v.AdvertisedHost == "" {
		p.add(path+".advertised_host", "name the host by which clients reach this process",
			"listen %q is every address, so clients cannot be told one", v.Listen)
	}
	switch {
	case v.AdvertisedHost == "":
	case isWildcard(v.AdvertisedHost):
		p.add(path+".advertised_host", "name the host by which clients reach this process", "clients cannot connect to %s", v.AdvertisedHost)
	case !isHost(v.AdvertisedHost):
		p.add(path+".advertised_host", "write a host name or an IP address, without port or brackets", "%q is not a host", v.AdvertisedHost)
	}
	b := v.BrokerPorts
	if b.Count < 1 {
		p.add(path+".broker_ports.count", "as many as the larger of both clusters has brokers, and some to spare", "there must be at least one broker port")
	}
	// A Start of 0 was to be derived from listen: what is wrong then is listen, and it has been said.
	if b.Start < 0 || b.Start > 65535 || b.Count > 65535 || (b.Count > 0 && b.Start+b.Count-1 > 65535) {
		p.add(path+".broker_ports.start", "ports end at 65535", "broker ports %d to %d are out of range", b.Start, b.Start+b.Count-1)
	}
	validateListenerTLS(p, path+".tls", v.TLS)
}

func validateListenerTLS(p *collector, path string, t ListenerTLS) {
	checkPair(p, path, t.Cert, t.Key)
	checkWord(p, path+".client_auth", t.ClientAuth, ClientAuthNone, ClientAuthOptional, ClientAuthRequired)
	asks := t.ClientAuth == ClientAuthOptional || t.ClientAuth == ClientAuthRequired
	switch {
	case asks && t.CA == "":
		p.add(path+".ca", "name the file with the authority of the clients' certificates", "client_auth %s needs a ca", t.ClientAuth)
	case !asks && t.CA != "":
		p.add(path+".client_auth", "set client_auth: required or optional, or remove ca", "a ca is given, but no client is asked for a certificate")
	}
	if t.Cert == "" && t.Key == "" && (asks || t.CA != "") {
		p.add(path+".cert", "add cert and key, or remove tls", "TLS needs a certificate of our own")
	}
}

// validateTogether finds what only several virtual clusters can get wrong.
func (c *Config) validateTogether(p *collector) {
	names := make(map[string]bool)
	pairs := make(map[[2]string]string) // both clusters, sorted → virtual cluster
	for i, v := range c.VirtualClusters {
		path := fmt.Sprintf("virtual_clusters[%d]", i)
		if v.Name != "" && names[v.Name] {
			p.add(path+".name", "give each its own", "a virtual cluster %q is there already", v.Name)
		}
		names[v.Name] = true
		pair := [2]string{min(v.Active, v.Standby), max(v.Active, v.Standby)}
		if other, taken := pairs[pair]; taken && v.Active != "" && v.Standby != "" {
			p.add(path+".active", "one pair of clusters serves one virtual cluster, as their journal is one",
				"virtual cluster %s uses %s and %s already", other, pair[0], pair[1])
		}
		pairs[pair] = v.Name
	}
}

// validateProcess judges what is of the process and not of one virtual cluster.
func (c *Config) validateProcess(p *collector) {
	if strings.ContainsFunc(c.Instance, func(r rune) bool { return r <= ' ' || r > '~' }) || len(c.Instance) > 200 {
		p.add("instance", "use up to 200 printable ASCII characters without spaces", "%q cannot name a process", c.Instance)
	}
	r := c.Replication
	checkPositive(p, "replication.checkpoint_interval", int64(r.CheckpointInterval), "5s")
	if r.RaiseProducerIDExpiration {
		p.add("replication.raise_producer_id_expiration", "set false; old backlog is then copied in cautious mode, exactly once as well", "raising it is not built yet")
	}
	checkWord(p, "replication.on_lost_range", r.OnLostRange, LostRangeHalt, LostRangeSkip)
	if r.InternalReplicationFactor < 0 || r.InternalReplicationFactor > 32767 {
		p.add("replication.internal_replication_factor", "0 means min(3, brokers)", "%d is not a replication factor", r.InternalReplicationFactor)
	}
	checkPositive(p, "cutover.drain_timeout", int64(c.Cutover.DrainTimeout), "5s")
	checkPositive(p, "cutover.max_pause", int64(c.Cutover.MaxPause), "30s")
	if c.Cutover.DrainTimeout > 0 && c.Cutover.MaxPause > 0 && c.Cutover.DrainTimeout >= c.Cutover.MaxPause {
		p.add("cutover.drain_timeout", "draining is a part of the pause", "drain_timeout %s is not below max_pause %s", c.Cutover.DrainTimeout, c.Cutover.MaxPause)
	}
	c.validateAdmin(p)
	checkWord(p, "log.level", c.Log.Level, "trace", "debug", "info", "warn", "error")
	checkWord(p, "log.format", c.Log.Format, FormatJSON, FormatConsole)
	c.validateLimits(p)
}

func (c *Config) validateAdmin(p *collector) {
	host, _, err := splitAddress(c.Admin.Listen)
	switch {
	case err != nil:
		p.add("admin.listen", "write host:port, such as 127.0.0.1:8080", "%q: %v", c.Admin.Listen, err)
	case c.Admin.Token == "" && !isLoopback(host):
		p.add("admin.token", `set token: "${SWITCHBACK_TOKEN}", or listen on 127.0.0.1`,
			"without a token anyone who reaches %s can move the clients", c.Admin.Listen)
	}
}

func (c *Config) validateLimits(p *collector) {
	l := c.Limits
	checkPositive(p, "limits.frame_bytes", int64(l.FrameBytes), "104857600")
	checkPositive(p, "limits.connection_bytes", int64(l.ConnectionBytes), "134217728")
	checkPositive(p, "limits.total_bytes", int64(l.TotalBytes), "1073741824")
	checkPositive(p, "limits.connections", int64(l.Connections), "10000")
	if l.FrameBytes > 1<<31-1 {
		p.add("limits.frame_bytes", "the length of a frame is an int32", "%d is more than a frame can have", l.FrameBytes)
	}
	if l.ConnectionBytes > 0 && l.FrameBytes > l.ConnectionBytes {
		p.add("limits.connection_bytes", "raise it, or lower frame_bytes", "a frame may be larger than what a connection may hold")
	}
	if l.TotalBytes > 0 && l.ConnectionBytes > l.TotalBytes {
		p.add("limits.total_bytes", "raise it, or lower connection_bytes", "a connection may hold more than the process")
	}
}

// checkWord judges a value that is one of a few.
func checkWord(p *collector, path, word string, allowed ...string) {
	if slices.Contains(allowed, word) {
		return
	}
	hint := "one of " + strings.Join(allowed, ", ")
	if word == "" {
		p.add(path, hint, "it is empty")
		return
	}
	if near := nearest(word, allowed); near != "" {
		hint = fmt.Sprintf("did you mean %s? %s", near, hint)
	}
	p.add(path, hint, "%q is not known", word)
}

func checkPositive(p *collector, path string, n int64, example string) {
	if n <= 0 {
		p.add(path, "such as "+example, "it must be above zero")
	}
}

func checkPair(p *collector, path, cert, key string) {
	switch {
	case cert != "" && key == "":
		p.add(path+".key", "name the file of the certificate's private key", "there is a cert without a key")
	case cert == "" && key != "":
		p.add(path+".cert", "name the file of the key's certificate", "there is a key without a cert")
	}
}
