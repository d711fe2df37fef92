package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	berth "github.com/berthos/berth/sdk/go"
	"golang.org/x/sys/unix"
)

type pathIn struct {
	Path string `json:"path" jsonschema:"relative paths start at the workspace"`
}

type createOut struct {
	Path    string `json:"path"`
	Created bool   `json:"created" jsonschema:"false: it was there"`
}

func (f files) createDirectory(_ context.Context, in pathIn) (createOut, error) {
	path, err := f.asked(in.Path)
	if err != nil {
		return createOut{}, err
	}
	_, missing := os.Stat(path)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return createOut{}, berth.Writing(err)
	}
	return createOut{Path: shown(path), Created: missing != nil}, nil
}

type deleteIn struct {
	pathIn
	Recursive bool `json:"recursive,omitempty" jsonschema:"a folder with everything in it"`
}

type deleteOut struct {
	Path string `json:"path"`
}

func (f files) deleteFile(_ context.Context, in deleteIn) (deleteOut, error) {
	path, err := f.asked(in.Path)
	if err != nil {
		return deleteOut{}, err
	}
	// Alone first: what is missing, or is a mount such as the workspace itself,
	// fails before anything in it is deleted.
	err = os.Remove(path)
	if in.Recursive && (errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)) {
		err = os.RemoveAll(path)
	}
	return deleteOut{Path: shown(path)}, berth.Writing(err)
}

type moveIn struct {
	Source      string `json:"source"`
	Destination string `json:"destination" jsonschema:"the new path itself, not the folder to move into"`
	Overwrite   bool   `json:"overwrite,omitempty" jsonschema:"replace a file that is there"`
}

type moveOut struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Copied      bool   `json:"copied,omitempty" jsonschema:"the two lie on different mounts: copied, then deleted"`
}

func (f files) moveFile(ctx context.Context, in moveIn) (moveOut, error) {
	from, err := f.asked(in.Source)
	if err != nil {
		return moveOut{}, err
	}
	to, err := f.asked(in.Destination)
	if err != nil {
		return moveOut{}, err
	}
	out := moveOut{Source: shown(from), Destination: shown(to)}
	err = rename(from, to, in.Overwrite)
	if errors.Is(err, syscall.EXDEV) {
		out.Copied = true
		err = moveByCopy(ctx, from, to, in.Overwrite, err)
	}
	if err != nil {
		return moveOut{}, berth.Writing(err)
	}
	return out, nil
}

func rename(from, to string, overwrite bool) error {
	if overwrite {
		return os.Rename(from, to)
	}
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if err == unix.EINVAL || err == unix.ENOSYS { // a file system that cannot, such as 9p
		if _, err := os.Lstat(to); err == nil {
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: syscall.EEXIST}
		}
		return os.Rename(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// moveByCopy moves a file between two mounts, as mv does. Each granted folder is
// a mount of its own.
func moveByCopy(ctx context.Context, from, to string, overwrite bool, cause error) error {
	info, err := os.Lstat(from)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("only a file can be moved from one granted folder to another, and this is a %s: %w", kind(info.Mode()), cause)
	}
	src, _, err := openFile(from)
	if err != nil {
		return err
	}
	defer src.Close()
	perm := info.Mode().Perm()
	w := writing{ctx: ctx, path: to, mode: &perm, newOnly: !overwrite, fill: func(dst io.Writer) (int64, error) {
		return io.Copy(dst, &reporter{ctx: ctx, r: src, total: info.Size()})
	}}
	_, created, err := w.run()
	if err != nil {
		return err
	}
	if err := os.Remove(from); err != nil {
		if created {
			return errors.Join(err, os.Remove(to))
		}
		return fmt.Errorf("%w (it was copied to %q)", err, to)
	}
	return nil
}

type infoOut struct {
	Path       string `json:"path"`
	Type       string `json:"type" jsonschema:"file, directory, symlink or other"`
	Size       int64  `json:"size" jsonschema:"in bytes"`
	Mode       string `json:"mode" jsonschema:"permissions in octal, such as 0644"`
	UID        uint32 `json:"uid"`
	GID        uint32 `json:"gid"`
	Links      uint64 `json:"links" jsonschema:"how many names it has"`
	Modified   string `json:"modified"`
	Accessed   string `json:"accessed"`
	Changed    string `json:"changed" jsonschema:"of its metadata"`
	LinkTarget string `json:"link_target,omitempty" jsonschema:"what a symbolic link says"`
}

func (f files) getFileInfo(_ context.Context, in pathIn) (infoOut, error) {
	path, err := f.asked(in.Path)
	if err != nil {
		return infoOut{}, err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return infoOut{}, berth.Reading(err)
	}
	out := infoOut{Path: shown(path), Type: kind(info.Mode()), Size: info.Size(), Modified: stamp(info.ModTime()),
		Mode: fmt.Sprintf("%04o", permissions(info.Mode()))}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		out.UID, out.GID, out.Links = s.Uid, s.Gid, uint64(s.Nlink)
		out.Accessed, out.Changed = stamp(time.Unix(s.Atim.Unix())), stamp(time.Unix(s.Ctim.Unix()))
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(path)
		if err != nil {
			return infoOut{}, berth.Reading(err)
		}
		out.LinkTarget = shown(target)
	}
	return out, nil
}

// permissions are those of chmod(2), the upper three bits with them.
func permissions(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for flag, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&flag != 0 {
			bits |= bit
		}
	}
	return bits
}
