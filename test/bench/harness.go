package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
)

// harness stands in for a test, so that the packages that start brokers for tests do it for us. It has what they call; anything
// else of testing.TB panics, since the embedded one is nil.
type harness struct {
	testing.TB
	log      io.Writer
	dir      string
	cleanups []func()
	failed   error
}

// fatal is what Fatal panics with, and within catches.
type fatal struct{ err error }

// within runs f, and then what f had cleaned up, in reverse order. Fatal and Error inside f become the error.
func within(log io.Writer, f func(h *harness) error) (err error) {
	dir, err := os.MkdirTemp("", "switchback-bench-")
	if err != nil {
		return err
	}
	h := &harness{log: log, dir: dir}
	h.Cleanup(func() { os.RemoveAll(dir) })
	defer func() {
		for _, clean := range slices.Backward(h.cleanups) {
			clean()
		}
	}()
	defer func() {
		if r := recover(); r != nil {
			ended, ok := r.(fatal)
			if !ok {
				panic(r)
			}
			err = ended.err
		}
		err = errors.Join(err, h.failed)
	}()
	return f(h)
}

func (h *harness) Helper()                    {}
func (h *harness) Name() string               { return "bench" }
func (h *harness) Cleanup(f func())           { h.cleanups = append(h.cleanups, f) }
func (h *harness) Log(args ...any)            { fmt.Fprintln(h.log, args...) }
func (h *harness) Logf(f string, args ...any) { fmt.Fprintf(h.log, f+"\n", args...) }
func (h *harness) Error(args ...any) {
	h.failed = errors.Join(h.failed, errors.New(fmt.Sprint(args...)))
}
func (h *harness) Errorf(f string, a ...any) { h.Error(fmt.Sprintf(f, a...)) }
func (h *harness) Fatal(args ...any)         { panic(fatal{errors.New(fmt.Sprint(args...))}) }
func (h *harness) Fatalf(f string, a ...any) { h.Fatal(fmt.Sprintf(f, a...)) }
func (h *harness) Failed() bool              { return h.failed != nil }
func (h *harness) TempDir() string {
	dir, err := os.MkdirTemp(h.dir, "")
	if err != nil {
		h.Fatal(err)
	}
	return dir
}
