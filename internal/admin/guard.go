package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/switchback-proxy/switchback/internal/cutover"
)

// guard says why a request is not answered; nil if it is. A page of another origin never is: a browser on the operator's
// machine would lend it the loopback address.
func (s *Server) guard(r *http.Request) error {
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || u.Host != r.Host {
			return &cutover.Error{Code: codeForbidden, Message: "requests of another origin are not answered", Hint: "use the console of this address, or the command line"}
		}
	}
	if s.cfg.Token != "" {
		if !sameToken(bearer(r), s.cfg.Token) {
			return &cutover.Error{Code: codeUnauthorised, Message: "the token is missing or wrong", Hint: "set SWITCHBACK_TOKEN, or send Authorization: Bearer"}
		}
		return nil
	}
	if !isLoopback(r.RemoteAddr) || !isLoopback(r.Host) {
		return &cutover.Error{Code: codeForbidden, Message: "without a token only this machine is answered", Hint: "set admin.token, or ask on a loopback address"}
	}
	return nil
}

func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") { // its case does not matter: RFC 9110
		return ""
	}
	return token
}

// sameToken takes the same time for every wrong token of any length.
func sameToken(got, want string) bool {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// isLoopback takes host, host:port or [host]:port.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
