package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchback-proxy/switchback/test/proc"
)

// zooKeeper says whether the brokers are of a version that keeps its metadata in ZooKeeper here: before 3.0.
func (o Options) zooKeeper() bool {
	return strings.HasPrefix(o.Version, "2.")
}

// zooKeeperAddr is on the port that broker 0 does not need for a controller.
func (c *Cluster) zooKeeperAddr() string { return c.address(host, 0, 1) }

func (c *Cluster) prepareZooKeeper(t testing.TB) {
	t.Helper()
	_, port, _ := strings.Cut(c.zooKeeperAddr(), ":")
	text := fmt.Sprintf("dataDir=%s\nclientPortAddress=%s\nclientPort=%s\nadmin.enableServer=false\ntickTime=1000\nmaxClientCnxns=0\n",
		filepath.Join(c.dir, c.Name+"-zookeeper"), host, port)
	if err := os.WriteFile(filepath.Join(c.dir, "zookeeper.properties"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// launchZooKeeper does not wait: brokers do.
func (c *Cluster) launchZooKeeper(t testing.TB) {
	t.Helper()
	proc.Start(t, proc.Config{
		Name: c.Name + " ZooKeeper", Path: "java", Output: filepath.Join(c.dir, c.Name+"-zookeeper.log"),
		Args: append(c.javaArgs(t), "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(c.dir, "zookeeper.properties")),
	})
}

// onZooKeeper turns the properties of a KRaft broker into those of one with ZooKeeper.
func (c *Cluster) onZooKeeper(props map[string]string, i int) {
	for key := range props {
		if strings.HasPrefix(key, "share.") {
			delete(props, key)
		}
	}
	for _, key := range []string{"process.roles", "node.id", "controller.quorum.voters", "controller.listener.names"} {
		delete(props, key)
	}
	props["broker.id"] = fmt.Sprint(c.Node(i))
	props["zookeeper.connect"] = c.zooKeeperAddr()
	props["listeners"] = c.listeners(i, host)
	props["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT"
}
