package kbuild

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/tools/fetch"
)

// A tree is an unpacked source and the folder its objects go to.
type tree struct{ src, obj string }

// left out of the unpacked source: two thirds of it, which no configuration of
// ours compiles. Kconfig files stay everywhere.
var leftOut = []string{
	"*/Documentation/*/*", "*/sound/*/*.[ch]", "*/drivers/gpu/*.[ch]",
	"*/drivers/net/*/*.[ch]", "*/drivers/media/*.[ch]", "*/drivers/staging/*.[ch]",
	"*/tools/testing/*", "*/tools/perf/*", "*/boot/dts/*",
}

// fetch returns the path of the pinned package, downloading it if needed.
func (b *build) fetch(ctx context.Context) (string, error) {
	name := b.pin.FileName()
	unlock, err := b.cache.Lock(ctx, name, func() { b.say("waiting for another download") })
	if err != nil {
		return "", err
	}
	defer unlock()
	path := b.cache.Download(name)
	var last time.Time
	err = fetch.File(ctx, path, fetch.Want{SHA256: b.pin.SHA256, Size: b.pin.Size},
		sources(b.pin, Mirrors(b.getenv(EnvMirror), os.DirFS("/"))), &fetch.Options{
			Progress: func(source string, done, total int64) {
				if now := time.Now(); now.Sub(last) > 2*time.Second || done == total {
					last = now
					b.say(fmt.Sprintf("fetching %s: %d of %d MB", source, done/1e6, total/1e6))
				}
			},
		})
	var unreached *fetch.SourcesError
	if errors.As(err, &unreached) {
		err = hint.Errorf(fmt.Sprintf("set %s to a Debian mirror (http://, https://, file://) or to a folder that holds %s", EnvMirror, name), "%w", err)
	}
	return path, err
}

// unpack fills t.src with the verified source. It is unpacked for each build,
// so that a build can only see bytes that were just verified.
func (b *build) unpack(ctx context.Context, t tree) error {
	deb, err := b.fetch(ctx)
	if err != nil {
		return err
	}
	b.say("unpacking " + b.pin.FileName())
	if err := os.MkdirAll(t.src, 0o755); err != nil {
		return fmt.Errorf("cannot unpack the source: %w", err)
	}
	args := []string{"-xJ", "-C", t.src, "--strip-components=1", "--no-same-owner"}
	for _, p := range leftOut {
		args = append(args, "--exclude="+p)
	}
	err = pipeline(
		exec.CommandContext(ctx, "ar", "p", deb, "data.tar.xz"),
		exec.CommandContext(ctx, "tar", "-xJO", "./usr/src/"+b.pin.Package+".tar.xz"),
		exec.CommandContext(ctx, "tar", args...),
	)
	if err != nil {
		return fmt.Errorf("cannot unpack %s: %w", b.pin.FileName(), err)
	}
	return nil
}

// pipeline runs commands that read each other's output. The error is that of
// the last one that failed: the ones before it only lost their reader.
func pipeline(cmds ...*exec.Cmd) error {
	stderr := make([]strings.Builder, len(cmds))
	for i, c := range cmds {
		c.Env = buildEnv()
		c.Stderr = &stderr[i]
		if i == 0 {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		defer r.Close()
		defer w.Close()
		cmds[i-1].Stdout, c.Stdin = w, r
	}
	started := 0
	var failed error
	for _, c := range cmds {
		if failed = c.Start(); failed != nil {
			break
		}
		started++
		for _, end := range []any{c.Stdin, c.Stdout} {
			if f, ok := end.(io.Closer); ok {
				f.Close()
			}
		}
	}
	for i, c := range cmds[:started] {
		if err := c.Wait(); err != nil {
			failed = fmt.Errorf("%s: %w: %s", c.Path, err, strings.TrimSpace(stderr[i].String()))
		}
	}
	return failed
}

// explain adds what can be done about a place that cannot be written.
func explain(err error, place string) error {
	var advice string
	switch {
	case errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "No space left on device"):
		advice = "a kernel build needs 1 GB in " + place + "; make room there, or set BERTH_CACHE (or TMPDIR) to a folder that has it"
	case errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS):
		advice = place + " must be writable; set BERTH_CACHE to a folder that is"
	default:
		return err
	}
	return hint.Errorf(advice, "%w", err)
}
