package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

type denyIn struct {
	How   string `json:"how,omitempty"` // thread, grandchild, unshare, truncate; else a create
	Path  string `json:"path,omitempty"`
	Times int    `json:"times,omitempty"`
}

// deny does what is refused and keeps the error to itself.
func deny(_ context.Context, in denyIn) (text, error) {
	refused := 0
	for range max(in.Times, 1) {
		if try(in) != nil {
			refused++
		}
	}
	return text{fmt.Sprint(refused)}, nil
}

func try(in denyIn) error {
	switch in.How {
	case "thread":
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // and never unlocks: a thread of its own
			done <- create(in.Path)
		}()
		return <-done
	case "grandchild":
		return exec.Command("/app/probe", "child", in.Path).Run()
	case "unshare":
		return unix.Unshare(0)
	case "truncate":
		return os.Truncate(in.Path, 0)
	}
	return create(in.Path)
}

func create(path string) error {
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_WRONLY, 0o600)
	if err == nil {
		syscall.Close(fd)
	}
	return err
}

// descend starts a grandchild, which is refused and ends with 1.
func descend(what, path string) {
	if what == "child" {
		if exec.Command("/app/probe", "grandchild", path).Run() != nil {
			os.Exit(1)
		}
	} else if create(path) != nil {
		os.Exit(1)
	}
}
