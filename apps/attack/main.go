// Attack is the app that tries what a sandbox must refuse. It is started by
// berth test --attack and has two exports: attack carries out an order of
// package probe, die ends the process.
//
//	attack               serves
//	attack hold TOKEN    serves, and holds what another app is to go after
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/berthos/berth/init/sandbox/probe"
	"github.com/berthos/berth/sdk/protocol"
	"golang.org/x/sys/unix"
)

func main() {
	if code, ok := probe.Maybe(os.Args, os.Stdout); ok {
		os.Exit(code)
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 2 && args[0] == "hold" {
		if err := probe.Neighbour(args[1]).Hold(); err != nil {
			return fmt.Errorf("cannot hold what a victim has: %w", err)
		}
	}
	fd, err := strconv.Atoi(os.Getenv(protocol.EnvListenFD))
	if err != nil {
		return fmt.Errorf("cannot serve: %s is no number", protocol.EnvListenFD)
	}
	unix.CloseOnExec(fd)
	for {
		conn, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED):
			continue
		case err != nil:
			return fmt.Errorf("cannot accept a connection: %w", err)
		}
		go serve(os.NewFile(uintptr(conn), "connection"))
	}
}

// serve answers the one request of a connection.
func serve(conn *os.File) {
	defer conn.Close()
	r, w := protocol.NewReader(conn), protocol.NewWriter(conn)
	q, err := r.Request()
	if err != nil {
		return
	}
	switch q.Type {
	case protocol.TypeHello:
		if w.Message(protocol.Message{Type: protocol.TypeAnnounce, Protocol: protocol.Version, Exports: exports()}) != nil {
			return
		}
		if q, err := r.Request(); err == nil && q.Type == protocol.TypeShutdown {
			os.Exit(0)
		}
	case protocol.TypeCall:
		m := protocol.Message{Type: protocol.TypeResult}
		if m.Output, err = call(q); err != nil {
			m = protocol.Message{Type: protocol.TypeError, Error: &protocol.Error{Code: protocol.CodeFailed, Message: err.Error()}}
		}
		_ = w.Message(m) // whoever asked may be gone
	}
}

// exports are those of this process.
func exports() (list []protocol.Export) {
	names := "attack,die"
	if some, set := os.LookupEnv(protocol.EnvExports); set {
		names = some
	}
	for name := range strings.SplitSeq(names, ",") {
		list = append(list, protocol.Export{Name: name})
	}
	return list
}

func call(q protocol.Request) (json.RawMessage, error) {
	if q.Export == "die" {
		os.Exit(3)
	}
	var in struct {
		Order probe.Order `json:"order"`
	}
	if err := json.Unmarshal(q.Input, &in); err != nil {
		return nil, fmt.Errorf("cannot read the order: %w", err)
	}
	var out bytes.Buffer
	if err := attack(in.Order, &out); err != nil {
		return nil, err
	}
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	return append(append([]byte("["), bytes.Join(lines, []byte(","))...), ']'), nil
}

// attack carries an order out without ending this process.
func attack(o probe.Order, out io.Writer) error {
	if o.InChild() {
		return o.Child(out)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocks: what a probe did to its thread ends with it
		done <- o.Run(out)
	}()
	return <-done
}
