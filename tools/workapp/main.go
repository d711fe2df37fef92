// Workapp does ordinary work inside a sandbox, and says of each piece whether
// it came out right. Tests put it where an app would be, beside real programs.
//
//	workapp                    the app: exports list and work
//	workapp child ARGUMENT...  what the work starts; see child
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	berth "github.com/berthos/berth/sdk/go"
)

func main() { os.Exit(run(context.Background(), os.Args[1:])) }

func run(ctx context.Context, args []string) int {
	if len(args) > 0 && args[0] == "child" {
		return child(args[1:])
	}
	app := berth.New("work")
	berth.Export(app, "list", "Lists the pieces of work.", list)
	berth.Export(app, "work", "Does pieces of work.", work)
	if err := app.Serve(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// piece is one kind of ordinary work. It returns an error if anything of it was
// refused, or came out other than it should.
type piece struct {
	name string
	do   func(*world) error
}

// pieces returns all of them, in order.
func pieces() []piece {
	return slices.Concat(files(), contents(), events(), sockets(), processes(), programs())
}

// world is where a piece works, and how much of it there is to do.
type world struct {
	context.Context
	dir   string // empty, and for this piece alone
	repo  string // of the user's; "": none
	scale int    // of what is done many times; 1: once or a few times
	unix  bool   // sockets with names can be made: see the README
}

// many returns n at full scale and less below.
func (w *world) many(n int) int { return max(3, n*w.scale/100) }

// brief says that this is an emulated machine, where a program takes a second
// to start: each kind of work once.
func (w *world) brief() bool { return w.scale == 0 }

type listOut struct {
	Names []string `json:"names"`
}

func list(context.Context, struct{}) (listOut, error) {
	var out listOut
	for _, p := range pieces() {
		out.Names = append(out.Names, p.name)
	}
	return out, nil
}

type workIn struct {
	Dir   string   `json:"dir" jsonschema:"where to work"`
	Names []string `json:"names,omitempty" jsonschema:"what to do; all if empty"`
	Skip  []string `json:"skip,omitempty" jsonschema:"what to leave out"`
	Scale int      `json:"scale" jsonschema:"percent of the full amount"`
	Repo  string   `json:"repo,omitempty" jsonschema:"a git repository of the user's"`
	Unix  bool     `json:"unix" jsonschema:"sockets with names can be made"`
}

type workOut struct {
	Results []result `json:"results"`
}

type result struct {
	Name   string `json:"name"`
	Millis int64  `json:"millis"`
	Error  string `json:"error,omitempty"`
}

func work(ctx context.Context, in workIn) (out workOut, err error) {
	for _, p := range append(pieces(), limits()) {
		named := slices.Contains(in.Names, p.name)
		if !named && (len(in.Names) > 0 || p.name == limits().name) || slices.Contains(in.Skip, p.name) {
			continue
		}
		dir, err := os.MkdirTemp(in.Dir, "w-"+p.name+"-")
		if err != nil {
			return out, err
		}
		berth.Progress(ctx, float64(len(out.Results)), 0, p.name)
		begin := time.Now()
		r := result{Name: p.name}
		if err := attempt(p, &world{Context: ctx, dir: dir, repo: in.Repo, scale: in.Scale, unix: in.Unix}); errors.Is(err, errNotHere) {
			if err := os.RemoveAll(dir); err != nil {
				return out, err
			}
			continue
		} else if err != nil {
			r.Error = err.Error()
		} else if err := os.RemoveAll(dir); err != nil {
			r.Error = "cannot clean up: " + err.Error()
		}
		r.Millis = time.Since(begin).Milliseconds()
		out.Results = append(out.Results, r)
	}
	return out, nil
}

// errNotHere is of a piece whose program or folder this app was not given: it
// was not done, and is not in the results.
var errNotHere = errors.New("what it works with is not here")

// within is how long a piece may take, in an emulated machine too. What waits
// for ever was refused something it waits for.
const within = 2 * time.Minute

// attempt gives a piece its time.
func attempt(p piece, w *world) error {
	ctx, cancel := context.WithTimeout(w.Context, within)
	defer cancel()
	w.Context = ctx
	done := make(chan error, 1)
	go func() { done <- attempted(p, w) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	stacks := make([]byte, 1<<16)
	return fmt.Errorf("it has not ended: %w\n%s", ctx.Err(), stacks[:runtime.Stack(stacks, true)])
}

// attempted turns a panic of a piece into its error.
func attempted(p piece, w *world) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return p.do(w)
}

// mismatch is the error of what came out otherwise than it should.
func mismatch(what string, got, want any) error {
	return fmt.Errorf("%s: got %s, want %s", what, short(got), short(want))
}

func short(v any) string {
	s := fmt.Sprintf("%v", v)
	if len(s) > 400 {
		s = s[:400] + "…"
	}
	return strings.ToValidUTF8(fmt.Sprintf("%q", s), "?")
}

// each runs steps until one fails, and says which.
func each(steps ...step) error {
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

type step struct {
	name string
	do   func() error
}
