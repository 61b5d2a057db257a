package testkit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken from below the range from which systems give ports to outgoing connections and to listeners on port 0, so
// that what another test does in the meantime does not take them.
const (
	firstPort = 10_000
	endPort   = 32_000
)

// FreePorts finds n ports in a row on loopback that nobody listens on now, and returns the first. It begins at a place of its
// own each time: tests in other processes look at the same moment.
func FreePorts(n int) (int, error) {
	for range 1000 {
		first := firstPort + rand.IntN(endPort-firstPort-n)
		if allFree(first, n) {
			return first, nil
		}
	}
	return 0, errors.New("no free ports in a row on loopback")
}

func allFree(first, n int) bool {
	for port := first; port < first+n; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}
