package config

import "fmt"

// validatePorts finds two values that would bind one port, and a cluster whose address is our own.
func (c *Config) validatePorts(p *collector) {
	ranges := c.boundPorts()
	for i, r := range ranges {
		for _, earlier := range ranges[:i] {
			if r.overlaps(earlier) {
				p.add(r.path, "move one of them", "port %d is taken by %s too", max(r.start, earlier.start), earlier.path)
				break
			}
		}
	}
	for _, name := range sortedKeys(c.Clusters) {
		for i, address := range c.Clusters[name].Bootstrap {
			if at, self := c.isOurOwn(address, ranges); self {
				p.add(fmt.Sprintf("clusters.%s.bootstrap[%d]", name, i), "name the brokers themselves", "%q is this proxy's own address (%s)", address, at)
			}
		}
	}
}

// boundPorts lists what this process will listen on, leaving out what is no address.
func (c *Config) boundPorts() []portRange {
	var ranges []portRange
	for i, v := range c.VirtualClusters {
		path := fmt.Sprintf("virtual_clusters[%d]", i)
		host, port, err := splitAddress(v.Listen)
		if err != nil {
			continue
		}
		ranges = append(ranges, portRange{path: path + ".listen", host: host, start: port, end: port + 1})
		if b := v.BrokerPorts; b.Start > 0 && b.Count > 0 {
			ranges = append(ranges, portRange{path: path + ".broker_ports", host: host, start: b.Start, end: b.Start + b.Count})
		}
	}
	if host, port, err := splitAddress(c.Admin.Listen); err == nil {
		ranges = append(ranges, portRange{path: "admin.listen", host: host, start: port, end: port + 1})
	}
	return ranges
}

// isOurOwn says whether connecting to address would, as far as the text shows, reach this process: by the address it
// listens on, by a loopback address where it listens on all, or by the advertised host.
func (c *Config) isOurOwn(address string, ranges []portRange) (at string, self bool) {
	host, port, err := splitAddress(address)
	if err != nil || isWildcard(host) {
		return "", false
	}
	for _, r := range ranges {
		if port >= r.start && port < r.end && (sameHost(host, r.host) || isWildcard(r.host) && isLoopback(host)) {
			return r.path, true
		}
	}
	for i, v := range c.VirtualClusters {
		if _, listen, err := splitAddress(v.Listen); err == nil && port == listen && sameHost(host, v.AdvertisedHost) {
			return fmt.Sprintf("virtual_clusters[%d].advertised_host", i), true
		}
	}
	return "", false
}
