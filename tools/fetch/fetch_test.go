package fetch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthos/berth/tools/testenv"
)

// content is what every test fetches: larger than one read buffer.
var content = func() []byte {
	b := make([]byte, 300_000)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(b)
	return b
}()

func digest(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

var wanted = Want{SHA256: digest(content), Size: int64(len(content))}

func noWait() *Options { return &Options{Wait: -1} }

func server(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL + "/file"
}

// good serves content with ranges, as a good mirror does.
func good(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

func newDst(t *testing.T) string { return filepath.Join(t.TempDir(), "sub", "file") }

func mustHave(t *testing.T, dst string) {
	t.Helper()
	got, err := os.ReadFile(dst)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, content) {
		t.Fatalf("content differs: %d bytes, want %d", len(got), len(content))
	}
	mustNotExist(t, dst+".part")
}

func mustNotExist(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s: want not there, got %v", path, err)
	}
}

func begin(t *testing.T, dst string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dst+".part", b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestResume(t *testing.T) {
	for _, percent := range []int{0, 10, 50, 99, 100} {
		t.Run(fmt.Sprint(percent), func(t *testing.T) {
			var asked []string
			url := server(t, func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, r.Header.Get("Range"))
				good(w, r)
			})
			dst := newDst(t)
			n := len(content) * percent / 100
			begin(t, dst, content[:n])
			if err := File(t.Context(), dst, wanted, []string{url}, noWait()); err != nil {
				t.Fatal(err)
			}
			mustHave(t, dst)
			want := []string{fmt.Sprintf("bytes=%d-", n)}
			switch percent {
			case 0:
				want = []string{""}
			case 100:
				want = nil
			}
			if !slices.Equal(asked, want) {
				t.Errorf("asked for %q, want %q", asked, want)
			}
		})
	}
}

// Each server misbehaves when it is asked to continue; the download must end
// with the right bytes all the same.
func TestResumeAgainstOddServers(t *testing.T) {
	half := len(content) / 2
	cases := map[string]struct {
		part    []byte
		handler http.HandlerFunc
	}{
		"200 instead of 206": {content[:half], func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del("Range")
			good(w, r)
		}},
		"416": {content[:half], func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") != "" {
				w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
				return
			}
			good(w, r)
		}},
		"lying Content-Range": {content[:half], func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") != "" {
				w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", half-1, len(content)))
				w.WriteHeader(http.StatusPartialContent)
				w.Write(content[:half])
				return
			}
			good(w, r)
		}},
		"206 without Content-Range": {content[:half], func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") != "" {
				w.WriteHeader(http.StatusPartialContent)
				w.Write(content[half:])
				return
			}
			good(w, r)
		}},
		"part of another version":    {make([]byte, half), good},
		"whole file of another kind": {make([]byte, len(content)), good},
		"part that is too long":      {make([]byte, len(content)+7), good},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dst := newDst(t)
			begin(t, dst, c.part)
			if err := File(t.Context(), dst, wanted, []string{server(t, c.handler)}, noWait()); err != nil {
				t.Fatal(err)
			}
			mustHave(t, dst)
		})
	}
}

// A connection that breaks in the middle is continued, not begun again.
func TestTruncated(t *testing.T) {
	var asked []string
	url := server(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Range"))
		if len(asked) == 1 {
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			w.Write(content[:1000])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		good(w, r)
	})
	dst := newDst(t)
	if err := File(t.Context(), dst, wanted, []string{url}, noWait()); err != nil {
		t.Fatal(err)
	}
	mustHave(t, dst)
	if len(asked) != 2 || asked[0] != "" || !strings.HasPrefix(asked[1], "bytes=") {
		t.Errorf("asked for ranges %q", asked)
	}
}

