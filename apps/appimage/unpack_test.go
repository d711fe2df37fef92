package appimage

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

func sum(image []byte) string {
	h := sha256.Sum256(image)
	return digestPrefix + hex.EncodeToString(h[:])
}

func TestRoundTrip(t *testing.T) {
	digest, image := build(t, plantTree(t))
	dst := t.TempDir()
	old := syscall.Umask(0o077) // must not matter
	err := Unpack(iotest.OneByteReader(bytes.NewReader(image)), dst, digest, int64(len(image)))
	syscall.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := build(t, dst)
	if again != digest {
		t.Fatalf("unpacked and built again: %s, want %s", again, digest)
	}
	for name, want := range map[string]fs.FileMode{"run": 0o755, "a.b": 0o644, "none": 0o755 | fs.ModeDir} {
		info, err := os.Lstat(filepath.Join(dst, name))
		if err != nil || info.Mode() != want {
			t.Errorf("%s: mode %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
}

func TestEmptyFolder(t *testing.T) {
	digest, image := build(t, t.TempDir())
	if err := Unpack(bytes.NewReader(image), t.TempDir(), digest, 1<<20); err != nil {
		t.Fatal(err)
	}
}

// pack writes a tar as an attacker would, with the digest that fits.
func pack(t *testing.T, headers ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Mode == 0 && h.Typeflag != tar.TypeXGlobalHeader {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(bytes.Repeat([]byte("x"), int(h.Size))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func file(name string) *tar.Header { return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 1} }
func folder(name string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}
}
func symlink(name, target string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o755}
}

func TestUnpackRefuses(t *testing.T) {
	with := func(h *tar.Header, change func(*tar.Header)) *tar.Header { change(h); return h }
	cases := []struct {
		name    string
		headers []*tar.Header
	}{
		{"parent", []*tar.Header{file("../x")}},
		{"parent inside", []*tar.Header{folder("d"), file("d/../../x")}},
		{"absolute", []*tar.Header{file("/x")}},
		{"dot", []*tar.Header{file("./x")}},
		{"double slash", []*tar.Header{folder("d"), file("d//x")}},
		{"name of the folder itself", []*tar.Header{folder(".")}},
		{"not UTF-8", []*tar.Header{file("\xff")}},
		{"absolute link", []*tar.Header{symlink("l", "/etc")}},
		{"link outside", []*tar.Header{symlink("l", "..")}},
		{"link outside by detour", []*tar.Header{symlink("h", "."), symlink("l", "h/../x")}},
		{"empty link", []*tar.Header{symlink("l", "./")}},
		{"file through a link", []*tar.Header{folder("d"), symlink("l", "d"), file("l/x")}},
		{"file over a link", []*tar.Header{symlink("l", "x"), file("l")}},
		{"folder over a link", []*tar.Header{symlink("l", "x"), folder("l")}},
		{"hard link", []*tar.Header{file("a"), {Typeflag: tar.TypeLink, Name: "b", Linkname: "a"}}},
		{"hard link outside", []*tar.Header{{Typeflag: tar.TypeLink, Name: "b", Linkname: "/etc/passwd"}}},
		{"character device", []*tar.Header{{Typeflag: tar.TypeChar, Name: "n", Devmajor: 1, Devminor: 3}}},
		{"block device", []*tar.Header{{Typeflag: tar.TypeBlock, Name: "n", Devmajor: 254}}},
		{"pipe", []*tar.Header{{Typeflag: tar.TypeFifo, Name: "p"}}},
		{"unknown type", []*tar.Header{{Typeflag: 'Z', Name: "z"}}},
		{"setuid", []*tar.Header{with(file("s"), func(h *tar.Header) { h.Mode = 0o4755 })}},
		{"odd mode", []*tar.Header{with(file("s"), func(h *tar.Header) { h.Mode = 0o666 })}},
		{"owner", []*tar.Header{with(file("o"), func(h *tar.Header) { h.Uid = 1000 })}},
		{"owner's name", []*tar.Header{with(file("o"), func(h *tar.Header) { h.Uname = "root" })}},
		{"time", []*tar.Header{with(file("o"), func(h *tar.Header) { h.ModTime = time.Unix(1, 0) })}},
		{"duplicate", []*tar.Header{file("a"), file("a")}},
		{"duplicate folder", []*tar.Header{folder("a"), folder("a")}},
		{"not sorted", []*tar.Header{file("b"), file("a")}},
		{"no parent", []*tar.Header{file("d/x")}},
		{"parent is a file", []*tar.Header{file("d"), file("d/x")}},
		{"folder with an exec-less mode", []*tar.Header{with(folder("d"), func(h *tar.Header) { h.Mode = 0o644 })}},
		{"extended attribute", []*tar.Header{with(file("a"), func(h *tar.Header) {
			h.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "x"}
		})}},
		{"global header", []*tar.Header{{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"path": "x"}}}},
		{"GNU format", []*tar.Header{with(file("a"), func(h *tar.Header) { h.Format = tar.FormatGNU })}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { refuse(t, pack(t, c.headers...), 1<<20, ErrHostile) })
	}
}

// refuse unpacks into one of two sibling folders and checks the whole parent.
func refuse(t *testing.T, image []byte, maxBytes int64, want error) {
	t.Helper()
	top := t.TempDir()
	write(t, top, "x", "control", 0o644)
	dst := filepath.Join(top, "dst")
	if err := os.Mkdir(dst, 0o755); err != nil {
		t.Fatal(err)
	}
	err := Unpack(bytes.NewReader(image), dst, sum(image), maxBytes)
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
	left := []string{}
	fs.WalkDir(os.DirFS(top), ".", func(name string, _ fs.DirEntry, _ error) error {
		left = append(left, name)
		return nil
	})
	if got := strings.Join(left, " "); got != ". dst x" {
		t.Errorf("left behind: %s", got)
	}
	if content, _ := os.ReadFile(filepath.Join(top, "x")); string(content) != "control" {
		t.Errorf("the neighbour was changed to %q", content)
	}
}

func TestUnpackControl(t *testing.T) {
	image := pack(t, folder("d"), file("d/f"), symlink("l", "d/f"))
	if err := Unpack(bytes.NewReader(image), t.TempDir(), sum(image), int64(len(image))); err != nil {
		t.Fatalf("the control of the refusals is refused too: %v", err)
	}
}

func TestUnpackSizes(t *testing.T) {
	image := pack(t, folder("d"), file("d/f"))
	t.Run("one byte over the limit", func(t *testing.T) { refuse(t, image, int64(len(image))-1, ErrTooLarge) })
	t.Run("declared size", func(t *testing.T) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "huge", Mode: 0o644, Size: 1 << 40}); err != nil {
			t.Fatal(err)
		}
		refuse(t, b.Bytes(), 1<<20, ErrTooLarge)
	})
	t.Run("bytes behind the end", func(t *testing.T) { refuse(t, append(image, 'x'), 1<<20, ErrHostile) })
	t.Run("blocks behind the end", func(t *testing.T) { refuse(t, append(image, make([]byte, 512)...), 1<<20, ErrHostile) })
	t.Run("two images", func(t *testing.T) { refuse(t, append(image, image...), 1<<20, ErrHostile) })
	t.Run("too many entries", func(t *testing.T) {
		u := unpacker{in: &counter{max: 1}, entries: MaxEntries}
		if err := u.entry(file("a"), nil); !errors.Is(err, ErrTooLarge) {
			t.Errorf("got %v", err)
		}
	})
}

