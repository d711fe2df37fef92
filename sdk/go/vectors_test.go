package berth_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	berth "github.com/berthos/berth/sdk/go"
	"github.com/berthos/berth/sdk/go/berthtest"
	"github.com/berthos/berth/sdk/protocol"
	"go.uber.org/goleak"
	"golang.org/x/tools/txtar"
)

func TestMain(m *testing.M) {
	if os.Getenv("BERTH_TEST_CHILD") != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(m)
}

type text struct {
	Text string `json:"text" jsonschema:"what to give back"`
}

type none struct{}

// vectorApp is the app of the recorded conversations (spec.md).
func vectorApp() *berth.App {
	app := berth.New("vectors")
	app.Stderr = io.Discard
	berth.Export(app, "echo", "", func(_ context.Context, in text) (text, error) { return in, nil })
	berth.Export(app, "fail", "", func(context.Context, none) (none, error) { return none{}, errors.New("as asked") })
	berth.Export(app, "missing", "", func(context.Context, none) (none, error) {
		_, err := os.Open("/nonexistent/file")
		return none{}, err
	})
	berth.Export(app, "count", "", func(ctx context.Context, _ none) (map[string]int, error) {
		berth.Progress(ctx, 1, 2, "one")
		berth.Log(ctx, slog.LevelInfo, "half %s", "way")
		berth.Progress(ctx, 2, 2, "two")
		return map[string]int{"n": 2}, nil
	})
	berth.Export(app, "wait", "", func(ctx context.Context, _ none) (none, error) {
		<-ctx.Done()
		return none{}, ctx.Err()
	})
	berth.Export(app, "panic", "", func(context.Context, none) (none, error) { panic("as asked") })
	berth.Export(app, "upper", "", upper)
	return app
}

func upper(ctx context.Context, _ none) (map[string]int, error) {
	s, err := berth.Stream(ctx)
	if err != nil {
		return nil, err
	}
	all, err := io.ReadAll(s)
	if err != nil {
		return nil, err
	}
	n, err := s.Write([]byte(strings.ToUpper(string(all))))
	return map[string]int{"bytes": n}, errors.Join(err, s.CloseWrite())
}

// TestVectors plays the caller's side of each conversation and expects the app's.
func TestVectors(t *testing.T) {
	files, err := filepath.Glob("../protocol/testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no vectors", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			play(t, a)
		})
	}
}

type peer struct {
	*net.UnixConn
	in *bufio.Reader
}

func play(t *testing.T, a *txtar.Archive) {
	client := berthtest.Start(t, vectorApp())
	conns := map[string]*peer{}
	for _, f := range a.Files {
		name, side, _ := strings.Cut(f.Name, " ")
		c := conns[name]
		if c == nil {
			conn, err := client.Dial()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(time.Minute))
			c = &peer{conn, bufio.NewReader(conn)}
			conns[name] = c
		}
		var err error
		switch side {
		case "caller":
			_, err = c.Write(f.Data)
		case "caller close":
			err = c.CloseWrite()
		case "app":
			expect(t, f.Name, c.in, string(f.Data))
		case "app close":
			if more, err := io.ReadAll(c.in); err != nil || len(more) > 0 {
				t.Errorf("section %q: got %q, %v instead of the end", f.Name, more, err)
			}
		}
		if err != nil {
			t.Fatalf("section %q: %v", f.Name, err)
		}
	}
}

// expect reads as many lines as wanted; an announcement's schemas are left out.
func expect(t *testing.T, section string, in *bufio.Reader, want string) {
	t.Helper()
	for line := range strings.Lines(want) {
		got, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("section %q: %v after %q", section, err, got)
		}
		if bare(got) != line {
			t.Errorf("section %q: got\n%swant\n%s", section, got, line)
		}
	}
}

func bare(line string) string {
	var m protocol.Message
	if json.Unmarshal([]byte(line), &m) != nil || m.Type != protocol.TypeAnnounce {
		return line
	}
	for i, e := range m.Exports {
		m.Exports[i] = protocol.Export{Name: e.Name}
	}
	b, _ := json.Marshal(m)
	return string(b) + "\n"
}

// TestBadVectors: a broken first line is answered, and the app lives on.
func TestBadVectors(t *testing.T) {
	client := berthtest.Start(t, vectorApp())
	files, err := filepath.Glob("../protocol/testdata/bad/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no vectors", err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if a.Files[0].Name != "caller" {
			continue
		}
		conn, err := client.Dial()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(a.Files[0].Data); err != nil {
			t.Fatal(err)
		}
		m, err := protocol.NewReader(conn).Message()
		if err != nil || m.Error == nil || m.Error.Code != protocol.CodeInvalidInput {
			t.Errorf("%s: got %+v, %v", filepath.Base(file), m, err)
		}
		conn.Close()
	}
	var out text
	if err := client.Call(t.Context(), "echo", text{"still here"}, &out); err != nil || out.Text != "still here" {
		t.Errorf("after broken connections: %q, %v", out.Text, err)
	}
}
