package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/berthos/berth/host/appbuild"
)

// maxSecret bounds the value of one secret, in bytes.
const maxSecret = 64 << 10

// readSecrets reads the values of --secret flags. A value never stands on the
// command line, which everybody on this host can read.
func readSecrets(ctx context.Context, w World, flags []string) (map[string]string, error) {
	values := map[string]string{}
	stdin := ""
	for _, flag := range flags {
		name, source, has := strings.Cut(flag, "=")
		if name == "" {
			return nil, fail(ExitUsage, "NAME, NAME=- or NAME=@FILE", "cannot read secret %q: it has no name", flag)
		}
		if _, twice := values[name]; twice {
			return nil, fail(ExitUsage, "", "cannot read secret %s: it was given twice", name)
		}
		var value string
		var err error
		switch {
		case !has:
			var set bool
			if value, set = os.LookupEnv(name); !set {
				return nil, fail(ExitUsage, fmt.Sprintf("set the variable, or read it: --secret %s=- or --secret %s=@FILE", name, name), "cannot read secret %s: it is not in the environment", name)
			}
		case source == "-" && stdin != "":
			return nil, fail(ExitUsage, "give one of them as NAME=@FILE", "cannot read both secrets %s and %s from stdin", stdin, name)
		case source == "-":
			stdin = name
			value, err = secretLine(ctx, w.In)
		case strings.HasPrefix(source, "@"):
			value, err = secretFile(absolute(w, source[1:]))
		default:
			return nil, fail(ExitUsage, fmt.Sprintf("--secret %s (from the environment), --secret %s=- (from stdin) or --secret %s=@FILE; what has been on a command line should be changed", name, name, name),
				"cannot take the value of secret %s from the command line, which everybody on this host can read", name)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read secret %s: %w", name, err)
		}
		if len(value) > maxSecret || strings.ContainsRune(value, 0) {
			return nil, fail(ExitUsage, "", "cannot use secret %s: a value has at most %d KiB and no NUL", name, maxSecret>>10)
		}
		values[name] = value
	}
	return values, nil
}

// secretLine is the first line of stdin.
func secretLine(ctx context.Context, in io.Reader) (string, error) {
	type result struct {
		line string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		line, err := bufio.NewReader(io.LimitReader(in, maxSecret+2)).ReadString('\n')
		if errors.Is(err, io.EOF) && line != "" {
			err = nil
		}
		done <- result{strings.TrimRight(line, "\r\n"), err}
	}()
	select {
	case r := <-done:
		return r.line, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// secretFile is a file's content without the line break at its end.
func secretFile(name string) (string, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a fifo must not hold us up
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", name)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxSecret+3))
	return string(bytes.TrimRight(raw, "\r\n")), err
}

// secretsOf are the values of what an app declares.
func (l *launch) secretsOf(app *appbuild.App) (map[string]string, error) {
	names, err := declared(app)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	values := map[string]string{}
	for _, name := range names {
		value, ok := l.secrets[name]
		if !ok {
			return nil, fail(ExitUsage, fmt.Sprintf("give it: --secret %s (from the environment), --secret %s=- or --secret %s=@FILE", name, name, name),
				"cannot start app %q: %s declares the secret %s, which was not given", app.Manifest.Name, app.File, name)
		}
		values[name] = value
	}
	return values, nil
}

// unusedSecrets refuses one that no app declares: it may be a slip of the name.
func (l *launch) unusedSecrets() error {
	left := maps.Clone(l.secrets)
	for _, a := range l.apps {
		names, err := declared(a.app)
		if err != nil {
			return err
		}
		for _, name := range names {
			delete(left, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		return fail(ExitUsage, "name it under secrets: in the app's berth.yml, or leave the flag out", "cannot use secret %s: no app declares it", name)
	}
	return nil
}

// declared are the secrets of all processes of an app.
func declared(app *appbuild.App) (names []string, err error) {
	for _, process := range app.Policy.Processes() {
		p, err := app.Policy.For(process)
		if err != nil {
			return nil, err
		}
		names = append(names, p.Secrets...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
