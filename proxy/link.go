package proxy

// link is our connection to one real broker for one session and one generation.
type link struct{}
