package image_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/image/imagetest"
	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/tools/testenv"
)

// folder returns a good image folder.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	imagetest.Write(t, dir, fstest.MapFS{"etc/hello": {Data: []byte("hello")}})
	return dir
}

func open(t *testing.T, dir string) *image.Image {
	t.Helper()
	img, err := image.Open(image.Location{Dir: dir, Source: "test"}, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// edit changes the index of a folder and signs it anew.
func edit(t *testing.T, dir string, change func(*index.Index)) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, index.File))
	if err != nil {
		t.Fatal(err)
	}
	idx, err := index.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	change(&idx)
	imagetest.WriteIndex(t, dir, idx)
}

func write(t *testing.T, name string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(name, raw, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestSealedIsWhatWasVerified(t *testing.T) {
	dir := folder(t)
	want, err := os.ReadFile(filepath.Join(dir, "root.img"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := open(t, dir).Seal(true)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	write(t, filepath.Join(dir, "root.img"), []byte("exchanged after it was verified"))
	got, err := io.ReadAll(a.Root)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the sealed copy is not what was verified (%v)", err)
	}
	if w, err := os.OpenFile("/proc/self/fd/"+itoa(a.Root.Fd()), os.O_RDWR, 0); err == nil {
		_, err = w.WriteAt([]byte("x"), 0)
		w.Close()
		if !errors.Is(err, unix.EPERM) {
			t.Errorf("writing to the sealed copy: %v, want EPERM", err)
		}
	}
}

func itoa(fd uintptr) string {
	var b []byte
	for ; fd > 0; fd /= 10 {
		b = append([]byte{byte('0' + fd%10)}, b...)
	}
	return string(b)
}

func TestDamagedArtifacts(t *testing.T) {
	cases := []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   []string
	}{
		{"none", func(*testing.T, string) {}, nil}, // control
		{"flipped bit in the root", func(t *testing.T, dir string) { flip(t, filepath.Join(dir, "root.img")) }, []string{"root.img", "want sha256 ", "got "}},
		{"flipped bit in the kernel", func(t *testing.T, dir string) { flip(t, filepath.Join(dir, "vmlinux")) }, []string{"vmlinux", "want sha256 ", "got "}},
		{"both", func(t *testing.T, dir string) {
			flip(t, filepath.Join(dir, "vmlinux"))
			flip(t, filepath.Join(dir, "root.img"))
		}, []string{"vmlinux", "root.img"}},
		{"truncated", func(t *testing.T, dir string) { cut(t, filepath.Join(dir, "root.img"), -1) }, []string{"root.img", "bytes, got"}},
		{"trailing bytes", func(t *testing.T, dir string) { cut(t, filepath.Join(dir, "vmlinux"), 1) }, []string{"vmlinux", "bytes, got"}},
		{"missing", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "vmlinux")) }, []string{"vmlinux", "no such file"}},
		{"a symlink", func(t *testing.T, dir string) {
			os.Rename(filepath.Join(dir, "root.img"), filepath.Join(dir, "real"))
			os.Symlink("real", filepath.Join(dir, "root.img"))
		}, []string{"root.img", "symlink"}},
		{"a folder", func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, "vmlinux"))
			os.Mkdir(filepath.Join(dir, "vmlinux"), 0o755)
		}, []string{"vmlinux", "not a regular file"}},
		{"a pipe", func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, "vmlinux"))
			unix.Mkfifo(filepath.Join(dir, "vmlinux"), 0o644)
		}, []string{"vmlinux", "not a regular file"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := folder(t)
			img := open(t, dir)
			c.damage(t, dir)
			wantError(t, img.Verify(), c.want)
		})
	}
}

func TestBadIndexes(t *testing.T) {
	cases := []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   []string
	}{
		{"none", func(*testing.T, string) {}, nil}, // control
		{"missing", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, index.File)) }, []string{"no such file"}},
		{"no digest", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, index.DigestFile)) }, []string{"no such file"}},
		{"a web page for a digest", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, index.DigestFile), []byte("<html>404</html>\n"))
		}, []string{"not one line"}},
		{"another digest", func(t *testing.T, dir string) { flip(t, filepath.Join(dir, index.File)) }, []string{"want sha256 ", "got "}},
		{"test image", func(t *testing.T, dir string) { edit(t, dir, func(i *index.Index) { i.Kind = index.KindTest }) }, []string{"berth-test-image", "switched off"}},
		{"wrong architecture", func(t *testing.T, dir string) {
			edit(t, dir, func(i *index.Index) { i.Arch = map[string]string{"x86_64": "arm64", "arm64": "x86_64"}[i.Arch] })
		}, []string{"built for"}},
		{"huge", func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, index.File), 1<<30); err != nil {
				t.Fatal(err)
			}
		}, []string{"1073741824 bytes"}},
		{"unknown key", func(t *testing.T, dir string) {
			raw, _ := os.ReadFile(filepath.Join(dir, index.File))
			raw = bytes.Replace(raw, []byte("{\n"), []byte("{\n  \"new\": 1,\n"), 1)
			write(t, filepath.Join(dir, index.File), raw)
			write(t, filepath.Join(dir, index.DigestFile), []byte(index.DigestLine(index.Digest(raw))))
		}, []string{"unknown field"}},
		{"artifact outside", func(t *testing.T, dir string) {
			raw, _ := os.ReadFile(filepath.Join(dir, index.File))
			raw = bytes.Replace(raw, []byte(`"vmlinux"`), []byte(`"../vmlinux"`), 1)
			write(t, filepath.Join(dir, index.File), raw)
			write(t, filepath.Join(dir, index.DigestFile), []byte(index.DigestLine(index.Digest(raw))))
		}, []string{"not a file beside the index"}},
		{"writable by all", func(t *testing.T, dir string) {
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
		}, []string{"everybody may write"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := folder(t)
			c.damage(t, dir)
			_, err := image.Open(image.Location{Dir: dir}, image.Options{})
			wantError(t, err, c.want)
		})
	}
}

func TestForeignFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		testenv.Skip(t, "only root can give a folder away")
	}
	dir := folder(t)
	if err := os.Chown(dir, 4242, 4242); err != nil {
		t.Fatal(err)
	}
	_, err := image.Open(image.Location{Dir: dir}, image.Options{})
	wantError(t, err, []string{"belongs to uid 4242"})
}

// TestForeignFiles: a trusted folder may hold files that somebody else may change.
func TestForeignFiles(t *testing.T) {
	for _, name := range []string{index.File, index.DigestFile} {
		dir := folder(t)
		if err := os.Chmod(filepath.Join(dir, name), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := image.Open(image.Location{Dir: dir}, image.Options{})
		wantError(t, err, []string{name, "everybody may write to it"})
		if os.Geteuid() != 0 {
			continue // only root can give a file away
		}
		dir = folder(t)
		if err := os.Chown(filepath.Join(dir, name), 4242, 4242); err != nil {
			t.Fatal(err)
		}
		_, err = image.Open(image.Location{Dir: dir}, image.Options{})
		wantError(t, err, []string{name, "belongs to uid 4242"})
	}
}

func TestTestImageIsForTests(t *testing.T) {
	dir := folder(t)
	edit(t, dir, func(i *index.Index) { i.Kind = index.KindTest })
	if _, err := image.Open(image.Location{Dir: dir}, image.Options{AllowTest: true}); err != nil {
		t.Error(err)
	}
}

func TestFind(t *testing.T) {
	checkout := t.TempDir()
	write(t, filepath.Join(checkout, "go.mod"), []byte("module github.com/berthos/berth\n"))
	built := filepath.Join(checkout, "build", "image")
	if err := os.MkdirAll(built, 0o755); err != nil {
		t.Fatal(err)
	}
	imagetest.Write(t, built, fstest.MapFS{"x": {}})
	elsewhere := t.TempDir()
	digest := strings.Repeat("ab", 32)
	cases := []struct {
		name, exe string
		env       map[string]string
		want      image.Location
		fault     []string
	}{
		{"checkout", filepath.Join(checkout, "bin", "berth"), nil, image.Location{Dir: built, Source: "checkout " + checkout}, nil},
		{"no checkout", filepath.Join(elsewhere, "bin", "berth"), nil, image.Location{}, []string{"not inside a Berth checkout"}},
		{"environment", filepath.Join(checkout, "bin", "berth"), map[string]string{image.EnvDir: elsewhere, image.EnvDigest: "sha256:" + digest}, image.Location{Dir: elsewhere, Digest: digest, Source: image.EnvDir}, nil},
		{"environment without a digest", filepath.Join(checkout, "bin", "berth"), map[string]string{image.EnvDir: elsewhere}, image.Location{}, []string{image.EnvDigest}},
		{"relative", filepath.Join(checkout, "bin", "berth"), map[string]string{image.EnvDir: "build"}, image.Location{}, []string{"not absolute"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := image.Find(image.Search{Executable: c.exe, Getenv: func(k string) string { return c.env[k] }})
			wantError(t, err, c.fault)
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// A pinned digest is compared even if the folder agrees with itself.
func TestPinnedDigest(t *testing.T) {
	dir := folder(t)
	good := open(t, dir).Digest
	if _, err := image.Open(image.Location{Dir: dir, Digest: good}, image.Options{}); err != nil {
		t.Error(err)
	}
	_, err := image.Open(image.Location{Dir: dir, Digest: strings.Repeat("0", 64)}, image.Options{})
	wantError(t, err, []string{"want sha256 0000", "got " + good})
}

func flip(t *testing.T, name string) {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	write(t, name, raw)
}

func cut(t *testing.T, name string, by int64) {
	t.Helper()
	st, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, st.Size()+by); err != nil {
		t.Fatal(err)
	}
}

// wantError wants one line with every part and a hint; no parts want no error.
func wantError(t *testing.T, err error, parts []string) {
	t.Helper()
	if parts == nil {
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if err == nil {
		t.Fatalf("no error; want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not contain %q", err, p)
		}
	}
	if strings.Contains(err.Error(), "\n") || hint.Of(err) == "" {
		t.Errorf("error %q is not one line with a hint (%q)", err, hint.Of(err))
	}
}

func BenchmarkSeal(b *testing.B) {
	dir := os.Getenv("BERTH_TEST_IMAGE")
	if dir == "" {
		b.Skip("set BERTH_TEST_IMAGE to an image folder")
	}
	img, err := image.Open(image.Location{Dir: dir}, image.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(img.Index.Kernel.Size + img.Index.Root.Size)
	for b.Loop() {
		a, err := img.Seal(true)
		if err != nil {
			b.Fatal(err)
		}
		a.Close()
	}
}
