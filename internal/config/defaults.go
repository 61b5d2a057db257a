package config

import (
	"net"
	"os"
	"strconv"
	"time"
)

// Default returns a Config with every default and no cluster.
func Default() *Config {
	c := new(Config)
	c.setDefaults()
	return c
}

// defaulter is a struct with values that hold where the file is silent. Called before the file's values are laid over.
type defaulter interface{ setDefaults() }

func (c *Config) setDefaults() {
	c.Replication = Replication{CheckpointInterval: 5 * time.Second, OnLostRange: LostRangeHalt}
	c.Cutover = Cutover{DrainTimeout: 5 * time.Second, MaxPause: 30 * time.Second}
	c.Admin = Admin{Listen: "127.0.0.1:8080"}
	c.Log = Log{Level: "info", Format: FormatJSON}
	c.Limits = Limits{
		FrameBytes:      100 << 20, // as socket.request.max.bytes of a broker
		ConnectionBytes: 128 << 20,
		TotalBytes:      1 << 30,
		Connections:     10_000,
	}
}

func (v *VirtualCluster) setDefaults() {
	v.BrokerPorts.Count = 16
	v.TLS.ClientAuth = ClientAuthNone
	v.Offsets = OffsetsPreserved
	v.Topics.Include = []string{".*"}
	v.Groups.Include = []string{".*"}
}

// derive fills what follows from other values. It leaves alone what it cannot work out; Validate then says why.
func (c *Config) derive() {
	for i := range c.VirtualClusters {
		v := &c.VirtualClusters[i]
		host, port, err := splitAddress(v.Listen)
		if err != nil {
			continue
		}
		if v.BrokerPorts.Start == 0 {
			v.BrokerPorts.Start = port + 1
		}
		if v.AdvertisedHost == "" && !isWildcard(host) {
			v.AdvertisedHost = host
		}
	}
	if c.Instance == "" {
		c.Instance = defaultInstance(c.Admin.Listen)
	}
}

func defaultInstance(adminListen string) string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "switchback"
	}
	if _, port, err := splitAddress(adminListen); err == nil {
		return net.JoinHostPort(host, strconv.Itoa(port))
	}
	return host
}
