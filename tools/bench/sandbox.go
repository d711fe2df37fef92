package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berthos/berth/apps/appimage"
	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/machine/native"
	"github.com/berthos/berth/host/machine/qemu"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/policy"
)

const (
	starts     = 9        // of the native machine
	startsSlow = 3        // of an emulated one
	calls      = 2000     // of 1 KiB
	callsSlow  = 200      // of an emulated machine
	streamed   = 64 << 20 // bytes
)

// sandboxes measures starts, calls and streams on each machine.
func (b *bench) sandboxes(ctx context.Context) error {
	img, err := image.Open(image.Location{Dir: b.image, Source: "bench"}, image.Options{})
	if err != nil {
		return err
	}
	app, err := b.buildApp(ctx)
	if err != nil {
		return err
	}
	host, err := hostCalls(ctx, filepath.Join(b.work, "app", "bench"), calls)
	if err != nil {
		return err
	}
	var faults []error
	for _, m := range []struct {
		name          string
		machine       machine.Machine
		starts, calls int
	}{
		{"native", native.New(native.Options{}), starts, calls},
		{"qemu (emulated)", qemu.New(qemu.Options{Accel: qemu.TCG}), startsSlow, callsSlow},
	} {
		o := sandbox.Options{Machine: m.machine, Image: img, Apps: []sandbox.App{app}}
		if err := b.starts(ctx, m.name, o, m.starts); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", m.name, err))
			continue
		}
		faults = append(faults, b.running(ctx, m.name, o, m.calls, host), b.beside(ctx, m.name, o))
	}
	faults = append(faults, b.ready(ctx, img, app))
	return errors.Join(faults...)
}

// buildApp builds the bench's app and its policy.
func (b *bench) buildApp(ctx context.Context) (sandbox.App, error) {
	dir := filepath.Join(b.work, "app")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "bench"), "./tools/bench/app")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return sandbox.App{}, fmt.Errorf("cannot build the app: %w: %s", err, out)
	}
	var img bytes.Buffer
	code, _, err := appimage.Build(&img, dir)
	if err != nil {
		return sandbox.App{}, err
	}
	p := policy.Policy{
		Schema: policy.Schema, App: "bench", Version: "1.0.0", Code: code, Argv: []string{"/app/bench"},
		Rights: policy.Rights{Class: policy.ClassBase},
		Limits: policy.Limits{CPUMilli: 2000, MemoryMB: 128, Pids: 64}, Exports: []string{"copy", "echo", "hostile", "memory", "tsc"},
		Workers: []policy.Worker{{Name: "narrow", Rights: policy.Rights{Class: policy.ClassBase}, Exports: []string{"narrow"}}},
	}
	raw, err := p.Encode()
	return sandbox.App{Policy: raw, Image: img.Bytes()}, err
}

// starts measures the time from Start to the first call's answer.
func (b *bench) starts(ctx context.Context, name string, o sandbox.Options, n int) error {
	var took []time.Duration
	for range n {
		start := time.Now()
		sb, err := sandbox.Start(ctx, o)
		if err != nil {
			return err
		}
		_, err = sb.Call(ctx, sandbox.CallRequest{App: "bench", Export: "echo", Input: json.RawMessage(`{"text":"x"}`)})
		took = append(took, time.Since(start))
		if err := errors.Join(err, sb.Close(ctx)); err != nil {
			return err
		}
	}
	f := figure{Name: "start to first call, " + name + ", median", Value: ms(percentile(took, 50)), Unit: "ms"}
	if name == "native" {
		f.Target = "<= 150"
	}
	b.add(f)
	return nil
}

