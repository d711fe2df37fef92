package worklayer

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// pruned are folders that no program needs.
var pruned = []string{
	"share/doc", "share/man", "share/info", "share/locale", "share/lintian", "share/bash-completion", "share/zsh",
	"share/doc-base", "share/gitweb", "share/perl5/Debian", "share/icons", "share/applications", "share/pixmaps",
	"lib/x86_64-linux-gnu/gconv", "include", "lib/python3/dist-packages", "share/nodejs/@types", "share/nodejs/web-streams-polyfill",
	"lib/git-core/git-http-fetch", "lib/git-core/git-http-push", "lib/git-core/git-remote-http", "lib/git-core/git-imap-send",
	"lib/git-core/git-http-backend", "lib/git-core/git-daemon", "lib/git-core/scalar", "bin/scalar",
}

// place maps a name of a package to one of the layer: /usr becomes the layer's
// top, and what Debian merges into it is merged. "" is what a layer has not.
func place(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	name = strings.TrimPrefix(name, "usr/")
	top, _, _ := strings.Cut(name, "/")
	if !slices.Contains([]string{"bin", "sbin", "lib", "libexec", "share", "include"}, top) {
		return ""
	}
	if ext := path.Ext(name); ext == ".a" || ext == ".h" {
		return ""
	}
	for _, p := range pruned {
		if name == p || strings.HasPrefix(name, p+"/") {
			return ""
		}
	}
	return name
}

// unpack writes what a package has for the layer into root.
func unpack(ctx context.Context, deb, root string) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("cannot unpack %s: %w", deb, err)
	}
	err = entries(out, root)
	if err != nil {
		cmd.Process.Kill()
	}
	if ended := cmd.Wait(); err == nil && ended != nil {
		err = fmt.Errorf("dpkg-deb: %w: %s", ended, strings.TrimSpace(stderr.String()))
	}
	if err != nil {
		return fmt.Errorf("cannot unpack %s: %w", deb, err)
	}
	return nil
}

func entries(r io.Reader, root string) error {
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if name := place(h.Name); name != "" {
			if err := entry(t, h, root, name); err != nil {
				return fmt.Errorf("%s: %w", h.Name, err)
			}
		}
	}
}

func entry(t *tar.Reader, h *tar.Header, root, name string) error {
	at := filepath.Join(root, filepath.FromSlash(name))
	if h.Typeflag == tar.TypeDir {
		return os.MkdirAll(at, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		raw, err := io.ReadAll(t)
		if err != nil {
			return err
		}
		if raw, err = relocate(raw); err != nil {
			return err
		}
		return os.WriteFile(at, raw, h.FileInfo().Mode().Perm()|0o600)
	case tar.TypeLink:
		return os.Link(filepath.Join(root, filepath.FromSlash(place(h.Linkname))), at)
	case tar.TypeSymlink:
		if to := target(name, h.Linkname); to != "" {
			return os.Symlink(to, at)
		}
		return nil // it points to what a layer has not
	}
	return fmt.Errorf("it is of type %q", h.Typeflag)
}

// target returns the relative text of a link called name, or "" if it leaves
// the layer.
func target(name, to string) string {
	if !path.IsAbs(to) {
		if strings.HasPrefix(path.Join(path.Dir(name), to), "..") {
			return ""
		}
		return path.Clean(to)
	}
	if to = place(to); to == "" {
		return ""
	}
	rel, err := filepath.Rel(path.Dir(name), to)
	if err != nil {
		return ""
	}
	return rel
}

// finish adds what a package's scripts would have made, and the names under
// which relocated programs look for their loader and their shells.
func finish(ctx context.Context, root string) error {
	loader, err := filepath.Glob(filepath.Join(root, "lib", "*-linux-gnu", "ld-linux-*.so.*"))
	if err != nil || len(loader) != 1 {
		return fmt.Errorf("cannot find the loader of a layer: %d files look like one", len(loader))
	}
	links := map[string]string{filepath.Base(loader[0]): strings.TrimPrefix(loader[0], root+"/")}
	for _, program := range []string{"sh", "bash", "true", "false", "cat", "ls", "rm", "mkdir", "echo", "pwd"} {
		links[program] = "bin/" + program // what was /bin/X is /app/X
	}
	if _, err := os.Lstat(filepath.Join(root, "bin/sh")); errors.Is(err, fs.ErrNotExist) {
		links["bin/sh"] = "dash"
	}
	if _, err := os.Lstat(filepath.Join(root, "bin/mawk")); err == nil {
		links["bin/awk"] = "mawk"
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			return fmt.Errorf("cannot make link %s of a layer: %w", name, err)
		}
	}
	return compileall(ctx, root, loader[0])
}

// compileall makes Python's compiled modules, which a package's scripts would
// make: an app can not write below /app. They count whatever the time of their
// source is, as an app image keeps no times.
func compileall(ctx context.Context, root, loader string) error {
	libs, _ := filepath.Glob(filepath.Join(root, "lib", "python3.*", "os.py"))
	if len(libs) == 0 {
		return nil
	}
	lib := filepath.Dir(libs[0])
	cmd := exec.CommandContext(ctx, loader, "--library-path", filepath.Dir(loader), filepath.Join(root, "bin", filepath.Base(lib)),
		"-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", root, "-p", "/app", lib)
	cmd.Env = []string{"PYTHONHOME=" + root, "LC_ALL=C", "PYTHONHASHSEED=0"}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot compile Python's modules: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
