package main

import (
	"context"

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
	n, err := number(ctx, sb, "tsc")
	if err != nil {
		return err
	}
	b.add(figure{Name: "guest instructions to an app's first call", Value: float64(n) / 1e6, Unit: "M"})
	return nil
}
