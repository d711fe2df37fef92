package sandbox

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flights
		want := func(since time.Time, n int) {
			t.Helper()
			if got := f.since("a", since); got != n {
				t.Errorf("%d calls were in flight, want %d", got, n)
			}
		}
		begin := time.Now()
		want(begin, 0)
		end := f.begin("a")
		f.begin("b")
		want(begin, 1)
		time.Sleep(time.Second)
		end()
		end() // counts once
		want(begin, 1)
		time.Sleep(time.Second)
		want(time.Now(), 0)
		later := time.Now()
		for range keptFlights + 1 {
			f.begin("a")()
		}
		if f.since("a", later) <= keptFlights {
			t.Error("calls that were forgotten are not counted")
		}
		time.Sleep(time.Second)
		want(time.Now(), 0)
	})
}

// TestFlightsOfProcesses: a record names one process of an app, and only calls
// to that one can be its cause.
func TestFlightsOfProcesses(t *testing.T) {
	var f flights
	begin := time.Now()
	f.begin("notes")
	f.begin("notes.read")
	f.begin("notes.read")
	f.begin("notesx.read")
	for name, want := range map[string]int{"notes": 3, "notes.read": 2, "notes.write": 0, "notesx": 1} {
		if got := f.since(name, begin); got != want {
			t.Errorf("%d calls of %s, want %d", got, name, want)
		}
	}
}

func TestLastLine(t *testing.T) {
	for text, want := range map[string]bool{
		`{"type":"result","output":{}}` + "\n":                              true,
		`{"type":"progress","text":"{\"type\":\"result\""}` + "\n":          false,
		`{"type":"progress"}` + "\n" + `{"type":"error","error":{}}` + "\n": true,
		strings.Repeat("x", 100) + `{"type":"result","output":{}}`:          false,
		strings.Repeat("x", 100) + "\n" + `{"type":"result","output":{}}`:   true,
		`{"type":"resul`: false,
	} {
		for _, step := range []int{1, 7, len(text)} {
			var l lastLine
			got := false
			for rest := text; rest != ""; rest = rest[min(step, len(rest)):] {
				got = got || l.begins([]byte(rest[:min(step, len(rest))]))
			}
			if got != want {
				t.Errorf("%q in steps of %d: %v", text, step, got)
			}
		}
	}
}
