// Command app is the bench's app: it answers, streams and reads the counter.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"

	berth "github.com/berthos/berth/sdk/go"
	"github.com/berthos/berth/tools/bench/tsc"
)

func main() { os.Exit(run(context.Background())) }

type text struct {
	Text string `json:"text"`
}

type number struct {
	N uint64 `json:"n"`
}

func echo(_ context.Context, in text) (text, error) { return in, nil }

func run(ctx context.Context) int {
	if os.Getenv("BENCH_FORK") != "" {
		return forked()
	}
	app := berth.New("bench")
	berth.Export(app, "echo", "Returns its input.", echo)
	berth.Export(app, "narrow", "Returns its input, from a process with fewer rights.", echo)
	berth.Export(app, "hostile", "Takes all that it can get of something.", hostile)
	berth.Export(app, "tsc", "Returns the time stamp counter.", func(context.Context, struct{}) (number, error) {
		return number{tsc.Read()}, nil
	})
	berth.Export(app, "memory", "Returns how many bytes of the guest's memory are not free.", func(context.Context, struct{}) (number, error) {
		var info syscall.Sysinfo_t
		if err := syscall.Sysinfo(&info); err != nil {
			return number{}, err
		}
		return number{(uint64(info.Totalram) - uint64(info.Freeram)) * uint64(info.Unit)}, nil
	})
	berth.Export(app, "copy", "Sends its raw stream back.", func(ctx context.Context, _ struct{}) (number, error) {
		s, err := berth.Stream(ctx)
		if err != nil {
			return number{}, err
		}
		defer s.Close()
		n, err := io.Copy(s, s)
		if err != nil {
			return number{}, err
		}
		return number{uint64(n)}, s.CloseWrite()
	})
	if err := app.Serve(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
