package main

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

type treeIn struct {
	How  string `json:"how"`
	Path string `json:"path"`
	To   string `json:"to,omitempty"`
}

// tree changes what a folder holds, in one of the ways in which a name comes
// into being or a file is changed.
func tree(_ context.Context, in treeIn) (none, error) {
	switch in.How {
	case "mkdir":
		return none{}, os.MkdirAll(in.Path, 0o755)
	case "rename":
		return none{}, os.Rename(in.Path, in.To)
	case "link":
		return none{}, os.Link(in.Path, in.To)
	case "symlink":
		return none{}, os.Symlink(in.To, in.Path)
	case "fifo":
		return none{}, unix.Mkfifo(in.Path, 0o644)
	case "map":
		return none{}, scribble(in.Path)
	}
	return none{}, fmt.Errorf("no way %q", in.How)
}

// scribble changes a file through a shared mapping.
func scribble(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	m[0] = '!'
	if err := unix.Msync(m, unix.MS_SYNC); err != nil {
		return err
	}
	return unix.Munmap(m)
}
