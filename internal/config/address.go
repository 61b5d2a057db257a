package config

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// splitAddress takes host:port apart. The host may be empty (every address), the port is 1–65535 in digits.
func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, errors.New("it is not host:port")
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil || number == 0 {
		return "", 0, errors.New("the port is not a number from 1 to 65535")
	}
	if host != "" && !isHost(host) {
		return "", 0, errors.New("the host is neither a name nor an IP address")
	}
	return host, int(number), nil
}

// isHost accepts an IP address without brackets, or a host name as DNS allows it (underscores too, as many sites do).
func isHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	host = strings.TrimSuffix(host, ".")
	if host == "" || len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		if strings.ContainsFunc(label, func(r rune) bool { return !isAlphanumeric(r) && r != '-' && r != '_' }) {
			return false
		}
	}
	return true
}

func isAlphanumeric(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// isWildcard says whether listening on host means every address, so that no client could be told to connect to it.
func isWildcard(host string) bool {
	if host == "" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsUnspecified()
}

func isLoopback(host string) bool {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// sameHost is for hosts as written: names are not looked up, but localhost is one with the loopback addresses, and an
// IPv4 address with its IPv6 form.
func sameHost(a, b string) bool {
	if isLoopback(a) && isLoopback(b) {
		return canonicalHost(a) == canonicalHost(b) || isLocalName(a) || isLocalName(b)
	}
	return canonicalHost(a) == canonicalHost(b)
}

func isLocalName(host string) bool {
	_, err := netip.ParseAddr(host)
	return err != nil
}

func canonicalHost(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// portRange is [start, end) on one host, taken by the value at path.
type portRange struct {
	path       string
	host       string
	start, end int
}

// overlaps says whether both would bind one port. A wildcard takes the port on every address.
func (r portRange) overlaps(o portRange) bool {
	ports := r.start < o.end && o.start < r.end
	return ports && (isWildcard(r.host) || isWildcard(o.host) || sameHost(r.host, o.host))
}
