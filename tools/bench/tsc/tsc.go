//go:build amd64

// Package tsc reads the processor's time stamp counter. Under QEMU's -icount
// shift=0 with a counter of 1 GHz it counts guest instructions since reset.
package tsc

// Read returns the counter.
func Read() uint64
