// Package fetch owns downloads that are pinned by digest: it resumes what was
// begun, tries one source after another, and leaves a file under its name only
// if every byte of it was verified.
package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Want says which bytes are wanted.
type Want struct {
	SHA256 string
	Size   int64
}

// Options changes how a download is made; nil and the zero value work.
type Options struct {
	// Client makes the requests; http.DefaultClient if nil.
	Client *http.Client
	// Progress is told, now and then, how many bytes are there.
	Progress func(source string, done, total int64)
	// Tries is how often one source may be asked; 3 if zero.
	Tries int
	// Wait is the pause before the second try, doubled each time; 1 s if zero,
	// none if negative.
	Wait time.Duration
	// Stall ends a connection that has sent nothing for this long; 1 min if zero.
	Stall time.Duration
}

// A DigestError says that a source holds other bytes than the pinned ones.
type DigestError struct{ Source, Want, Got string }

func (e *DigestError) Error() string {
	return fmt.Sprintf("%s: want sha256 %s, got %s; the file was removed", e.Source, e.Want, e.Got)
}

// A SourcesError lists every source that was tried, and what each said.
type SourcesError struct {
	Name string
	Errs []error
}

func (e *SourcesError) Error() string {
	if len(e.Errs) == 0 {
		return fmt.Sprintf("cannot fetch %s: there is no place to fetch it from", e.Name)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "cannot fetch %s from any of %d places:", e.Name, len(e.Errs))
	for _, err := range e.Errs {
		fmt.Fprintf(&b, "\n  %v", err)
	}
	return b.String()
}

func (e *SourcesError) Unwrap() []error { return e.Errs }

// errLocal marks faults of this machine (a full disk), which no other source
// would cure.
var errLocal = errors.New("local")

// File makes dst hold the wanted bytes. A source is an http(s) URL, a file://
// URL or a path. What an earlier call left unfinished (dst.part) is continued.
// Two calls for the same dst must not run at once.
func File(ctx context.Context, dst string, want Want, sources []string, opt *Options) error {
	d := download{dst: dst, part: dst + ".part", want: want, opt: withDefaults(opt)}
	if got, err := hashFile(dst); err == nil {
		if got == want.SHA256 {
			return nil
		}
		if err := os.Remove(dst); err != nil {
			return fmt.Errorf("cannot replace %s, whose sha256 is %s and not %s: %w", dst, got, want.SHA256, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return fmt.Errorf("cannot make the folder of %s: %w", dst, err)
	}
	failed := &SourcesError{Name: filepath.Base(dst)}
	for _, s := range sources {
		err := d.from(ctx, s)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("cannot fetch %s: %w", failed.Name, context.Cause(ctx))
		case errors.Is(err, errLocal):
			return err
		}
		failed.Errs = append(failed.Errs, err)
	}
	return failed
}

func withDefaults(opt *Options) Options {
	var o Options
	if opt != nil {
		o = *opt
	}
	if o.Client == nil {
		o.Client = http.DefaultClient
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	if o.Tries == 0 {
		o.Tries = 3
	}
	if o.Wait == 0 {
		o.Wait = time.Second
	}
	if o.Stall == 0 {
		o.Stall = time.Minute
	}
	return o
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
