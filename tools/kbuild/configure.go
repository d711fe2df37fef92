package kbuild

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthos/berth/kernel"
)

// A LostError names every option that a configuration does not hold.
type LostError struct {
	Arch string
	Lost []kernel.Loss
}

func (e *LostError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cannot configure the kernel for %s: %d asked-for options did not survive:", e.Arch, len(e.Lost))
	for _, l := range e.Lost {
		fmt.Fprintf(&b, "\n  %v", l)
	}
	return b.String()
}

// configure makes t.obj/.config from the fragments and nothing else, and fails
// if it is not what they ask for.
func (b *build) configure(ctx context.Context, t tree) error {
	b.say("configuring")
	if err := os.MkdirAll(t.obj, 0o755); err != nil {
		return fmt.Errorf("cannot configure the kernel: %w", err)
	}
	var all []byte
	for _, f := range b.fragments {
		all = append(all, f.Text...)
	}
	asked := filepath.Join(t.obj, "berth.config")
	if err := os.WriteFile(asked, all, 0o644); err != nil {
		return fmt.Errorf("cannot configure the kernel: %w", err)
	}
	if err := b.runMake(ctx, t, "KCONFIG_ALLCONFIG="+asked, "allnoconfig"); err != nil {
		return fmt.Errorf("cannot configure the kernel: %w", err)
	}
	got, err := os.ReadFile(filepath.Join(t.obj, ".config"))
	if err != nil {
		return fmt.Errorf("cannot configure the kernel: %w", err)
	}
	known, err := symbols(t.src)
	if err != nil {
		return fmt.Errorf("cannot read the kernel's options: %w", err)
	}
	if lost := kernel.Losses(kernel.Options(b.fragments), got, known); len(lost) > 0 {
		return &LostError{Arch: b.arch, Lost: lost}
	}
	return nil
}

// symbols are the options that the source knows.
func symbols(src string) (map[string]bool, error) {
	known := map[string]bool{}
	err := filepath.WalkDir(src, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasPrefix(e.Name(), "Kconfig") {
			return err
		}
		text, err := os.ReadFile(path)
		kernel.Symbols(text, known)
		return err
	})
	return known, err
}
