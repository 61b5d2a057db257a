package config

import "time"

// Config is the whole file. Zero values are never meaningful defaults; build one with [Parse], [Load] or [Default].
type Config struct {
	// Instance names this process in leases and in static group membership; unique among the processes of one
	// virtual cluster. Default: host name and admin port.
	Instance string `yaml:"instance"`
	// Clusters are the upstream Kafka clusters by name.
	Clusters map[string]Cluster `yaml:"clusters"`
	// VirtualClusters are what clients see; at least one.
	VirtualClusters []VirtualCluster `yaml:"virtual_clusters"`
	Replication     Replication      `yaml:"replication"`
	Cutover         Cutover          `yaml:"cutover"`
	Admin           Admin            `yaml:"admin"`
	Log             Log              `yaml:"log"`
	Limits          Limits           `yaml:"limits"`

	lines map[string]int // YAML path → line (from 1); nil for a Config built in code
}

// Cluster is how we reach one upstream cluster.
type Cluster struct {
	// Bootstrap holds host:port addresses, at least one.
	Bootstrap []string   `yaml:"bootstrap"`
	TLS       ClusterTLS `yaml:"tls"`
	SASL      SASL       `yaml:"sasl"`
}

// ClusterTLS is TLS towards a cluster. CA, Cert and Key are paths of PEM files.
type ClusterTLS struct {
	Enabled bool `yaml:"enabled"`
	// CA verifies the brokers; empty: the system's roots.
	CA string `yaml:"ca"`
	// Cert and Key are our client certificate; both or neither.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	// ServerName is expected in the brokers' certificates; empty: each broker's own host.
	ServerName string `yaml:"server_name"`
}

// SASL is how we log in to a cluster; an empty Mechanism means not at all.
type SASL struct {
	Mechanism string `yaml:"mechanism"` // PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
	Username  string `yaml:"username"`
	Password  Secret `yaml:"password"`
}

// VirtualCluster is one address that clients connect to, and the two clusters behind it.
type VirtualCluster struct {
	Name string `yaml:"name"`
	// Active and Standby are the roles at the first start; afterwards the control topic decides.
	Active  string `yaml:"active"`
	Standby string `yaml:"standby"`
	// Listen is the bootstrap address, host:port.
	Listen      string      `yaml:"listen"`
	BrokerPorts BrokerPorts `yaml:"broker_ports"`
	// AdvertisedHost is the host (no port) that clients are told for every broker. Default: the host of Listen.
	AdvertisedHost string      `yaml:"advertised_host"`
	TLS            ListenerTLS `yaml:"tls"`
	Offsets        string      `yaml:"offsets"` // OffsetsPreserved or OffsetsTranslated
	Topics         Topics      `yaml:"topics"`
	Groups         Groups      `yaml:"groups"`
}

// BrokerPorts is the half-open range [Start, Start+Count): virtual broker n listens on Start+n.
type BrokerPorts struct {
	Start int `yaml:"start"` // default: the port of Listen plus one
	Count int `yaml:"count"`
}

// ListenerTLS is TLS towards clients; on when Cert is set. All are paths of PEM files.
type ListenerTLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	// CA verifies client certificates; needed unless ClientAuth is none.
	CA         string `yaml:"ca"`
	ClientAuth string `yaml:"client_auth"` // ClientAuthNone, ClientAuthOptional or ClientAuthRequired
}

// Enabled says whether clients must speak TLS.
func (t ListenerTLS) Enabled() bool { return t.Cert != "" }

// Topics selects the topics of a virtual cluster and names them on the other cluster.
type Topics struct {
	// Include and Exclude are regular expressions on the whole name; Exclude wins.
	Include []string `yaml:"include"`
	Exclude []string `yaml:"exclude"`
	Naming  Naming   `yaml:"naming"`
}

// Groups selects the consumer groups whose offsets are replicated, by regular expressions on the whole name.
type Groups struct {
	Include []string `yaml:"include"`
	Exclude []string `yaml:"exclude"`
}

// Naming gives the name on the standby of a topic as clients see it: identity if both fields are empty, never both.
// In YAML: `identity`, `{prefix: "{source}."}` or `{rename: {seen: there}}`.
type Naming struct {
	// Prefix is put before the name; SourcePlaceholder stands for the name of the cluster active at first.
	Prefix string `yaml:"prefix"`
	// Rename lists names that differ, as clients see them → on the standby; one to one.
	Rename map[string]string `yaml:"rename"`
}

// Identity says whether a topic has the same name on both clusters.
func (n Naming) Identity() bool { return n.Prefix == "" && len(n.Rename) == 0 }

// Replication governs the copying of records and group offsets.
type Replication struct {
	CheckpointInterval time.Duration `yaml:"checkpoint_interval"`
	// OnLostRange says what a partition does when retention on the source overtook us: LostRangeHalt or LostRangeSkip.
	OnLostRange string `yaml:"on_lost_range"`
	// RaiseProducerIDExpiration allows us to raise producer.id.expiration.ms on the standby while old backlog is copied.
	RaiseProducerIDExpiration bool `yaml:"raise_producer_id_expiration"`
	// InternalReplicationFactor is that of our own topics (journal, control, checkpoints); 0: min(3, brokers).
	InternalReplicationFactor int `yaml:"internal_replication_factor"`
}

// Cutover bounds what clients feel of a move.
type Cutover struct {
	// DrainTimeout is how long transactions that are open at the gate may take to finish.
	DrainTimeout time.Duration `yaml:"drain_timeout"`
	// MaxPause is how long the gate may stay shut; past it a move that is not yet committed goes back.
	MaxPause time.Duration `yaml:"max_pause"`
}

// Admin is the HTTP interface.
type Admin struct {
	Listen string `yaml:"listen"` // host:port
	// Token is asked of every caller of /v1; may be empty only on a loopback address.
	Token Secret `yaml:"token"`
}

// Log is how we log.
type Log struct {
	Level  string `yaml:"level"`  // trace, debug, info, warn or error
	Format string `yaml:"format"` // json or console
}

// Limits bound what clients can make us hold. Bytes are of buffered frames.
type Limits struct {
	FrameBytes      int `yaml:"frame_bytes"`      // the largest request or answer
	ConnectionBytes int `yaml:"connection_bytes"` // for one client connection
	TotalBytes      int `yaml:"total_bytes"`      // for the process
	Connections     int `yaml:"connections"`      // client connections of the process
}

// The words that the file may use where a list of values is given.
const (
	OffsetsPreserved  = "preserved"
	OffsetsTranslated = "translated"

	LostRangeHalt = "halt"
	LostRangeSkip = "skip"

	ClientAuthNone     = "none"
	ClientAuthOptional = "optional"
	ClientAuthRequired = "required"

	MechanismPlain       = "PLAIN"
	MechanismScramSHA256 = "SCRAM-SHA-256"
	MechanismScramSHA512 = "SCRAM-SHA-512"

	FormatJSON    = "json"
	FormatConsole = "console"

	// SourcePlaceholder in a prefix stands for the name of the cluster that is active at first.
	SourcePlaceholder = "{source}"
)
