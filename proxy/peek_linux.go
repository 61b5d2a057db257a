package proxy

import "golang.org/x/sys/unix"

// pollEnded: the other side sends no more. Kafka clients do not close one direction alone.
const pollEnded = unix.POLLRDHUP
