// Command app is an app for tests of host/sandbox: it does what it is told.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	berth "github.com/berthos/berth/sdk/go"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "sleep" {
		_ = unix.Pause() // a process of a fork bomb
	}
	if len(os.Args) == 3 {
		descend(os.Args[1], os.Args[2])
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// behaviour is written next to the program by tests that want a bad app.
func run() error {
	mode, _ := os.ReadFile("/app/mode")
	switch strings.TrimSpace(string(mode)) {
	case "exit":
		os.Exit(3)
	case "never":
		time.Sleep(time.Hour)
	case "peer":
		return peer()
	}
	app := berth.New("probe")
	berth.Export(app, "read", "Reads a file.", read)
	berth.Export(app, "write", "Writes a file.", write)
	berth.Export(app, "setuid", "Tries to make a file that runs as its owner.", setuid)
	berth.Export(app, "whoami", "Says who it is.", whoami)
	berth.Export(app, "print", "Prints lines.", print)
	berth.Export(app, "deny", "Does what is refused, and says only how often.", deny)
	berth.Export(app, "die", "Ends the process.", die)
	berth.Export(app, "wait", "Waits for ever.", wait)
	berth.Export(app, "tree", "Changes what a folder holds.", tree)
	berth.Export(app, "bomb", "Takes all that it can get of something.", bomb)
	berth.Export(app, "spin", "Uses the processors.", spin)
	berth.Export(app, "priority", "Asks for more of the processors.", priority)
	berth.Export(app, "echo", "Sends the raw stream back.", echo)
	if strings.TrimSpace(string(mode)) == "more" {
		berth.Export(app, "surprise", "Is not declared.", whoami)
	}
	return app.Serve(context.Background())
}

type pathIn struct {
	Path    string `json:"path"`
	Content string `json:"content,omitempty"`
}

type text struct {
	Text string `json:"text"`
}

type none struct{}

func read(_ context.Context, in pathIn) (text, error) {
	raw, err := os.ReadFile(in.Path)
	return text{string(raw)}, err
}

func write(_ context.Context, in pathIn) (none, error) {
	return none{}, os.WriteFile(in.Path, []byte(in.Content), 0o644)
}

func whoami(context.Context, none) (text, error) {
	return text{fmt.Sprintf("uid=%d gid=%d pid=%d time=%d", os.Getuid(), os.Getgid(), os.Getpid(), time.Now().Unix())}, nil
}

// setuid makes a file in each way that could give it the bits 06000, and says
// which of them the kernel refused.
func setuid(_ context.Context, in pathIn) (text, error) {
	const bits, create = 0o6755, syscall.O_CREAT | syscall.O_WRONLY
	dir, err := syscall.Open(in.Path, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return text{}, err
	}
	if err := os.WriteFile(in.Path+"/chmod", nil, 0o755); err != nil {
		return text{}, err
	}
	f, err := os.Open(in.Path + "/chmod")
	if err != nil {
		return text{}, err
	}
	how := [3]uint64{create, bits, 0}
	name := func(s string) uintptr { return uintptr(unsafe.Pointer(&append([]byte(s), 0)[0])) }
	var out []string
	for _, try := range []struct {
		what string
		do   func() syscall.Errno
	}{
		{"open", func() syscall.Errno { return raw(syscall.SYS_OPEN, name(in.Path+"/open"), create, bits) }},
		{"openat", func() syscall.Errno { return raw(syscall.SYS_OPENAT, uintptr(dir), name("openat"), create, bits) }},
		{"creat", func() syscall.Errno { return raw(syscall.SYS_CREAT, name(in.Path+"/creat"), bits) }},
		{"openat2", func() syscall.Errno {
			return raw(437, uintptr(dir), name("openat2"), uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how))
		}},
		{"mknod", func() syscall.Errno { return raw(syscall.SYS_MKNOD, name(in.Path+"/mknod"), syscall.S_IFREG|bits, 0) }},
		{"mknodat", func() syscall.Errno {
			return raw(syscall.SYS_MKNODAT, uintptr(dir), name("mknodat"), syscall.S_IFREG|bits, 0)
		}},
		{"chmod", func() syscall.Errno { return raw(syscall.SYS_CHMOD, name(in.Path+"/chmod"), bits) }},
		{"fchmod", func() syscall.Errno { return raw(syscall.SYS_FCHMOD, f.Fd(), bits) }},
		{"fchmodat", func() syscall.Errno { return raw(syscall.SYS_FCHMODAT, uintptr(dir), name("chmod"), bits) }},
		{"fchmodat2", func() syscall.Errno { return raw(452, uintptr(dir), name("chmod"), bits, 0) }},
	} {
		if errno := try.do(); errno != 0 {
			out = append(out, try.what)
		}
	}
	return text{strings.Join(out, " ")}, nil
}

func raw(call uintptr, args ...uintptr) syscall.Errno {
	var a [6]uintptr
	copy(a[:], args)
	_, _, errno := syscall.Syscall6(call, a[0], a[1], a[2], a[3], a[4], a[5])
	return errno
}

type printIn struct {
	Line  string `json:"line"`
	Times int    `json:"times"`
}

func print(_ context.Context, in printIn) (none, error) {
	for range in.Times {
		fmt.Println(in.Line)
	}
	return none{}, nil
}

type dieIn struct {
	Code int `json:"code"` // -1: by SIGKILL; -2: of too much memory
}

func die(_ context.Context, in dieIn) (none, error) {
	for hold := [][]byte{}; in.Code == -2; {
		hold = append(hold, bytes.Repeat([]byte{1}, 1<<20))
	}
	if in.Code < 0 {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	os.Exit(in.Code)
	return none{}, nil
}

func wait(ctx context.Context, _ none) (none, error) {
	berth.Progress(ctx, 1, 2, "waiting")
	<-ctx.Done()
	return none{}, ctx.Err()
}

func echo(ctx context.Context, _ none) (text, error) {
	s, err := berth.Stream(ctx)
	if err != nil {
		return text{}, err
	}
	n, err := io.Copy(s, s)
	if err != nil {
		return text{}, err
	}
	return text{fmt.Sprint(n)}, s.CloseWrite()
}
