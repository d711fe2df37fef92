// Askapp tries what it is asked to, harmlessly, and prints what came of each
// try, one JSON object a line. A test puts it where an app would be and compares
// with what berth says that an app may do.
//
//	askapp QUESTIONS   a JSON file: a list of {"op", "object"}
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

type question struct {
	Op     string `json:"op"`
	Object string `json:"object"`
}

type result struct {
	Errno syscall.Errno `json:"errno"`
	Error string        `json:"error,omitempty"` // empty: it worked
}

func main() { os.Exit(run(os.Args[1:], os.Stdout)) }

func run(args []string, out io.Writer) int {
	if len(args) == 1 && args[0] == "-nothing" {
		return 0
	}
	var list []question
	raw, err := os.ReadFile(args[0])
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "askapp:", err)
		return 1
	}
	enc := json.NewEncoder(out)
	for _, q := range list {
		var r result
		if err := try(q); err != nil {
			r.Error = err.Error()
			errors.As(err, &r.Errno)
		}
		if err := enc.Encode(r); err != nil {
			return 1
		}
	}
	return 0
}

func try(q question) error {
	switch q.Op {
	case "read":
		return read(q.Object)
	case "write":
		return write(q.Object)
	case "exec":
		return exec.Command(q.Object, "-nothing").Run()
	case "connect":
		c, err := net.Dial("tcp4", "127.0.0.1:"+q.Object)
		if err == nil {
			c.Close()
		}
		return err
	case "bind":
		l, err := net.Listen("tcp4", "127.0.0.1:"+q.Object)
		if err == nil {
			l.Close()
		}
		return err
	}
	return fmt.Errorf("no such operation: %s", q.Op)
}

// read opens a file, or lists a folder.
func read(name string) error {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.IsDir() {
		return err
	}
	_, err = f.Readdirnames(-1)
	return err
}

// write opens a file for writing, or makes one and removes it again: in a folder,
// or where nothing is.
func write(name string) error {
	info, err := os.Stat(name)
	switch {
	case err == nil && !info.IsDir():
		f, err := os.OpenFile(name, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			f.Close()
		}
		return err
	case err == nil:
		name = filepath.Join(name, fmt.Sprintf(".ask-%d", os.Getpid()))
	default:
		if to, err := os.Readlink(name); err == nil { // made where it leads
			if !filepath.IsAbs(to) {
				to = filepath.Join(filepath.Dir(name), to)
			}
			name = to
		}
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	f.Close()
	return os.Remove(name)
}
