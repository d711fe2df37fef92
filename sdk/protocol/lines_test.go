package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/tools/txtar"
)

func vectors(t *testing.T, pattern string) map[string]*txtar.Archive {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no vectors %s: %v", pattern, err)
	}
	all := map[string]*txtar.Archive{}
	for _, name := range names {
		a, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(name)] = a
	}
	return all
}

// TestVectors reads each line of the recorded conversations and writes it again.
func TestVectors(t *testing.T) {
	for name, a := range vectors(t, "testdata/*.txtar") {
		t.Run(name, func(t *testing.T) {
			raw := map[string]bool{} // connections that have become raw
			for _, f := range a.Files {
				conn, side, _ := strings.Cut(f.Name, " ")
				if !raw[conn] && !strings.HasSuffix(side, " close") {
					raw[conn] = section(t, f.Name, side, f.Data)
				}
			}
		})
	}
}

// section checks one section and says whether raw bytes followed a stream line.
func section(t *testing.T, name, side string, data []byte) (raw bool) {
	var again bytes.Buffer
	r, w := NewReader(iotest.OneByteReader(bytes.NewReader(data))), NewWriter(&again)
	for {
		var q Request
		var m Message
		var err error
		if side == "app" {
			m, err = r.Message()
		} else {
			q, err = r.Request()
		}
		switch {
		case errors.Is(err, io.EOF):
			if got, want := again.String(), canonical(data); got != want {
				t.Errorf("section %q written again:\n%swant\n%s", name, got, want)
			}
			return false
		case err != nil:
			t.Fatalf("section %q: %v", name, err)
		case side == "app":
			err = w.Message(m)
		default:
			err = w.Request(q)
		}
		if err != nil {
			t.Fatalf("section %q: %v", name, err)
		}
		if q.Type == TypeStream {
			rest, err := io.ReadAll(r.Rest())
			if err != nil || !bytes.HasSuffix(data, rest) || len(rest) == 0 {
				t.Errorf("section %q: raw bytes are %q, %v", name, rest, err)
			}
			return true
		}
	}
}

// canonical undoes the liberties that the caller of the vectors takes.
func canonical(data []byte) string {
	return strings.ReplaceAll(string(data), `,"later":{"versions":"may add keys"}`, "")
}

func TestBadVectors(t *testing.T) {
	kinds := map[string]error{"not JSON": ErrNotJSON, "not UTF-8": ErrNotUTF8, "not a message": ErrNotMessage}
	for name, a := range vectors(t, "testdata/bad/*.txtar") {
		t.Run(name, func(t *testing.T) {
			// A good line follows; it must not be reached.
			r := NewReader(io.MultiReader(bytes.NewReader(a.Files[0].Data), strings.NewReader(`{"type":"cancel"}`+"\n")))
			read := func() error {
				if a.Files[0].Name == "app" {
					_, err := r.Message()
					return err
				}
				_, err := r.Request()
				return err
			}
			err := read()
			if want := kinds[strings.TrimSpace(string(a.Files[1].Data))]; want == nil || !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			if again := read(); again != err {
				t.Errorf("after the fault the connection goes on: %v", again)
			}
		})
	}
}

func TestLineSplitInsideCharacter(t *testing.T) {
	line := `{"type":"call","id":"a","export":"echo","input":{"text":"é"}}` + "\n"
	for i := range line {
		r := NewReader(io.MultiReader(strings.NewReader(line[:i]), strings.NewReader(line[i:])))
		if q, err := r.Request(); err != nil || string(q.Input) != `{"text":"é"}` {
			t.Fatalf("split at %d: %s, %v", i, q.Input, err)
		}
	}
}

// endless gives bytes without a newline and counts them.
type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	e.n += len(p)
	return len(p), nil
}

func TestLineTooLong(t *testing.T) {
	src := &endless{}
	r := NewReader(src)
	if _, err := r.Request(); !errors.Is(err, ErrTooLong) {
		t.Fatalf("got %v", err)
	}
	if src.n > MaxMessage+(64<<10) {
		t.Errorf("%d bytes were read of a line that may have %d", src.n, MaxMessage)
	}
	if _, err := r.Request(); !errors.Is(err, ErrTooLong) {
		t.Errorf("a later read says %v", err)
	}
}