func TestUnpackTruncated(t *testing.T) {
	image := pack(t, folder("d"), file("d/f"), file("e"))
	for n := 0; n < len(image); n += 128 {
		dst := t.TempDir()
		if err := Unpack(bytes.NewReader(image[:n]), dst, sum(image[:n]), 1<<20); err == nil {
			t.Errorf("the first %d of %d bytes pass as an image", n, len(image))
		}
		if names, _ := os.ReadDir(dst); len(names) != 0 {
			t.Errorf("after %d bytes: left behind %v", n, names)
		}
	}
}

func TestUnpackInterrupted(t *testing.T) {
	digest, image := build(t, plantTree(t))
	cause := errors.New("link lost")
	for n := 0; n <= len(image); n += len(image) / 20 {
		dst := t.TempDir()
		broken := io.MultiReader(bytes.NewReader(image[:n]), iotest.ErrReader(cause))
		if err := Unpack(broken, dst, digest, 1<<20); !errors.Is(err, cause) {
			t.Errorf("after %d bytes: got %v", n, err)
		}
		if names, _ := os.ReadDir(dst); len(names) != 0 {
			t.Errorf("after %d bytes: left behind %v", n, names)
		}
	}
}

func TestUnpackDigest(t *testing.T) {
	digest, image := build(t, plantTree(t))
	for i := 0; i < len(image); i += 1000 { // every flipped bit must be noticed, content or header
		bad := bytes.Clone(image)
		bad[i] ^= 1
		dst := t.TempDir()
		if err := Unpack(bytes.NewReader(bad), dst, digest, 1<<20); err == nil {
			t.Errorf("flipped bit at byte %d passed", i)
		}
		if names, _ := os.ReadDir(dst); len(names) != 0 {
			t.Errorf("flipped bit at byte %d: left behind %v", i, names)
		}
	}
	other := sum(nil)
	err := Unpack(bytes.NewReader(image), t.TempDir(), other, 1<<20)
	if !errors.Is(err, ErrDigest) || !strings.Contains(err.Error(), digest) || !strings.Contains(err.Error(), other) {
		t.Errorf("got %v, want both digests", err)
	}
	for _, want := range []string{"", digest[7:], strings.ToUpper(digest), digest + "00", "sha256:zz"} {
		if err := Unpack(bytes.NewReader(image), t.TempDir(), want, 1<<20); err == nil {
			t.Errorf("digest %q was accepted", want)
		}
	}
}

func TestUnpackFolderNotEmpty(t *testing.T) {
	digest, image := build(t, plantTree(t))
	dst := t.TempDir()
	write(t, dst, "run", "mine", 0o644)
	if err := Unpack(bytes.NewReader(image), dst, digest, 1<<20); err == nil {
		t.Fatal("unpacked over a file")
	}
	if content, err := os.ReadFile(filepath.Join(dst, "run")); err != nil || string(content) != "mine" {
		t.Fatalf("the file that was there is now %q, %v", content, err)
	}
}

func FuzzUnpack(f *testing.F) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []*tar.Header{folder("d"), symlink("l", "d"), {Typeflag: tar.TypeReg, Name: "m", Mode: 0o755}} {
		if err := w.WriteHeader(h); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(b.Bytes())
	w.Close()
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, image []byte) {
		dst := t.TempDir()
		err := Unpack(bytes.NewReader(image), dst, sum(image), 1<<20)
		if err != nil {
			if names, _ := os.ReadDir(dst); len(names) != 0 {
				t.Fatalf("left behind %v after %v", names, err)
			}
			return
		}
		// What was accepted is what Build makes of it.
		if _, _, err := Build(io.Discard, dst); err != nil {
			t.Fatal(err)
		}
	})
}
