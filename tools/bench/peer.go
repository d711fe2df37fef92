package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/berthos/berth/sdk/protocol"
)

// hostCalls runs the app as an ordinary process, without any sandbox, and
// times calls over its socket.
func hostCalls(ctx context.Context, app string, n int) ([]time.Duration, error) {
	name := filepath.Join(filepath.Dir(app), "sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	f, err := l.File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, app)
	cmd.ExtraFiles = []*os.File{f} // becomes descriptor 3
	cmd.Env = []string{protocol.EnvListenFD + "=3"}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the app without a sandbox: %w", err)
	}
	defer cmd.Wait()
	defer cancel()
	return measureCalls(n, func(input json.RawMessage) error {
		conn, err := net.Dial("unix", name)
		if err != nil {
			return err
		}
		_, err = protocol.Call(ctx, conn, protocol.Request{ID: "1", Export: "echo", Input: input}, nil)
		return err
	})
}