// TestLineOfTheLimit: the longest line passes both ways, one byte more neither.
func TestLineOfTheLimit(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	frame := len(`{"type":"result","output":""}` + "\n")
	output := func(n int) Message {
		return Message{Type: TypeResult, Output: []byte(`"` + strings.Repeat("x", n-frame) + `"`)}
	}
	if err := w.Message(output(MaxMessage + 1)); !errors.Is(err, ErrTooLong) || b.Len() != 0 {
		t.Fatalf("one byte too many: %v, %d bytes were written", err, b.Len())
	}
	if err := w.Message(output(MaxMessage)); err != nil || b.Len() != MaxMessage {
		t.Fatalf("the longest line: %v, %d bytes", err, b.Len())
	}
	if _, err := NewReader(&b).Message(); err != nil {
		t.Fatalf("the longest line: %v", err)
	}
}

func TestTruncatedLine(t *testing.T) {
	if _, err := NewReader(strings.NewReader(`{"type":"cancel"}`)).Request(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a line without its newline: %v", err)
	}
	if _, err := NewReader(strings.NewReader("")).Request(); err != io.EOF {
		t.Errorf("nothing: %v", err)
	}
}

func TestWriterCutsText(t *testing.T) {
	var b bytes.Buffer
	long := strings.Repeat("é", MaxText)
	if err := NewWriter(&b).Message(Message{Type: TypeError, Error: &Error{Code: CodeFailed, Message: long}}); err != nil {
		t.Fatal(err)
	}
	m, err := NewReader(&b).Message()
	if err != nil || len(m.Error.Message) > MaxText || !strings.HasSuffix(m.Error.Message, "é… [cut, 32768 bytes in all]") {
		t.Fatalf("%v, %d bytes: …%q", err, len(m.Error.Message), m.Error.Message[len(m.Error.Message)-40:])
	}
}

func TestReaderCutsText(t *testing.T) {
	line, err := json.Marshal(Message{Type: TypeError, Error: &Error{Code: CodeFailed, Message: strings.Repeat("m", 1<<20), Path: strings.Repeat("p", 1<<20)}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewReader(bytes.NewReader(append(line, '\n'))).Message()
	if err != nil || len(m.Error.Message) > MaxText || len(m.Error.Path) > MaxText {
		t.Errorf("%v: a message of %d bytes and a path of %d, at most %d", err, len(m.Error.Message), len(m.Error.Path), MaxText)
	}
}

func TestWriterRefuses(t *testing.T) {
	var b bytes.Buffer
	for _, m := range []Message{
		{}, {Type: TypeResult}, {Type: TypeProgress, Value: math.NaN()}, {Type: TypeProgress, Total: math.Inf(1)},
		{Type: TypeAnnounce, Protocol: 1, Exports: []Export{{Name: "a b"}}},
		{Type: TypeResult, Output: []byte(`{"not json`)},
	} {
		if err := NewWriter(&b).Message(m); err == nil || b.Len() != 0 {
			t.Errorf("%+v was written: %v", m, err)
		}
	}
	if err := NewWriter(&b).Request(Request{Type: TypeCall, Export: "x"}); err == nil {
		t.Error("a call without ID was written")
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(`{"type":"call","id":"a","export":"echo","input":{"text":7}}` + "\n" + `{"type":"cancel"}` + "\n"))
	f.Add([]byte(`{"type":"announce","protocol":1,"exports":[{"name":"a"}]}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		requests, messages := NewReader(bytes.NewReader(data)), NewReader(bytes.NewReader(data))
		for {
			q, err := requests.Request()
			if err != nil {
				break
			}
			if err := NewWriter(io.Discard).Request(q); err != nil {
				t.Fatalf("read but cannot be written: %+v: %v", q, err)
			}
		}
		for {
			m, err := messages.Message()
			if err != nil {
				break
			}
			if err := NewWriter(io.Discard).Message(m); err != nil {
				t.Fatalf("read but cannot be written: %+v: %v", m, err)
			}
		}
	})
}
