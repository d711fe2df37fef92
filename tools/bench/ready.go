package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine/qemu"
	"github.com/berthos/berth/host/sandbox"
)

// ready counts the instructions from reset until the app reads the counter in
// its first call: the whole boot, from the verified root, with enforcement.
func (b *bench) ready(ctx context.Context, img *image.Image, app sandbox.App) error {
	sb, err := sandbox.Start(ctx, sandbox.Options{
		Machine: qemu.New(qemu.Options{Accel: qemu.TCG, CountInstructions: true}), Image: img, Apps: []sandbox.App{app},
	})
	if err != nil {
		return err
	}
	defer sb.Close(ctx)
	out, err := sb.Call(ctx, sandbox.CallRequest{App: "bench", Export: "tsc", Input: json.RawMessage(`{}`)})
	if err != nil {
		return err
	}
	var n struct {
		N uint64 `json:"n"`
	}
	if err := json.Unmarshal(out, &n); err != nil {
		return fmt.Errorf("cannot read the counter: %w", err)
	}
	b.add(figure{Name: "guest instructions to an app's first call", Value: float64(n.N) / 1e6, Unit: "M"})
	return nil
}
