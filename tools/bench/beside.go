package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/policy"
)

// besideFor is how long a hostile app is left at it.
const besideFor = 4 * time.Second

// beside measures calls of an app while another of the same sandbox takes all
// that it can get of something.
func (b *bench) beside(ctx context.Context, name string, o sandbox.Options) error {
	quiet := o.Apps[0]
	hostile, err := renamed(quiet, "hostile")
	if err != nil {
		return err
	}
	o.Apps = []sandbox.App{quiet, hostile}
	sb, err := sandbox.Start(ctx, o)
	if err != nil {
		return err
	}
	defer sb.Close(ctx)
	idle, err := callsFor(ctx, sb, besideFor/2, nil)
	if err != nil {
		return err
	}
	for _, kind := range []string{"cpu", "fork", "memory", "log", "denied"} {
		done := make(chan error, 1)
		go func() {
			input := fmt.Sprintf(`{"kind":%q,"seconds":%d}`, kind, int(besideFor.Seconds()))
			_, err := sb.Call(ctx, sandbox.CallRequest{App: "hostile", Export: "hostile", Input: json.RawMessage(input)})
			done <- err
		}()
		took, err := callsFor(ctx, sb, besideFor, done)
		if err != nil {
			return fmt.Errorf("beside an app that goes for %s: %w", kind, err)
		}
		b.add(figure{Name: "call beside a hostile app (" + kind + "), " + name + ", p99", Value: ms(percentile(took, 99)), Unit: "ms", Peer: ms(percentile(idle, 99)), PeerIs: "beside an idle app", Target: "<= 1000"})
		if err := sb.Replace(ctx, hostile); err != nil { // what it started is gone
			return err
		}
	}
	return nil
}

// callsFor times calls until the hostile app is done; how that ended does not
// matter, as one may be killed for it.
func callsFor(ctx context.Context, sb *sandbox.Sandbox, most time.Duration, done <-chan error) (took []time.Duration, err error) {
	for end := time.Now().Add(most); time.Now().Before(end); {
		begin := time.Now()
		if _, err := sb.Call(ctx, sandbox.CallRequest{App: "bench", Export: "echo", Input: json.RawMessage(`{"text":"x"}`)}); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin))
		time.Sleep(5 * time.Millisecond) // an ordinary caller
	}
	if done != nil {
		select {
		case <-done:
		case <-time.After(10 * time.Second):
		}
	}
	if len(took) == 0 {
		return nil, errors.New("no call was answered")
	}
	return took, nil
}

// renamed is the same app under another name.
func renamed(a sandbox.App, name string) (sandbox.App, error) {
	p, err := policy.Parse(a.Policy)
	if err != nil {
		return a, err
	}
	p.App = name
	p.Limits.CPUMilli = 1000
	a.Policy, err = p.Encode()
	return a, err
}
