package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func replace(old, new string) m { return m{"old_text": old, "new_text": new} }

func TestEditFile(t *testing.T) {
	c, dir := start(t)
	put(t, dir, "a", "one\ntwo\nthree\ntwo\n")
	edits := []m{replace("one\n", "ONE\n"), replace("ONE\ntwo", "1\n2")}
	dry := ok[editOut](t, c, "edit_file", m{"path": "a", "edits": edits, "dry_run": true})
	want := fmt.Sprintf("--- a%[1]s/a\n+++ b%[1]s/a\n@@ -1,4 +1,4 @@\n-one\n-two\n+1\n+2\n three\n two\n", dir)
	if dry.Diff != want || dry.Written || dry.Replacements != 2 || get(t, dir, "a") != "one\ntwo\nthree\ntwo\n" {
		t.Errorf("dry run: %+v\nwant\n%s", dry, want)
	}
	if out := ok[editOut](t, c, "edit_file", m{"path": "a", "edits": edits}); out.Diff != want || !out.Written {
		t.Errorf("got %+v", out)
	}
	all := m{"old_text": "t", "new_text": "T", "replace_all": true}
	if out := ok[editOut](t, c, "edit_file", m{"path": "a", "edits": []m{all}}); out.Replacements != 2 {
		t.Errorf("got %+v", out)
	}
	if got := get(t, dir, "a"); got != "1\n2\nThree\nTwo\n" {
		t.Errorf("the file has %q", got)
	}
	if out := ok[editOut](t, c, "edit_file", m{"path": "a", "edits": []m{replace("1", "1")}}); out.Diff != "" || out.Written {
		t.Errorf("nothing to change: %+v", out)
	}
	put(t, dir, "dos", "a\r\nb\r\nc")
	ok[editOut](t, c, "edit_file", m{"path": "dos", "edits": []m{replace("a\nb", "x\ny\nz")}})
	if got := get(t, dir, "dos"); got != "x\r\ny\r\nz\r\nc" {
		t.Errorf("line ends: %q", got)
	}
	if got := names(t, dir); got != "a dos" {
		t.Errorf("left behind: %q", got)
	}
}

func TestEditFileFails(t *testing.T) {
	c, dir := start(t)
	put(t, dir, "a", "x\nfunc  f() {\n\treturn\n}\nx\n")
	put(t, dir, "bin", "\xff")
	put(t, dir, "huge", "")
	if err := os.Truncate(filepath.Join(dir, "huge"), maxEdit+1); err != nil {
		t.Fatal(err)
	}
	good := replace("func", "fn")
	for _, v := range []struct {
		path  string
		edits []m
		code  string
		want  string
	}{
		{"a", []m{good, replace("nowhere", "")}, "failed", "edit 2 of 2: old_text does not occur"},
		{"a", []m{good, replace("x", "y")}, "failed", "occurs 2 times"},
		{"a", []m{replace("func f() {\n  return", "")}, "failed", "line 2 has the same words"},
		{"a", []m{}, "invalid_input", "there is none"},
		{"a", []m{replace("", "x")}, "invalid_input", "/edits/0/old_text"},
		{"a", []m{{"old_text": "x"}}, "invalid_input", "/edits/0/new_text: is missing"},
		{"bin", []m{good}, "failed", "not UTF-8"},
		{"huge", []m{good}, "failed", "at most"},
	} {
		e := fails(t, c, "edit_file", m{"path": v.path, "edits": v.edits}, v.code, "")
		if !strings.Contains(e.Message, v.want) {
			t.Errorf("%s %v: got %q, want %q", v.path, v.edits, e.Message, v.want)
		}
	}
	fails(t, c, "edit_file", m{"path": "none", "edits": []m{good}}, "system", "ENOENT")
	if get(t, dir, "a") != "x\nfunc  f() {\n\treturn\n}\nx\n" {
		t.Error("a failed edit changed the file")
	}
}

// TestEditGrowth: edits cannot be stacked into any amount of memory.
func TestEditGrowth(t *testing.T) {
	var edits []edit
	for range 30 {
		edits = append(edits, edit{OldText: "x", NewText: strings.Repeat("x", 100), ReplaceAll: true})
	}
	if _, _, err := applyEdits("a", "x", edits); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("got %v", err)
	}
}

// TestParallelEdits: each of them is in the file at the end.
func TestParallelEdits(t *testing.T) {
	c, dir := start(t)
	var want strings.Builder
	for i := range 20 {
		fmt.Fprintf(&want, "line %d.\n", i)
	}
	put(t, dir, "a", want.String())
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			in := m{"path": "a", "edits": []m{replace(fmt.Sprintf("line %d.", i), fmt.Sprintf("LINE %d.", i))}}
			if err := c.Call(t.Context(), "edit_file", in, nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := get(t, dir, "a"); got != strings.ToUpper(want.String()) {
		t.Errorf("edits were lost:\n%s", got)
	}
}

func TestDiffNames(t *testing.T) {
	if d := unified("/w/new\nline", []byte("a"), []byte("b")); !strings.HasPrefix(d, "--- a/\"w/new\\nline\"\n") {
		t.Errorf("got %q", d)
	}
	if d := unified("/w/a", nil, []byte(strings.Repeat("line\n", maxDiff))); len(d) > maxDiff || !strings.HasSuffix(d, "bytes in all]") {
		t.Errorf("a long diff has %d bytes", len(d))
	}
}
