package choose

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func testState(t *testing.T) *State {
	t.Helper()
	home := t.TempDir()
	s, err := OpenState(func(name string) string { return map[string]string{"XDG_STATE_HOME": home}[name] })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAcceptance(t *testing.T) {
	s := testState(t)
	if ok, err := s.NativeAccepted(); ok || err != nil {
		t.Fatalf("before: %v, %v", ok, err)
	}
	for range 2 {
		if err := s.AcceptNative(); err != nil {
			t.Fatal(err)
		}
	}
	if ok, err := s.NativeAccepted(); !ok || err != nil {
		t.Errorf("after: %v, %v", ok, err)
	}
	// The acceptance is for this host alone.
	raw, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	id, err := hostID()
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(string(raw), id, strings.Repeat("0", 64), 1)
	if err := os.WriteFile(s.path, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	if ok, err := s.NativeAccepted(); ok || err != nil {
		t.Errorf("on another host: %v, %v", ok, err)
	}
}

func TestProofs(t *testing.T) {
	s := testState(t)
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			if err := s.remember(proof{Key: string(rune('a' + n)), OK: n%2 == 0}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for n := range 20 {
		p, known, err := s.proof(string(rune('a' + n)))
		if err != nil || !known || p.OK != (n%2 == 0) {
			t.Errorf("proof %d: %+v, %v, %v", n, p, known, err)
		}
	}
	if err := s.remember(proof{Key: "a", OK: false}); err != nil {
		t.Fatal(err)
	}
	if p, _, _ := s.proof("a"); p.OK {
		t.Error("a newer outcome did not replace the older one")
	}
}

func TestUntrustedState(t *testing.T) {
	cases := map[string]func(path string) error{
		"garbage":           func(p string) error { return os.WriteFile(p, []byte("{"), 0o600) },
		"another version":   func(p string) error { return os.WriteFile(p, []byte(`{"schema":99}`), 0o600) },
		"writable by all":   func(p string) error { return writeMode(p, 0o666) },
		"writable by group": func(p string) error { return writeMode(p, 0o620) },
		"a symlink":         func(p string) error { return os.Symlink("/etc/passwd", p) },
	}
	for name, spoil := range cases {
		t.Run(name, func(t *testing.T) {
			s := testState(t)
			if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := spoil(s.path); err != nil {
				t.Fatal(err)
			}
			if ok, err := s.NativeAccepted(); ok || err == nil {
				t.Errorf("accepted %v, %v", ok, err)
			}
			if err := s.AcceptNative(); err == nil {
				t.Error("it was written over")
			}
		})
	}
}

func writeMode(path string, mode os.FileMode) error {
	if err := os.WriteFile(path, []byte(`{"schema":1}`), mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// TestNothingCanBeRemembered: a home that cannot be written stops no start.
func TestNothingCanBeRemembered(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := &State{path: filepath.Join(file, "berth", "machines.json")}
	if p := s.keep(proof{Key: "k", OK: true, Reason: "tried"}); !p.OK || !strings.HasPrefix(p.Reason, "tried; the next start tries again: cannot remember") {
		t.Errorf("%+v, want the outcome and why it was not remembered", p)
	}
	if p := testState(t).keep(proof{Key: "k", OK: true, Reason: "tried"}); p.Reason != "tried" { // control
		t.Errorf("%+v, want the outcome alone", p)
	}
}
