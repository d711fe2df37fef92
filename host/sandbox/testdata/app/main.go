// Command app is an app for tests of host/sandbox: it does what it is told.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	berth "github.com/berthos/berth/sdk/go"
)

func main() {
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
	}
	app := berth.New("probe")
	berth.Export(app, "read", "Reads a file.", read)
	berth.Export(app, "write", "Writes a file.", write)
	berth.Export(app, "whoami", "Says who it is.", whoami)
	berth.Export(app, "print", "Prints lines.", print)
	berth.Export(app, "die", "Ends the process.", die)
	berth.Export(app, "wait", "Waits for ever.", wait)
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
	Code int `json:"code"`
}

func die(_ context.Context, in dieIn) (none, error) {
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