// Whatever a bad source does, nothing stands under the file's name, the error
// says what happened, and a good source after it is still used.
func TestBadSources(t *testing.T) {
	other := bytes.Repeat([]byte("x"), len(content))
	cases := map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"wrong digest": {func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "a.bin", time.Time{}, bytes.NewReader(other))
		}, "want sha256 " + wanted.SHA256 + ", got " + digest(other) + "; the file was removed"},
		"short": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			w.(http.Flusher).Flush() // chunked: no length is announced
			w.Write(content[:10])
		}, "of 300000 bytes"},
		"longer than pinned": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			w.(http.Flusher).Flush()
			w.Write(append(bytes.Clone(content), 'x'))
		}, "more than the 300000 bytes"},
		"other length": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Write(content[:10])
		}, "offers 10 bytes, want 300000"},
		"web page": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Write(other)
		}, "web page"},
		"not found": {http.NotFound, "404"},
		"broken": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
		}, "502"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			bad, dst := server(t, c.handler), newDst(t)
			err := File(t.Context(), dst, wanted, []string{bad}, noWait())
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), bad) {
				t.Fatalf("error is %v, want it to name %q and %q", err, bad, c.want)
			}
			mustNotExist(t, dst)
			if err := File(t.Context(), dst, wanted, []string{bad, server(t, good)}, noWait()); err != nil {
				t.Fatal(err)
			}
			mustHave(t, dst)
		})
	}
}

func TestDigestErrorCanBeTold(t *testing.T) {
	other := bytes.Repeat([]byte("x"), len(content))
	dst := newDst(t)
	err := File(t.Context(), dst, wanted, []string{server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Write(other)
	})}, noWait())
	var d *DigestError
	if !errors.As(err, &d) || d.Want != wanted.SHA256 || d.Got != digest(other) {
		t.Fatalf("got %v", err)
	}
	mustNotExist(t, dst+".part")
}

func TestNoSourceReached(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	sources := []string{gone.URL + "/a", filepath.Join(t.TempDir(), "b")}
	err := File(t.Context(), newDst(t), wanted, sources, noWait())
	for _, s := range sources {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("error %v does not name %s", err, s)
		}
	}
	if err := File(t.Context(), newDst(t), wanted, nil, noWait()); err == nil {
		t.Error("no source at all: want an error")
	}
}

func TestLocalFile(t *testing.T) {
	src := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(src, content, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{src, "file://" + src} {
		dst := newDst(t)
		begin(t, dst, content[:99])
		if err := File(t.Context(), dst, wanted, []string{t.TempDir(), s}, noWait()); err != nil {
			t.Fatal(err)
		}
		mustHave(t, dst)
	}
}

// What is there already is verified, used without asking anybody, and replaced
// when it is not what was pinned.
func TestPresentFile(t *testing.T) {
	dst := newDst(t)
	begin(t, dst, nil)
	os.Remove(dst + ".part")
	if err := os.WriteFile(dst, content, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := File(t.Context(), dst, wanted, nil, noWait()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dst, content[1:], 0o644); err != nil {
		t.Fatal(err)
	}
	if err := File(t.Context(), dst, wanted, []string{server(t, good)}, noWait()); err != nil {
		t.Fatal(err)
	}
	mustHave(t, dst)
}

func TestStalledSource(t *testing.T) {
	release := make(chan struct{})
	url := server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		w.Write(content[:10])
		w.(http.Flusher).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	opt := &Options{Wait: -1, Tries: 1, Stall: 20 * time.Millisecond}
	err := File(t.Context(), newDst(t), wanted, []string{url}, opt)
	if err == nil || !strings.Contains(err.Error(), "sent nothing for 20ms") {
		t.Fatalf("got %v", err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	url := server(t, func(w http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	dst := newDst(t)
	if err := File(ctx, dst, wanted, []string{url, url}, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	mustNotExist(t, dst)
}

// A full disk is this machine's fault: it is said as such and no other source
// is asked.
func TestFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		testenv.Skip(t, "no /dev/full here")
	}
	dst := newDst(t)
	begin(t, dst, nil)
	os.Remove(dst + ".part")
	if err := os.Symlink("/dev/full", dst+".part"); err != nil {
		t.Fatal(err)
	}
	asked := 0
	url := server(t, func(w http.ResponseWriter, r *http.Request) { asked++; good(w, r) })
	err := File(t.Context(), dst, wanted, []string{url, url}, noWait())
	if err == nil || !strings.HasPrefix(err.Error(), "cannot write "+dst+".part") {
		t.Fatalf("got %v", err)
	}
	if asked > 1 {
		t.Errorf("asked %d sources", asked)
	}
}
