package main

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"

	berth "github.com/berthos/berth/sdk/go"
	"github.com/berthos/berth/sdk/protocol"
)

// encoded marks a path whose bytes are not text. JSON can only hold text, and a
// file's name may be any bytes.
const encoded = "base64:"

// shown is a path or name as it stands in an answer; asked undoes it.
func shown(path string) string {
	if utf8.ValidString(path) && !strings.HasPrefix(path, encoded) {
		return path
	}
	return encoded + base64.StdEncoding.EncodeToString([]byte(path))
}

// asked is the path that an input names. It is not cleaned: the kernel walks it.
func (f files) asked(input string) (string, error) {
	path := input
	if text, ok := strings.CutPrefix(input, encoded); ok {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return "", berth.Errorf(protocol.CodeInvalidInput, "path %q: what follows %q is not base64; a file of that name is ./%s", input, encoded, input)
		}
		path = string(raw)
	}
	switch {
	case path == "":
		return "", berth.Errorf(protocol.CodeInvalidInput, "the path is empty; the workspace itself is \".\"")
	case strings.ContainsRune(path, 0):
		return "", berth.Errorf(protocol.CodeInvalidInput, "path %q has a zero byte, which no file's name can have", path)
	case strings.HasPrefix(path, "/"):
		return path, nil
	case path == ".":
		return f.base, nil
	}
	return f.base + "/" + path, nil
}

// askedDir is asked for an input that may be left out.
func (f files) askedDir(input string) (string, error) {
	if input == "" {
		input = "."
	}
	return f.asked(input)
}

// about words a failure by the path that the caller named where a helper file
// was used on the way.
func about(path, helper string, err error) error {
	var at *fs.PathError
	if errors.As(err, &at) && at.Path == helper {
		return &fs.PathError{Op: at.Op, Path: path, Err: at.Err}
	}
	var link *os.LinkError
	if errors.As(err, &link) && link.Old == helper {
		return &fs.PathError{Op: link.Op, Path: path, Err: link.Err}
	}
	return err
}

// join is a name in a folder, without cleaning.
func join(dir, name string) string { return strings.TrimSuffix(dir, "/") + "/" + name }

// parent is the folder of a path, without cleaning.
func parent(path string) string {
	path = strings.TrimRight(path, "/")
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		return "/"
	}
	return path[:i]
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "file"
	case mode.IsDir():
		return "directory"
	case mode&fs.ModeSymlink != 0:
		return "symlink"
	}
	return "other"
}
