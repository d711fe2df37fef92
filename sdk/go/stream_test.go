package berth_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	berth "github.com/berthos/berth/sdk/go"
	"github.com/berthos/berth/sdk/go/berthtest"
	"github.com/berthos/berth/sdk/protocol"
)

func copyBack(ctx context.Context, _ none) (map[string]int64, error) {
	s, err := berth.Stream(ctx)
	if err != nil {
		return nil, err
	}
	n, err := io.Copy(s, s)
	return map[string]int64{"bytes": n}, errors.Join(err, s.CloseWrite())
}

func TestStreamIsExact(t *testing.T) {
	app := berth.New("test")
	berth.Export(app, "copy", "", copyBack)
	client := berthtest.Start(t, app)
	const size = 8<<20 + 7
	sent, got := sha256.New(), sha256.New()
	var out map[string]int64
	in := io.TeeReader(io.LimitReader(rand.Reader, size), sent)
	if err := client.Call(t.Context(), "copy", none{}, &out, berthtest.WithStream(in, got)); err != nil {
		t.Fatal(err)
	}
	if out["bytes"] != size || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Errorf("%d bytes came back changed", out["bytes"])
	}
}

func TestStreamErrors(t *testing.T) {
	client := berthtest.Start(t, vectorApp())
	e := wantCode(t, client.Call(t.Context(), "upper", none{}, nil), protocol.CodeInvalidInput)
	if !strings.Contains(e.Message, "raw stream") {
		t.Errorf("got %q", e.Message)
	}
	if _, err := berth.Stream(t.Context()); err == nil {
		t.Error("a raw stream outside a call")
	}
	// An export that does not want its stream: it is closed with the call.
	if err := client.Call(t.Context(), "count", none{}, nil, berthtest.WithStream(nil, nil)); err != nil {
		t.Error(err)
	}
}

func TestStreamIDInUse(t *testing.T) {
	paired := make(chan none)
	app := berth.New("test")
	berth.Export(app, "hold", "", func(ctx context.Context, _ none) (none, error) {
		if _, err := berth.Stream(ctx); err != nil {
			return none{}, err
		}
		close(paired)
		<-ctx.Done()
		return none{}, ctx.Err()
	})
	client := berthtest.Start(t, app)
	send := func(q protocol.Request) net.Conn {
		conn, err := client.Dial()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		protocol.NewWriter(conn).Request(q)
		return conn
	}
	call := protocol.Request{Type: protocol.TypeCall, ID: "same", Export: "hold", Stream: true}
	stream := protocol.Request{Type: protocol.TypeStream, ID: "same"}
	first := send(call)
	send(stream)
	<-paired
	if n, err := send(stream).Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("second stream: %d, %v", n, err)
	}
	m, err := protocol.NewReader(send(call)).Message()
	if err != nil || m.Error == nil || m.Error.Code != protocol.CodeInvalidInput {
		t.Errorf("second call: %+v, %v", m, err)
	}
	first.Close()
}

// TestUnpairedStreams: 16 wait, the next one is closed at once; those that wait
// are closed when the app ends.
func TestUnpairedStreams(t *testing.T) {
	client := berthtest.Start(t, vectorApp())
	closed := make(chan error, 17)
	for i := range 17 {
		raw, err := client.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		protocol.NewWriter(raw).Request(protocol.Request{Type: protocol.TypeStream, ID: fmt.Sprint(i)})
		go func() {
			_, err := raw.Read(make([]byte, 1))
			closed <- err
		}()
	}
	if err := <-closed; err != io.EOF {
		t.Error(err)
	}
	select {
	case <-closed:
		t.Error("more than one stream was closed")
	default:
	}
	if err := client.Stop(); err != nil {
		t.Error(err)
	}
	for range 16 {
		<-closed
	}
}

// TestCancelEndsStreamRead: an export that waits for bytes is woken.
func TestCancelEndsStreamRead(t *testing.T) {
	reading := make(chan none)
	app := berth.New("test")
	berth.Export(app, "read", "", func(ctx context.Context, _ none) (none, error) {
		s, err := berth.Stream(ctx)
		if err != nil {
			return none{}, err
		}
		close(reading)
		_, err = io.ReadAll(s)
		return none{}, err
	})
	client := berthtest.Start(t, app)
	ctx, cancel := context.WithCancel(t.Context())
	never, end := io.Pipe()
	go func() { <-reading; cancel(); end.Close() }()
	if err := client.Call(ctx, "read", none{}, nil, berthtest.WithStream(never, nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func BenchmarkStream64MiB(b *testing.B) {
	app := berth.New("bench")
	berth.Export(app, "take", "", func(ctx context.Context, _ none) (map[string]int64, error) {
		s, err := berth.Stream(ctx)
		if err != nil {
			return nil, err
		}
		n, err := io.Copy(io.Discard, s)
		return map[string]int64{"n": n}, err
	})
	client := berthtest.Start(b, app)
	b.SetBytes(64 << 20)
	b.ReportAllocs()
	for b.Loop() {
		if err := client.Call(b.Context(), "take", none{}, nil, berthtest.WithStream(io.LimitReader(zeros{}, 64<<20), nil)); err != nil {
			b.Fatal(err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func BenchmarkCall1KiB(b *testing.B) {
	client := berthtest.Start(b, vectorApp())
	in := text{strings.Repeat("x", 1024)}
	b.ReportAllocs()
	for b.Loop() {
		if err := client.Call(b.Context(), "echo", in, nil); err != nil {
			b.Fatal(err)
		}
	}
}
