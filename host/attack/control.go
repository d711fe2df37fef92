package attack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/berthos/berth/init/sandbox/probe"
)

// control is what a probe did on this host without a sandbox.
type control struct {
	ran     bool
	failure string // how it failed, or why it was not run
}

func (c control) String() string {
	switch {
	case !c.ran:
		return "no: " + c.failure
	case c.failure != "":
		return "not possible here: " + c.failure
	}
	return "succeeded"
}

// control runs what harms nothing on this host, outside any sandbox, in folders
// of its own. What can not be done there anyway proves nothing inside.
func (r *run) control(ctx context.Context) error {
	r.controls = map[string]control{}
	w := r.field.hostWorld(r.world)
	w.User = os.Getuid() != 0
	var ids []string
	for _, p := range probe.All(r.world) {
		why := p.Spared(w)
		if r.o.Control == nil {
			why = "it was not asked for"
		}
		r.controls[p.ID] = control{failure: why}
		if why == "" && r.wanted(p.Group()) {
			ids = append(ids, p.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	r.o.Log("control: %d probes without a sandbox", len(ids))
	if err := r.without(ctx, probe.Order{At: probe.Main, World: w, IDs: ids}); err != nil {
		return err
	}
	return r.crossControl(ctx, w)
}

// without carries an order out on this host.
func (r *run) without(ctx context.Context, o probe.Order) error {
	cmd := r.o.Control(ctx, o.Args()...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cannot run the control: %w: %s", err, bytes.TrimSpace(problems.Bytes()))
	}
	for line := range strings.Lines(out.String()) {
		var res probe.Result
		if err := json.Unmarshal([]byte(line), &res); err != nil {
			return fmt.Errorf("cannot read the control's answer: %w", err)
		}
		r.controls[res.ID] = control{ran: true, failure: res.Error}
	}
	return nil
}

// crossControl attacks a victim that is an ordinary process of this host.
func (r *run) crossControl(ctx context.Context, w probe.World) error {
	if !r.wanted("MA") {
		return nil
	}
	v, err := r.field.hostVictim()
	if err != nil {
		return err
	}
	w.Victim = v
	cmd := r.o.Control(ctx, v.Args()...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("cannot run the control: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("cannot run the control: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot run the control: %w", err)
	}
	_, held := bufio.NewReader(out).ReadString('\n') // it says when it holds everything
	var ids []string
	for _, p := range w.Cross() {
		ids = append(ids, p.ID)
	}
	err = held
	if err == nil {
		err = r.without(ctx, probe.Order{At: probe.Main, World: w, IDs: slices.Compact(ids)})
	}
	return errors.Join(err, in.Close(), cmd.Wait())
}

// Maybe makes this program the control, if its arguments say so.
func Maybe(args []string) (code int, ok bool) { return probe.Maybe(args, os.Stdout) }
