package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// full is DESIGN's example with every key that there is.
const full = `
instance: proxy-1
clusters:
  blue:
    bootstrap: ["b1.example.com:9092", "b2.example.com:9092"]
    tls: {enabled: true, ca: ca.pem, cert: cert.pem, key: key.pem, server_name: blue.example.com}
    sasl: {mechanism: SCRAM-SHA-512, username: switchback, password: "${BLUE_PASSWORD}"}
  green: {bootstrap: ["g1.example.com:9092"], tls: {}, sasl: {}}
virtual_clusters:
  - name: main
    active: blue
    standby: green
    listen: 0.0.0.0:9092
    broker_ports: {start: 9100, count: 8}
    advertised_host: kafka.example.com
    tls: {cert: cert.pem, key: key.pem, ca: ca.pem, client_auth: required}
    offsets: preserved
    topics: {include: ["orders.*"], exclude: ["orders\\.tmp"], naming: {prefix: "{source}."}}
    groups: {include: ["app-.*"], exclude: ["app-test"]}
replication: {checkpoint_interval: 3s, on_lost_range: skip, raise_producer_id_expiration: false, internal_replication_factor: 2}
cutover: {drain_timeout: 4s, max_pause: 20s}
admin: {listen: 0.0.0.0:8080, token: "${SWITCHBACK_TOKEN}"}
log: {level: debug, format: console}
limits: {frame_bytes: 1000, connection_bytes: 2000, total_bytes: 4_000, connections: 5}
`

// small is the least that is valid.
const small = `
clusters:
  blue: {bootstrap: ["b1:9092"]}
  green: {bootstrap: ["g1:9092"]}
virtual_clusters:
  - name: main
    active: blue
    standby: green
    listen: 127.0.0.1:9092
`

// closed is a set of surroundings without any file, and with two variables.
func closed() surroundings {
	env := map[string]string{"BLUE_PASSWORD": "hunter2", "SWITCHBACK_TOKEN": "s3cr3t", "EMPTY": ""}
	return surroundings{
		lookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
		readFile:  func(string) ([]byte, error) { return nil, errors.New("no such file") },
	}
}

func mustParse(t *testing.T, text string) *Config {
	t.Helper()
	c, problems := parse([]byte(text), closed())
	if err := problems.err(); err != nil {
		t.Fatalf("refused:\n%v", err)
	}
	return c
}

func TestEveryKeyIsRead(t *testing.T) {
	c := mustParse(t, full)
	c.lines = nil
	want := &Config{
		Instance: "proxy-1",
		Clusters: map[string]Cluster{
			"blue": {
				Bootstrap: []string{"b1.example.com:9092", "b2.example.com:9092"},
				TLS:       ClusterTLS{Enabled: true, CA: "ca.pem", Cert: "cert.pem", Key: "key.pem", ServerName: "blue.example.com"},
				SASL:      SASL{Mechanism: "SCRAM-SHA-512", Username: "switchback", Password: "hunter2"},
			},
			"green": {Bootstrap: []string{"g1.example.com:9092"}},
		},
		VirtualClusters: []VirtualCluster{{
			Name: "main", Active: "blue", Standby: "green", Listen: "0.0.0.0:9092",
			BrokerPorts: BrokerPorts{Start: 9100, Count: 8}, AdvertisedHost: "kafka.example.com",
			TLS:     ListenerTLS{Cert: "cert.pem", Key: "key.pem", CA: "ca.pem", ClientAuth: "required"},
			Offsets: "preserved",
			Topics:  Topics{Include: []string{"orders.*"}, Exclude: []string{`orders\.tmp`}, Naming: Naming{Prefix: "{source}."}},
			Groups:  Groups{Include: []string{"app-.*"}, Exclude: []string{"app-test"}},
		}},
		Replication: Replication{CheckpointInterval: 3 * time.Second, OnLostRange: "skip", InternalReplicationFactor: 2},
		Cutover:     Cutover{DrainTimeout: 4 * time.Second, MaxPause: 20 * time.Second},
		Admin:       Admin{Listen: "0.0.0.0:8080", Token: "s3cr3t"},
		Log:         Log{Level: "debug", Format: "console"},
		Limits:      Limits{FrameBytes: 1000, ConnectionBytes: 2000, TotalBytes: 4000, Connections: 5},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("read   %+v\nwanted %+v", c, want)
	}
}

