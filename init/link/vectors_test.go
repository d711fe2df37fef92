package link

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/tools/txtar"
)

// archives returns the vectors of a folder, each as its named files.
func archives(t *testing.T, dir string) map[string]map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no vectors in %s: %v", dir, err)
	}
	all := map[string]map[string]string{}
	for _, p := range paths {
		raw, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		files := map[string]string{}
		for _, f := range txtar.Parse(raw).Files {
			files[f.Name] = string(f.Data)
		}
		all[strings.TrimSuffix(filepath.Base(p), ".txtar")] = files
	}
	return all
}

func numbers(t *testing.T, s string) []int {
	t.Helper()
	list := []int{}
	for _, f := range strings.Fields(s) {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, n)
	}
	if len(list) == 0 {
		return []int{Version}
	}
	return list
}

const vectorNonce = "00112233445566778899aabbccddeeff"

// TestHandshakeVectors plays one side's bytes to the other, and the reverse.
func TestHandshakeVectors(t *testing.T) {
	for name, v := range archives(t, "handshake") {
		sides := []string{"host", "guest"}
		if only, ok := v["only"]; ok {
			sides = []string{strings.TrimSpace(only)}
		}
		for _, side := range sides {
			t.Run(name+"/"+side, func(t *testing.T) { replayHandshake(t, side, v) })
		}
	}
}

func replayHandshake(t *testing.T, side string, v map[string]string) {
	us, them := socketpair(t)
	peer := "guest"
	if side == "guest" {
		peer = "host"
	}
	said := make(chan string, 1)
	go func() {
		_, _ = them.Write([]byte(v[peer]))
		if v[side+"-error"] != "" {
			_ = them.CloseWrite() // nothing more will come
		}
		got := make([]byte, len(v[side]))
		n, _ := io.ReadFull(them, got)
		said <- string(got[:n])
	}()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	var s *Session
	var err error
	if side == "host" {
		s, err = host(ctx, us, numbers(t, v["offers"]), vectorNonce)
	} else {
		s, err = guest(ctx, us, numbers(t, v["speaks"]))
	}
	if want := strings.TrimSpace(v[side+"-error"]); want == "" {
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
	} else if err == nil || err.Error() != want {
		t.Fatalf("error %v\nwant  %s", err, want)
	}
	_ = us.CloseWrite()
	if got := <-said; got != v[side] {
		t.Errorf("said %q\nwant %q", got, v[side])
	}
}

// TestConversationVectors plays each conversation twice: this package as the
// host, then as the guest, with bare yamux and the recorded lines as the peer.
func TestConversationVectors(t *testing.T) {
	for name, v := range archives(t, "conversation") {
		for _, side := range []string{"host", "guest"} {
			t.Run(name+"/"+side, func(t *testing.T) {
				r := newReplay(t, side)
				for n, line := range strings.Split(strings.TrimSpace(v["streams"]), "\n") {
					if err := r.line(line); err != nil {
						t.Fatalf("line %d: %s\n%v", n+1, line, err)
					}
				}
			})
		}
	}
}

// replay is one conversation, seen from our side.
type replay struct {
	side    string
	session *Session
	peer    *yamux.Session
	wire    net.Conn // below peer
	streams map[string]*replayed
}

// replayed is one stream of it: our end, the peer's, and its kind.
type replayed struct {
	ours     *Stream
	theirs   net.Conn
	kind     string
	control  *ControlConn
	replied  bool
	expected bool // the first line from the guest is a StreamReply
}

func newReplay(t *testing.T, side string) *replay {
	t.Helper()
	us, them := socketpair(t)
	_ = us.SetDeadline(time.Now().Add(deadline))
	_ = them.SetDeadline(time.Now().Add(deadline))
	r := &replay{side: side, wire: them, streams: map[string]*replayed{}}
	var err error
	if side == "host" {
		r.session = newSession(us, Version, nil, true)
		r.peer, err = yamux.Server(them, muxConfig())
	} else {
		r.session = newSession(us, Version, nil, false)
		r.peer, err = yamux.Client(them, muxConfig())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.session.Close()
		_ = r.peer.Close()
	})
	return r
}

func (r *replay) line(line string) error {
	who, rest, _ := strings.Cut(line, " ")
	verb, rest, _ := strings.Cut(rest, " ")
	mine := who == r.side
	switch verb {
	case "opens":
		id, header, _ := strings.Cut(rest, " ")
		return r.open(mine, id, header)
	case "ends":
		return r.ends(mine, r.streams[rest])
	case "resets":
		return r.resets(mine, r.streams[rest])
	}
	return r.says(mine, who, r.streams[verb], rest)
}

