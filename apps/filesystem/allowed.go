package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	berth "github.com/berthos/berth/sdk/go"
	"golang.org/x/sys/unix"
)

type allowedIn struct{}

type allowedOut struct {
	Directories []allowed `json:"directories"`
	Base        string    `json:"base" jsonschema:"where relative paths start"`
}

type allowed struct {
	Path   string `json:"path"`
	Access string `json:"access" jsonschema:"read or write"`
}

// listAllowedDirectories says what is mounted for this app and can be opened.
// The app has no other knowledge of its policy.
func (f files) listAllowedDirectories(context.Context, allowedIn) (allowedOut, error) {
	table, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return allowedOut{}, berth.Reading(err)
	}
	defer table.Close()
	out := allowedOut{Directories: []allowed{}, Base: f.base}
	mounts, err := parseMounts(table)
	if err != nil {
		return allowedOut{}, err
	}
	for _, m := range mounts {
		if !opens(m.path) {
			continue
		}
		access := "write"
		if m.readOnly {
			access = "read"
		}
		out.Directories = append(out.Directories, allowed{Path: shown(m.path), Access: access})
	}
	return out, nil
}

// opens says whether a folder's entries can be read, which Landlock may refuse.
func opens(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	return unix.Close(fd) == nil
}

type mount struct {
	path     string
	readOnly bool
}

// parseMounts reads proc_pid_mountinfo(5) and leaves out what every app has.
// Of several mounts on one path the last is what the app sees.
func parseMounts(r io.Reader) ([]mount, error) {
	last := map[string]mount{}
	in := bufio.NewScanner(r)
	for in.Scan() {
		fields := strings.Fields(in.Text())
		if len(fields) < 6 {
			continue
		}
		m := mount{path: unescape(fields[4]), readOnly: slices.Contains(strings.Split(fields[5], ","), "ro")}
		// The super block's options come last: a writable mount of a read-only disk.
		if options := strings.Split(fields[len(fields)-1], ","); slices.Contains(options, "ro") {
			m.readOnly = true
		}
		last[m.path] = m
	}
	var mounts []mount
	for _, m := range last {
		if !baseline(m.path) {
			mounts = append(mounts, m)
		}
	}
	slices.SortFunc(mounts, func(a, b mount) int { return strings.Compare(a.path, b.path) })
	return mounts, in.Err()
}

func baseline(path string) bool {
	if path == "/" {
		return true
	}
	first, _, _ := strings.Cut(path[1:], "/")
	return slices.Contains([]string{"proc", "sys", "dev", "etc", "run"}, first)
}

// unescape undoes the octal escapes of blanks and backslashes.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if code, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
