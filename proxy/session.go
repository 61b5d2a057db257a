package proxy

// session is one client connection.
type session struct {
	p    *Proxy
	node int32 // virtual node that the client connected to; -1: bootstrap
}