func (r *replay) open(mine bool, id, header string) error {
	var h StreamHeader
	if err := decodeStrict([]byte(header), &h); err != nil {
		return err
	}
	s := &replayed{kind: h.Type, expected: h.Type == StreamCall || h.Type == StreamCode}
	r.streams[id] = s
	var err error
	if mine {
		if s.ours, err = r.session.OpenStream(h); err != nil {
			return err
		}
		if s.theirs, err = r.peer.Accept(); err != nil {
			return err
		}
		if err := expect(s.theirs, header+"\n"); err != nil {
			return err
		}
	} else {
		if s.theirs, err = r.peer.Open(); err != nil {
			return err
		}
		if _, err := s.theirs.Write([]byte(header + "\n")); err != nil {
			return err
		}
		var got StreamHeader
		if got, s.ours, err = r.session.Accept(); err != nil {
			return err
		}
		if got != h {
			return fmt.Errorf("header %+v", got)
		}
	}
	if h.Type == StreamControl {
		s.control = NewControl(s.ours)
	}
	if got := strconv.Itoa(int(s.ours.raw.StreamID())); got != id {
		return fmt.Errorf("the stream has number %s", got)
	}
	return nil
}

// expect reads exactly what is wanted.
func expect(from io.Reader, want string) error {
	got := make([]byte, len(want))
	if _, err := io.ReadFull(from, got); err != nil {
		return fmt.Errorf("got %q: %w", got, err)
	}
	if string(got) != want {
		return fmt.Errorf("got %q", got)
	}
	return nil
}

func (r *replay) ends(mine bool, s *replayed) error {
	if mine {
		if err := s.ours.CloseWrite(); err != nil {
			return err
		}
		return expectEOF(s.theirs)
	}
	if err := s.theirs.Close(); err != nil {
		return err
	}
	return expectEOF(s.ours)
}

func expectEOF(from io.Reader) error {
	if n, err := from.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return fmt.Errorf("%d bytes and %v, want the end", n, err)
	}
	return nil
}

func (r *replay) resets(mine bool, s *replayed) error {
	if !mine {
		// yamux can not reset a stream, so this is said with its bytes.
		if _, err := r.wire.Write(resetFrame(s.ours.raw.StreamID())); err != nil {
			return err
		}
		if _, err := s.ours.Read(make([]byte, 1)); !errors.Is(err, ErrReset) {
			return fmt.Errorf("read %v", err)
		}
		return nil
	}
	s.ours.Reset()
	if _, err := s.theirs.Read(make([]byte, 1)); !errors.Is(err, yamux.ErrConnectionReset) {
		return fmt.Errorf("the peer read %v", err)
	}
	return nil
}

// says sends a line by our API and reads its bytes at the peer, or the reverse.
func (r *replay) says(mine bool, who string, s *replayed, text string) error {
	send, receive := s.raw()
	switch {
	case s.expected && !s.replied && who == "guest":
		s.replied = true
		send, receive = s.reply()
	case s.kind == StreamControl:
		send, receive = s.messages()
	case s.kind == StreamLog:
		send, receive = s.records()
	case s.kind == StreamDenials:
		send, receive = s.denials()
	}
	if mine {
		if err := send(text); err != nil {
			return err
		}
		return expect(s.theirs, text+"\n")
	}
	if _, err := s.theirs.Write([]byte(text + "\n")); err != nil {
		return err
	}
	got, err := receive()
	if err != nil {
		return err
	}
	if got != text {
		return fmt.Errorf("received %s", got)
	}
	return nil
}

type (
	sender   = func(text string) error
	receiver = func() (string, error)
)

func (s *replayed) raw() (sender, receiver) {
	return func(text string) error {
			_, err := s.ours.Write([]byte(text + "\n"))
			return err
		}, func() (string, error) {
			line, err := s.ours.readLine(1 << 10)
			return string(line), err
		}
}

func (s *replayed) messages() (sender, receiver) {
	return func(text string) error {
			var m Control
			if err := decodeStrict([]byte(text), &m); err != nil {
				return err
			}
			return s.control.Send(m)
		}, func() (string, error) {
			m, err := s.control.Receive()
			return encoded(m), err
		}
}

func (s *replayed) records() (sender, receiver) {
	return func(text string) error {
			var rec LogRecord
			if err := decodeStrict([]byte(text), &rec); err != nil {
				return err
			}
			return s.ours.SendLog(rec)
		}, func() (string, error) {
			rec, err := s.ours.ReceiveLog()
			return encoded(rec), err
		}
}

func (s *replayed) denials() (sender, receiver) {
	return func(text string) error {
			var rec DenialRecord
			if err := decodeStrict([]byte(text), &rec); err != nil {
				return err
			}
			return s.ours.SendDenial(rec)
		}, func() (string, error) {
			rec, err := s.ours.ReceiveDenial()
			return encoded(rec), err
		}
}

func (s *replayed) reply() (sender, receiver) {
	return func(text string) error {
			var reply StreamReply
			if err := decodeStrict([]byte(text), &reply); err != nil || reply.OK {
				return errors.Join(err, s.ours.SendReply(nil))
			}
			return s.ours.SendReply(errors.New(reply.Error))
		}, func() (string, error) {
			err := s.ours.ReceiveReply()
			if err != nil && !errors.Is(err, ErrRefused) {
				return "", err
			}
			reply := StreamReply{OK: err == nil}
			if err != nil {
				reply.Error = err.Error()
			}
			return encoded(reply), nil
		}
}

func encoded(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(b.String(), "\n")
}
