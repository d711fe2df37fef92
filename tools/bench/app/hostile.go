package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

type hostileIn struct {
	Kind    string `json:"kind"`
	Seconds int    `json:"seconds"`
}

// hostile takes all that it can get of something.
func hostile(_ context.Context, in hostileIn) (number, error) {
	step, ok := map[string]func(n uint64){"cpu": spin, "fork": fork, "memory": memory, "log": log, "denied": denied}[in.Kind]
	if !ok {
		return number{}, fmt.Errorf("no kind %q", in.Kind)
	}
	if in.Kind == "cpu" {
		for range 8 {
			go func() {
				for {
					spin(0)
				}
			}()
		}
	}
	n := uint64(0)
	for end := time.Now().Add(time.Duration(in.Seconds) * time.Second); time.Now().Before(end); n++ {
		step(n)
	}
	return number{n}, nil
}

func spin(uint64) {
	for n := 0; n < 1e6; n++ {
		_ = n
	}
}

// fork makes processes that make processes, until there may be no more.
func fork(uint64) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"BENCH_FORK=1"}
	if cmd.Start() == nil {
		go func() { _ = cmd.Wait() }()
	}
}

var held [][]byte

func memory(uint64) { held = append(held, bytes.Repeat([]byte{1}, 1<<20)) }

func log(n uint64) { fmt.Printf("line %d of a flood of lines of an app that has nothing to say\n", n) }

func denied(uint64) {
	_ = os.WriteFile("/tmp/denied", nil, 0o600)
	_ = syscall.Mount("none", "/tmp", "tmpfs", 0, "")
}

// forked is the life of a process of fork.
func forked() int {
	for {
		fork(0)
		spin(0)
	}
}
