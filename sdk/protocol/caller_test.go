package protocol

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
)

// appSays gives the caller's side of a connection whose app reads one line and
// then writes text and closes.
func appSays(t *testing.T, text string) net.Conn {
	t.Helper()
	here, there := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer there.Close()
		bufio.NewReader(there).ReadString('\n')
		there.Write([]byte(text))
	}()
	t.Cleanup(func() { here.Close(); <-done })
	return here
}

var echo = Request{ID: "a", Export: "echo"}

func TestParseAnnounce(t *testing.T) {
	if m, err := ParseAnnounce([]byte(`{"type":"announce","protocol":1,"exports":[{"name":"a"}]}`)); err != nil || len(m.Exports) != 1 {
		t.Fatal(m, err)
	}
	for line, want := range map[string]string{
		`{"type":"announce","protocol":99}`:                                                              "it speaks protocol 99",
		`{"type":"announce","protocol":1,"exports":[{"name":"a"},{"name":"a"}]}`:                         "announced twice",
		`{"type":"announce","protocol":1,"exports":[{"name":"a\n\u001b[31m"}]}`:                          "is not a letter followed by",
		"{\"type\":\"announce\",\"protocol\":1,\"exports\":[{\"name\":\"a\",\"description\":\"\xff\"}]}": "not UTF-8",
		`{"type":"error","error":{"code":"failed","message":"too old"}}`:                                 "too old",
		`{"type":"result","output":1}`:                                                                   "result before the announcement",
		``:                                                                                               "not JSON",
	} {
		if _, err := ParseAnnounce([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
	}
}

func TestCall(t *testing.T) {
	conn := appSays(t, `{"type":"progress","value":1}`+"\n"+`{"type":"log","text":"x"}`+"\n"+`{"type":"result","output":{"n":2}}`+"\n")
	var on []string
	out, err := Call(t.Context(), conn, echo, func(m Message) { on = append(on, m.Type) })
	if err != nil || string(out) != `{"n":2}` || strings.Join(on, " ") != "progress log" {
		t.Fatalf("%s, %v, %v", out, err, on)
	}
}

func TestCallError(t *testing.T) {
	conn := appSays(t, `{"type":"error","error":{"code":"system","message":"m","errno":"EACCES"}}`+"\n")
	_, err := Call(t.Context(), conn, echo, nil)
	var e *Error
	if !errors.As(err, &e) || e.Errno != "EACCES" || err.Error() != "m" {
		t.Fatalf("%v", err)
	}
}

func TestCallBrokenApp(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "without a result",
		`{"type":"progress"}` + "\n": "without a result",
		`{"type":"result"`:           "unexpected EOF",
		"hello\n":                    "not JSON",
		`{"type":"announce","protocol":1}` + "\n": "announcement in a call",
	} {
		_, err := Call(t.Context(), appSays(t, text), echo, nil)
		if err == nil || !strings.HasPrefix(err.Error(), "cannot finish call of echo: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("app says %q: got %v, want %q", text, err, want)
		}
	}
}

func TestCallCanceled(t *testing.T) {
	here, there := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	closed := make(chan error)
	go func() {
		r := NewReader(there)
		r.Request()
		cancel()
		_, err := r.Request()
		closed <- err
	}()
	if _, err := Call(ctx, here, echo, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := <-closed; err == nil {
		t.Error("the app was not told")
	}
}

func TestHello(t *testing.T) {
	m, err := Hello(appSays(t, `{"type":"announce","protocol":1,"exports":[{"name":"a"}]}`+"\n"))
	if err != nil || len(m.Exports) != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	for text, want := range map[string]string{
		"": "closed the connection",
		`{"type":"announce","protocol":2}` + "\n":                             "protocol 2",
		`{"type":"error","error":{"code":"internal","message":"why"}}` + "\n": "why",
		`{"type":"log","text":"x"}` + "\n":                                    "before the announcement",
		`{"type":"log","text":"` + strings.Repeat("x", MaxAnnounce) + "\"}\n": "too long",
	} {
		if _, err := Hello(appSays(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestCallRefusedLine: an app may answer and close before it has read all of it.
func TestCallRefusedLine(t *testing.T) {
	here, there := net.Pipe()
	go func() {
		there.Read(make([]byte, 1))
		there.Write([]byte(`{"type":"error","error":{"code":"invalid_input","message":"too long"}}` + "\n"))
		there.Close()
	}()
	_, err := Call(t.Context(), halves{here}, echo, nil)
	var e *Error
	if !errors.As(err, &e) || e.Message != "too long" {
		t.Errorf("got %v", err)
	}
}

// halves is a connection that writes one byte and then fails.
type halves struct{ net.Conn }

func (h halves) Write(p []byte) (int, error) {
	n, err := h.Conn.Write(p[:1])
	return n, errors.Join(err, errors.New("broken pipe"))
}

func TestCallNothingSent(t *testing.T) {
	for _, q := range []Request{
		{ID: "a", Export: "a b"}, {Export: "echo"}, {ID: "a", Export: "echo", Input: []byte("{")},
		{ID: "a", Export: "echo", Input: []byte(`"` + strings.Repeat("x", MaxMessage) + `"`)},
	} {
		here, there := net.Pipe()
		if _, err := Call(t.Context(), here, q, nil); err == nil {
			t.Errorf("call of %q was sent", q.Export)
		}
		if n, _ := there.Read(make([]byte, 1)); n != 0 {
			t.Errorf("call of %q sent something", q.Export)
		}
	}
}
