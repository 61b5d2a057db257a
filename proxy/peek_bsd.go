//go:build unix && !linux

package proxy

// pollEnded is not known here.
const pollEnded = 0
