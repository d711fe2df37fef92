package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	berth "github.com/berthos/berth/sdk/go"
)

// peer is one of several apps: it does things that others could notice, looks
// for what others did, and calls them. "narrow" does the same as "do" and is
// meant for a worker.
func peer() error {
	app := berth.New(os.Getenv("BERTH_APP"))
	berth.Export(app, "do", "Does something.", do)
	berth.Export(app, "narrow", "Does something with fewer rights.", do)
	berth.Export(app, "invoke", "Calls another app.", invoke)
	berth.Export(app, "who", "Says who calls, and who it is.", func(ctx context.Context, _ none) (text, error) {
		return text{fmt.Sprintf("caller=%q app=%s exports=%q", berth.Caller(ctx), os.Getenv("BERTH_APP"), os.Getenv("BERTH_EXPORTS"))}, nil
	})
	berth.Export(app, "wait", "Waits for ever.", wait)
	berth.Export(app, "die", "Ends the process.", die)
	return app.Serve(context.Background())
}

type doIn struct {
	What string `json:"what"`
	Arg  string `json:"arg,omitempty"`
	Text string `json:"text,omitempty"`
}

// listening must last.
var listening []net.Listener

const shmKey = 0x6265727

// do returns what a system call did; a refusal is its result, or with the text
// "fail" its error.
func do(_ context.Context, in doIn) (text, error) {
	out, err := act(in)
	if err != nil && in.Text == "fail" {
		return text{}, err
	}
	if err != nil {
		return text{"error: " + err.Error()}, nil
	}
	return text{out}, nil
}

func act(in doIn) (string, error) {
	switch in.What {
	case "read":
		raw, err := os.ReadFile(in.Arg)
		return string(raw), err
	case "write":
		return "", os.WriteFile(in.Arg, []byte(in.Text), 0o644)
	case "env":
		return os.Getenv(in.Arg), nil
	case "listen":
		network, address, _ := strings.Cut(in.Arg, " ")
		l, err := net.Listen(network, address)
		listening = append(listening, l)
		return "", err
	case "dial":
		network, address, _ := strings.Cut(in.Arg, " ")
		c, err := net.Dial(network, address)
		if err == nil {
			c.Close()
		}
		return "", err
	case "make shm":
		_, err := unix.SysvShmGet(shmKey, 4096, unix.IPC_CREAT|0o666)
		return "", err
	case "find shm":
		_, err := unix.SysvShmGet(shmKey, 0, 0)
		return "", err
	case "spawn":
		cmd := exec.Command("/app/probe", "sleep", in.Arg)
		return "", cmd.Start()
	case "processes":
		return commands(), nil
	case "kill all":
		return "", syscall.Kill(-1, syscall.SIGKILL)
	case "grep proc":
		return grepProc(in.Arg)
	}
	return "", errors.New("no such thing to do")
}

func commands() string {
	var all []string
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		raw, _ := os.ReadFile(f)
		all = append(all, strings.ReplaceAll(string(raw), "\x00", " "))
	}
	return strings.Join(all, "\n")
}

// grepProc names what of /proc, but for this process, has a text.
func grepProc(want string) (string, error) {
	var found []string
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	more, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range append(append(files, more...), "/proc/cmdline") {
		if strings.HasPrefix(f, fmt.Sprintf("/proc/%d/", os.Getpid())) {
			continue
		}
		if raw, err := os.ReadFile(f); err == nil && bytes.Contains(raw, []byte(want)) {
			found = append(found, f)
		}
	}
	return strings.Join(found, " "), nil
}

type invokeIn struct {
	App    string `json:"app"`
	Export string `json:"export"`
	Input  doIn   `json:"input"`
}

func invoke(ctx context.Context, in invokeIn) (text, error) {
	var out text
	var input any = in.Input
	if in.Export == "who" {
		input = none{}
	}
	err := berth.Invoke(ctx, in.App, in.Export, input, &out)
	return out, err
}