// running measures calls, a stream and memory in one sandbox.
func (b *bench) running(ctx context.Context, name string, o sandbox.Options, n int, host []time.Duration) error {
	sb, err := sandbox.Start(ctx, o)
	if err != nil {
		return err
	}
	defer sb.Close(ctx)
	if o.Machine.Name() != machine.Native {
		if err := b.memory(ctx, name, sb); err != nil {
			return err
		}
	}
	took, err := measureCalls(n, func(input json.RawMessage) error {
		_, err := sb.Call(ctx, sandbox.CallRequest{App: "bench", Export: "echo", Input: input})
		return err
	})
	if err != nil {
		return err
	}
	b.add(figure{Name: "call of 1 KiB, " + name + ", p50", Value: ms(percentile(took, 50)), Unit: "ms", Peer: ms(percentile(host, 50)), PeerIs: "same app, no sandbox", Target: target(name, "<= 1")},
		figure{Name: "call of 1 KiB, " + name + ", p99", Value: ms(percentile(took, 99)), Unit: "ms", Peer: ms(percentile(host, 99)), PeerIs: "same app, no sandbox"})
	narrow, err := measureCalls(n, func(input json.RawMessage) error {
		_, err := sb.Call(ctx, sandbox.CallRequest{App: "bench", Export: "narrow", Input: input})
		return err
	})
	if err != nil {
		return err
	}
	b.add(figure{Name: "call of an export's own process, " + name + ", p50", Value: ms(percentile(narrow, 50)), Unit: "ms", Peer: ms(percentile(took, 50)), PeerIs: "the app's main process", Target: target(name, "<= 1 more")})
	return b.stream(ctx, name, sb)
}

// memory is what the guest uses while the app runs, page cache included.
func (b *bench) memory(ctx context.Context, name string, sb *sandbox.Sandbox) error {
	used, err := number(ctx, sb, "memory")
	if err != nil {
		return err
	}
	b.add(figure{Name: "guest memory used, one app running, " + name, Value: float64(used) / (1 << 20), Unit: "MiB", Target: "<= 64"},
		figure{Name: "guest memory used before the app, " + name, Value: float64(sb.Booted().MemoryKiB) / 1024, Unit: "MiB"})
	return nil
}

// number calls an export that returns one.
func number(ctx context.Context, sb *sandbox.Sandbox, export string) (uint64, error) {
	out, err := sb.Call(ctx, sandbox.CallRequest{App: "bench", Export: export, Input: json.RawMessage(`{}`)})
	if err != nil {
		return 0, err
	}
	var n struct {
		N uint64 `json:"n"`
	}
	if err := json.Unmarshal(out, &n); err != nil {
		return 0, fmt.Errorf("cannot read the answer of %s: %w", export, err)
	}
	return n.N, nil
}

func target(name, t string) string {
	if name == "native" {
		return t
	}
	return ""
}

// stream sends bytes to the app and back and compares their digests.
func (b *bench) stream(ctx context.Context, name string, sb *sandbox.Sandbox) error {
	up, down := sha256.New(), sha256.New()
	source := io.TeeReader(io.LimitReader(random{rand.NewChaCha8([32]byte{1})}, streamed), up)
	start := time.Now()
	_, err := sb.Call(ctx, sandbox.CallRequest{App: "bench", Export: "copy", Input: json.RawMessage(`{}`), Upload: source, Download: down})
	if err != nil {
		return err
	}
	if !equal(up, down) {
		return errors.New("the bytes that came back are not those that were sent")
	}
	b.add(figure{Name: "64 MiB there and back on a raw stream, " + name, Value: 2 * streamed / mb / time.Since(start).Seconds(), Unit: "MB/s", Target: target(name, ">= 100")})
	return nil
}

type random struct{ c *rand.ChaCha8 }

func (r random) Read(p []byte) (int, error) { return r.c.Read(p) }

func equal(a, b hash.Hash) bool { return bytes.Equal(a.Sum(nil), b.Sum(nil)) }

// measureCalls times n calls of 1 KiB, after a few that warm up.
func measureCalls(n int, call func(json.RawMessage) error) ([]time.Duration, error) {
	input := json.RawMessage(`{"text":"` + strings.Repeat("x", 1024) + `"}`)
	var took []time.Duration
	for i := range n + 20 {
		start := time.Now()
		if err := call(input); err != nil {
			return nil, err
		}
		if i >= 20 {
			took = append(took, time.Since(start))
		}
	}
	return took, nil
}

func percentile(d []time.Duration, p int) time.Duration {
	s := slices.Sorted(slices.Values(d))
	return s[min(len(s)-1, len(s)*p/100)]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
