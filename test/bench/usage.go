package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is USER_HZ: 100 on every Linux that Go runs on, whatever the kernel's own clock.
const ticksPerSecond = 100

// cpuOf is what a process has used, user and system, to the nearest 10 ms.
func cpuOf(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStat(b)
}

// parseStat adds up fields 14 and 15. The second field is a name in brackets that may hold anything.
func parseStat(b []byte) (time.Duration, error) {
	_, rest, ok := bytes.Cut(b, []byte(") "))
	if i := bytes.LastIndex(b, []byte(") ")); ok {
		rest = b[i+2:]
	}
	fields := strings.Fields(string(rest))
	if !ok || len(fields) < 13 {
		return 0, fmt.Errorf("no process status: %q", b)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	if err != nil {
		return 0, err
	}
	return time.Duration(user+system) * time.Second / ticksPerSecond, nil
}

// memory is in bytes.
type memory struct{ now, peak int64 }

func memoryOf(pid int) (memory, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}, err
	}
	return memory{now: statusField(string(b), "VmRSS:"), peak: statusField(string(b), "VmHWM:")}, nil
}

func statusField(status, name string) int64 {
	for line := range strings.Lines(status) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == name && fields[2] == "kB" {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			return n << 10
		}
	}
	return 0
}

// resetPeak makes the kernel begin anew with VmHWM.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}
