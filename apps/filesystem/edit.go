package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	berth "github.com/berthos/berth/sdk/go"
	"github.com/berthos/berth/sdk/protocol"
	"github.com/rogpeppe/go-internal/diff"
)

type editIn struct {
	Path   string `json:"path" jsonschema:"the file; relative paths start at the workspace"`
	Edits  []edit `json:"edits" jsonschema:"made one after the other"`
	DryRun bool   `json:"dry_run,omitempty" jsonschema:"only return the diff"`
}

type edit struct {
	OldText    string `json:"old_text" jsonschema:"the exact text to replace"`
	NewText    string `json:"new_text" jsonschema:"what to put there"`
	ReplaceAll bool   `json:"replace_all,omitempty" jsonschema:"replace every occurrence"`
}

type editOut struct {
	Path         string `json:"path"`
	Diff         string `json:"diff" jsonschema:"unified; empty if nothing changes"`
	Replacements int    `json:"replacements"`
	Written      bool   `json:"written" jsonschema:"false for a dry run and if nothing changes"`
}

func (f files) editFile(ctx context.Context, in editIn) (editOut, error) {
	path, err := f.asked(in.Path)
	if err != nil {
		return editOut{}, err
	}
	if len(in.Edits) == 0 {
		return editOut{}, berth.Errorf(protocol.CodeInvalidInput, "input /edits: there is none")
	}
	select {
	case f.edits <- struct{}{}:
		defer func() { <-f.edits }()
	case <-ctx.Done():
		return editOut{}, ctx.Err()
	}
	before, info, err := readForEdit(path)
	if err != nil {
		return editOut{}, berth.Reading(err)
	}
	after, count, err := applyEdits(path, string(before), in.Edits)
	if err != nil {
		return editOut{}, err
	}
	out := editOut{Path: shown(path), Replacements: count, Diff: unified(path, before, []byte(after))}
	if in.DryRun || out.Diff == "" {
		return out, nil
	}
	if err := writeEdit(ctx, path, info, after); err != nil {
		return editOut{}, berth.Writing(err)
	}
	out.Written = true
	return out, nil
}

func readForEdit(path string) ([]byte, fs.FileInfo, error) {
	file, info, err := openFile(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxEdit+1))
	switch {
	case err != nil:
		return nil, nil, err
	case len(content) > maxEdit:
		return nil, nil, berth.Errorf(protocol.CodeFailed, "cannot edit %q: it has %d bytes, at most %d can be edited", path, info.Size(), maxEdit)
	case invalidAt(content) >= 0:
		return nil, nil, berth.Errorf(protocol.CodeFailed, "cannot edit %q: it is not UTF-8 (byte %d); use read_binary_file and write_binary_file", path, invalidAt(content))
	}
	return content, info, nil
}

// writeEdit refuses to overwrite what somebody else wrote since the file was read.
func writeEdit(ctx context.Context, path string, read fs.FileInfo, after string) error {
	file, now, err := openFile(path)
	if err != nil {
		return err
	}
	file.Close()
	if now.Size() != read.Size() || !now.ModTime().Equal(read.ModTime()) {
		return berth.Errorf(protocol.CodeFailed, "cannot edit %q: it changed meanwhile; read it again", path)
	}
	w := writing{ctx: ctx, path: path, fill: func(dst io.Writer) (int64, error) { return io.Copy(dst, strings.NewReader(after)) }}
	_, _, err = w.run()
	return err
}

func applyEdits(path, text string, edits []edit) (string, int, error) {
	// Agents write \n; a file with \r\n keeps its own line ends.
	crlf := strings.Contains(text, "\r\n") && !strings.Contains(strings.ReplaceAll(text, "\r\n", ""), "\n")
	total := 0
	for i, e := range edits {
		if e.OldText == "" {
			return "", 0, berth.Errorf(protocol.CodeInvalidInput, "input /edits/%d/old_text: is empty", i)
		}
		if crlf {
			e.OldText, e.NewText = withCRLF(e.OldText), withCRLF(e.NewText)
		}
		n := strings.Count(text, e.OldText)
		switch {
		case n == 0:
			return "", 0, berth.Errorf(protocol.CodeFailed, "edit %d of %d: old_text does not occur in %q%s; nothing was changed", i+1, len(edits), path, nearly(text, e.OldText))
		case n > 1 && !e.ReplaceAll:
			return "", 0, berth.Errorf(protocol.CodeFailed, "edit %d of %d: old_text occurs %d times in %q; give more of its surroundings, or replace_all; nothing was changed", i+1, len(edits), n, path)
		}
		if len(text)+n*(len(e.NewText)-len(e.OldText)) > maxEdit {
			return "", 0, berth.Errorf(protocol.CodeFailed, "edit %d of %d: %q would get larger than %d bytes; nothing was changed", i+1, len(edits), path, maxEdit)
		}
		text = strings.ReplaceAll(text, e.OldText, e.NewText)
		total += n
	}
	return text, total, nil
}

func withCRLF(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")
}

// nearly helps whoever got only the spaces wrong.
func nearly(text, old string) string {
	want := words(old)
	lines := strings.Split(text, "\n")
	for i := range lines {
		if len(want) > 0 && i+len(want) <= len(lines) && sameWords(lines[i:i+len(want)], want) {
			return fmt.Sprintf(" (line %d has the same words with other spaces)", i+1)
		}
	}
	return ""
}

func words(text string) []string {
	var all []string
	for line := range strings.SplitSeq(strings.Trim(text, "\r\n"), "\n") {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	return all
}

func sameWords(lines, want []string) bool {
	for i, line := range lines {
		if strings.Join(strings.Fields(line), " ") != want[i] {
			return false
		}
	}
	return true
}

// unified is the difference of two texts, cut with a mark if it is very long.
func unified(path string, before, after []byte) string {
	name := strings.TrimPrefix(path, "/")
	if q := strconv.Quote(name); len(q) != len(name)+2 {
		name = q
	}
	d := diff.Diff("a/"+name, before, "b/"+name, after)
	_, d, _ = bytes.Cut(d, []byte("\n")) // a line that only Go's tools write
	return protocol.Cut(string(d), maxDiff)
}
