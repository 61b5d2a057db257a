package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/switchback-proxy/switchback/test/bench/load"
	"github.com/switchback-proxy/switchback/test/bench/relay"
)

// Children are this program again, so that their CPU is counted apart. A child reads its order as one line of JSON from standard
// input and ends when that is closed, so none outlives us, however we end. It answers with lines of JSON.
type child struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *json.Decoder
	stderr *bytes.Buffer
}

func startChild(name string, order any) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{name: name, cmd: exec.Command(self, name), stderr: new(bytes.Buffer)}
	c.cmd.Stderr = c.stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.stdout = json.NewDecoder(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := json.NewEncoder(c.stdin).Encode(order); err != nil {
		return nil, errors.Join(fmt.Errorf("order to %s: %w", name, err), c.stop())
	}
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// stop lets the child end, and waits.
func (c *child) stop() error {
	c.stdin.Close()
	kill := time.AfterFunc(10*time.Second, func() { c.cmd.Process.Kill() })
	defer kill.Stop()
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", c.name, err, bytes.TrimSpace(c.stderr.Bytes()))
	}
	return nil
}

// message is what children say.
type message struct {
	Addresses []string     `json:",omitempty"` // a relay listens
	Begin     bool         `json:",omitempty"` // the window of a load has opened
	End       bool         `json:",omitempty"` // and closed
	Result    *load.Result `json:",omitempty"`
}

// readOrder reads a child's order. The context that it returns ends with standard input.
func readOrder(ctx context.Context, order any) (context.Context, error) {
	in := json.NewDecoder(os.Stdin)
	if err := in.Decode(order); err != nil {
		return nil, fmt.Errorf("read order: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		io.Copy(io.Discard, io.MultiReader(in.Buffered(), os.Stdin))
		cancel(errors.New("the parent has ended"))
	}()
	return ctx, nil
}

func serveRelay(ctx context.Context) error {
	var config relay.Config
	ctx, err := readOrder(ctx, &config)
	if err != nil {
		return err
	}
	r, err := relay.Start(ctx, config)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(message{Addresses: r.Addresses()}); err != nil {
		return err
	}
	r.Wait()
	return nil
}

func serveLoad(ctx context.Context) error {
	var job load.Job
	ctx, err := readOrder(ctx, &job)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	result, err := load.Run(ctx, job, func() { out.Encode(message{Begin: true}) }, func() { out.Encode(message{End: true}) })
	if err != nil {
		return err
	}
	return out.Encode(message{Result: &result})
}

// runLoad runs a job in a child. at is called as the window opens (true) and closes (false).
func runLoad(ctx context.Context, job load.Job, at func(begin bool)) (load.Result, error) {
	c, err := startChild("load", job)
	if err != nil {
		return load.Result{}, err
	}
	defer context.AfterFunc(ctx, func() { c.cmd.Process.Kill() })()
	var result *load.Result
	for result == nil {
		var m message
		if err := c.stdout.Decode(&m); err != nil {
			return load.Result{}, errors.Join(c.stop(), context.Cause(ctx), errIf(!errors.Is(err, io.EOF), err))
		}
		if at != nil && (m.Begin || m.End) {
			at(m.Begin)
		}
		result = m.Result
	}
	return *result, c.stop()
}

func errIf(really bool, err error) error {
	if really {
		return err
	}
	return nil
}