func TestDefaultsHoldWhereTheFileIsSilent(t *testing.T) {
	c := mustParse(t, small)
	v := c.VirtualClusters[0]
	if v.BrokerPorts != (BrokerPorts{Start: 9093, Count: 16}) || v.AdvertisedHost != "127.0.0.1" || v.Offsets != OffsetsPreserved {
		t.Errorf("listener defaults: %+v", v)
	}
	if !reflect.DeepEqual(v.Topics, Topics{Include: []string{".*"}}) || !v.Topics.Naming.Identity() || v.TLS.Enabled() {
		t.Errorf("topic defaults: %+v, TLS %+v", v.Topics, v.TLS)
	}
	if c.Replication.CheckpointInterval != 5*time.Second || c.Cutover != (Cutover{5 * time.Second, 30 * time.Second}) {
		t.Errorf("timing defaults: %+v %+v", c.Replication, c.Cutover)
	}
	host, _ := os.Hostname()
	if c.Instance != host+":8080" {
		t.Errorf("instance %q, wanted the host name and the admin port", c.Instance)
	}
}

func TestAWrittenZeroIsJudgedAsZero(t *testing.T) {
	wantProblem(t, small+"limits: {connections: 0}\n", "limits.connections", "above zero")
}

func TestNullMeansTheDefault(t *testing.T) {
	c := mustParse(t, small+"cutover:\nlog: {level: ~}\n")
	if c.Cutover.MaxPause != 30*time.Second || c.Log.Level != "info" {
		t.Errorf("%+v %+v", c.Cutover, c.Log)
	}
}

func TestVariablesAreResolvedOnce(t *testing.T) {
	t.Setenv("SWITCHBACK_TEST_PASSWORD", "${NOT_LOOKED_AT} file:/etc/shadow")
	text := strings.Replace(small, `["b1:9092"]`, `["b1:9092"], sasl: {mechanism: PLAIN, username: "a$b $${c}", password: "${SWITCHBACK_TEST_PASSWORD}"}`, 1)
	c, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	sasl := c.Clusters["blue"].SASL
	if sasl.Username != "a$b ${c}" || sasl.Password.Reveal() != "${NOT_LOOKED_AT} file:/etc/shadow" {
		t.Errorf("user %q, password %q", sasl.Username, sasl.Password.Reveal())
	}
}

func TestASecretFileIsReadBesideTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "token"), "from-file\n")
	path := filepath.Join(dir, "switchback.yaml")
	write(t, path, small+"admin: {listen: \"127.0.0.1:8080\", token: file:token}\n")
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Admin.Token.Reveal(); got != "from-file" {
		t.Errorf("token %q", got)
	}
}

func TestLoadNamesTheFileInEveryLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "switchback.yaml")
	write(t, path, small+"log: {level: loud}\ncutovr: {}\n")
	_, err := Load(path)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		if !strings.HasPrefix(line, path+": line ") {
			t.Errorf("no place in %q", line)
		}
	}
}

func TestLoadReportsMissingPEMFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "switchback.yaml")
	write(t, filepath.Join(filepath.Dir(path), "ca.pem"), "this is no certificate")
	write(t, path, strings.Replace(small, `["b1:9092"]`, `["b1:9092"], tls: {enabled: true, ca: ca.pem, cert: c.pem, key: k.pem}`, 1))
	_, err := Load(path)
	for _, want := range []string{"clusters.blue.tls.ca: ", "holds no certificate", "clusters.blue.tls.cert: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

func TestAMissingFileIsAnErrorOfItsOwn(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.yaml"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
