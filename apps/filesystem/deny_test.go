package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/berthos/berth/sdk/protocol"
	"github.com/berthos/berth/tools/testenv"
	"github.com/landlock-lsm/go-landlock/landlock"
)

// confined is the app in a process of its own that Landlock confines to
// dir/workspace, as the enforcer does it. It serves dir/socket.
func confined(dir string) int {
	ln, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err == nil {
		err = landlock.V3.RestrictPaths(landlock.RWDirs(dir+"/workspace"), landlock.RODirs("/proc"))
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	if err := newApp(files{base: dir + "/workspace"}).ServeOn(context.Background(), ln); err != nil {
		return 1
	}
	return 0
}

// TestDenied: what the kernel refuses reaches the caller as the kernel said it,
// about the path that the caller named, and nothing is left behind.
func TestDenied(t *testing.T) {
	dir := t.TempDir()
	work, out := filepath.Join(dir, "workspace"), filepath.Join(dir, "out")
	put(t, work, "inside", "inside")
	put(t, out, "secret", "secret")
	put(t, out, "sub/x", "")
	for name, to := range map[string]string{"link": "../out/secret", "dangling": "../out/new", "folder": "../out"} {
		if err := os.Symlink(to, filepath.Join(work, name)); err != nil {
			t.Fatal(err)
		}
	}
	// A folder whose name begins like the granted one's is another folder.
	put(t, dir, "workspace-evil/x", "evil")
	call := startConfined(t, dir)

	if _, err := call("write_file", m{"path": "control", "content": "x"}); err != nil || get(t, work, "control") != "x" {
		t.Fatalf("the control is refused: %v", err)
	}
	if _, err := call("read_file", m{"path": "inside"}); err != nil {
		t.Fatalf("the control is refused: %v", err)
	}
	for _, v := range refusals(work, out) {
		_, err := call(v.export, v.in)
		var e *protocol.Error
		if !errors.As(err, &e) || e.Code != "system" || e.Errno != "EACCES" || e.Op != v.op || e.Path != v.path {
			t.Errorf("%s %v: got %+v, %v; want EACCES of %s on %s", v.export, v.in, e, err, v.op, v.path)
		}
	}
	if got := names(t, out) + " / " + names(t, work) + " / " + names(t, dir); got != "secret sub / control dangling folder inside link / out socket workspace workspace-evil" {
		t.Errorf("left behind: %s", got)
	}
	if get(t, out, "secret") != "secret" || get(t, dir, "workspace-evil/x") != "evil" || get(t, work, "inside") != "inside" {
		t.Error("a refused call changed a file")
	}
}

// refusal is a call and the system call that the kernel must refuse it.
type refusal struct {
	export   string
	in       m
	op, path string
}

func refusals(work, out string) []refusal {
	return []refusal{
		{"write_file", m{"path": out + "/new", "content": "x"}, "open", out + "/new"},
		{"write_file", m{"path": out + "/secret", "content": "x"}, "open", out + "/secret"},
		{"write_file", m{"path": "../out/secret", "content": "x", "append": true}, "open", work + "/../out/secret"},
		{"write_file", m{"path": "link", "content": "x"}, "open", work + "/link"},
		{"write_file", m{"path": "dangling", "content": "x"}, "open", work + "/dangling"},
		{"write_file", m{"path": "folder/new", "content": "x"}, "open", work + "/folder/new"},
		{"write_file", m{"path": work + "-evil/x", "content": "x"}, "open", work + "-evil/x"},
		{"write_file", m{"path": out + "/a/b/c", "content": "x", "parents": true}, "mkdir", out + "/a"},
		{"read_file", m{"path": "link"}, "open", work + "/link"},
		{"read_file", m{"path": out + "/secret"}, "open", out + "/secret"},
		{"read_binary_file", m{"path": "folder/secret"}, "open", work + "/folder/secret"},
		{"edit_file", m{"path": "link", "edits": []m{replace("secret", "x")}}, "open", work + "/link"},
		{"create_directory", m{"path": out + "/new"}, "mkdir", out + "/new"},
		{"list_directory", m{"path": out}, "open", out},
		{"directory_tree", m{"path": "folder"}, "open", work + "/folder"},
		{"search_files", m{"path": out, "pattern": "*"}, "open", out},
		{"delete_file", m{"path": out + "/secret"}, "unlink", out + "/secret"},
		{"delete_file", m{"path": out + "/sub", "recursive": true}, "unlink", out + "/sub"},
		{"move_file", m{"source": "inside", "destination": out + "/inside"}, "rename", work + "/inside"},
		{"move_file", m{"source": out + "/secret", "destination": "stolen"}, "rename", out + "/secret"},
	}
}

// startConfined returns a function that calls the app.
func startConfined(t *testing.T, dir string) func(string, m) (json.RawMessage, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BERTH_TEST_CONFINED="+dir)
	cmd.Stderr = os.Stderr
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, _ := bufio.NewReader(said).ReadString('\n'); line != "ready\n" {
		testenv.Skipf(t, "cannot confine a process here: %s", line)
	}
	return func(export string, in m) (json.RawMessage, error) {
		conn, err := net.Dial("unix", filepath.Join(dir, "socket"))
		if err != nil {
			t.Fatal(err)
		}
		input, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		return protocol.Call(t.Context(), conn, protocol.Request{ID: "1", Export: export, Input: input}, nil)
	}
}
