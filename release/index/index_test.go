package index

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

// sample returns a valid index of two small artifacts and their contents.
func sample() (Index, map[string][]byte) {
	kernel := []byte("kernel")
	root := bytes.Repeat([]byte("berth---"), 2*BlockSize/8)
	hash := strings.Repeat("ab", 32)
	i := Index{
		Schema: Schema, Kind: KindImage, Name: "base", Arch: "x86_64", Version: Unreleased,
		Kernel: Artifact{File: "vmlinux", SHA256: Digest(kernel), Size: int64(len(kernel))},
		Root: Root{
			Artifact: Artifact{File: "root.img", SHA256: Digest(root), Size: int64(len(root))},
			DataSize: BlockSize, VerityRoot: hash, VeritySalt: hash,
		},
		Landlock:  11,
		Apps:      []App{{Name: "filesystem", Version: "0.1.0", Code: "sha256:" + hash}},
		Toolchain: map[string]string{"go": "go1.26.8", "gcc": "gcc <12>"},
	}
	return i, map[string][]byte{"vmlinux": kernel, "root.img": root}
}

// write makes an image folder of i.
func write(t *testing.T, i Index, files map[string][]byte) string {
	t.Helper()
	raw, err := i.Encode()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put(t, dir, File, raw)
	put(t, dir, DigestFile, []byte(DigestLine(Digest(raw))))
	for name, data := range files {
		put(t, dir, name, data)
	}
	return dir
}

func put(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestEncodeGolden(t *testing.T) {
	i, _ := sample()
	raw, err := i.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		put(t, "testdata", "index.golden", raw)
	}
	want, err := os.ReadFile("testdata/index.golden")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(raw, want) {
		t.Errorf("encoding changed; -update rewrites the golden file\n%s", raw)
	}
	back, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := back.Encode(); !bytes.Equal(again, raw) {
		t.Errorf("Encode(Parse(x)) is not x:\n%s", again)
	}
}

func TestParseRefuses(t *testing.T) {
	i, _ := sample()
	raw, _ := i.Encode()
	without := i
	without.Apps = nil
	bare, _ := without.Encode()
	edit := func(old, new string) []byte {
		t.Helper()
		if !bytes.Contains(raw, []byte(old)) {
			t.Fatalf("sample has no %q", old)
		}
		return bytes.Replace(raw, []byte(old), []byte(new), 1)
	}
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"empty":           {nil, "EOF"},
		"not JSON":        {[]byte("hello"), "invalid character"},
		"truncated":       {raw[:len(raw)/2], "unexpected EOF"},
		"trailing":        {append(bytes.Clone(raw), "{}"...), "canonical"},
		"huge":            {make([]byte, MaxBytes+1), "at most 1048576 are read"},
		"unknown key":     {edit(`"name": "base"`, `"name": "base", "extra": 1`), `unknown field "extra"`},
		"key twice":       {edit(`"name": "base",`, `"name": "base", "name": "base",`), "canonical"},
		"compact":         {edit("\n  ", "\n"), "canonical"},
		"other schema":    {edit(`"schema": 1`, `"schema": 2`), "schema 2, this build reads 1"},
		"other kind":      {edit(`berth-image`, `image`), `kind "image"`},
		"other arch":      {edit(`x86_64`, `i386`), `architecture "i386"`},
		"no version":      {edit(`"unreleased"`, `""`), "version is empty"},
		"no landlock":     {edit(`"landlock_abi": 11`, `"landlock_abi": 0`), "landlock_abi 0"},
		"path":            {edit(`"vmlinux"`, `"../vmlinux"`), `"../vmlinux" is not a file beside the index`},
		"the index":       {edit(`"vmlinux"`, `"index.json"`), `"index.json" is not a file beside the index`},
		"same file":       {edit(`"vmlinux"`, `"root.img"`), "same file"},
		"short digest":    {edit(i.Kernel.SHA256, "abcd"), "kernel: sha256"},
		"upper digest":    {edit(i.Kernel.SHA256, strings.ToUpper(i.Kernel.SHA256)), "kernel: sha256"},
		"negative size":   {edit(`"size": 6`, `"size": -6`), "size -6"},
		"huge size":       {edit(`"size": 6`, `"size": 4294967297`), "size 4294967297"},
		"no tree":         {edit(`"data_size": 4096`, `"data_size": 8192`), "data_size 8192"},
		"half a block":    {edit(`"data_size": 4096`, `"data_size": 4097`), "data_size 4097"},
		"long salt":       {edit(`"verity_salt": "`, `"verity_salt": "00`), "verity_salt"},
		"code not sha256": {edit(`sha256:`, `sha512:`), "has not the form sha256:<hex>"},
		"apps missing":    {bare, "apps or toolchain is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(c.raw)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestReadAndVerify(t *testing.T) {
	i, files := sample()
	dir := write(t, i, files)
	got, digest, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := i.Encode()
	if digest != Digest(raw) {
		t.Errorf("digest %s, want %s", digest, Digest(raw))
	}
	if err := got.Verify(dir); err != nil {
		t.Error(err)
	}
	if err := got.CheckArch("x86_64"); err != nil {
		t.Error(err)
	}
	var arch *ArchError
	if err := got.CheckArch("arm64"); !errors.As(err, &arch) || !strings.Contains(err.Error(), "built for x86_64, this machine needs arm64") {
		t.Errorf("wrong architecture: %v", err)
	}
}

func TestReadRefusesTamperedIndex(t *testing.T) {
	i, files := sample()
	dir := write(t, i, files)
	was, _ := i.Encode()
	i.Version = "1.0.0"
	raw, _ := i.Encode()
	put(t, dir, File, raw)
	var mismatch *MismatchError
	if _, _, err := Read(dir); !errors.As(err, &mismatch) || mismatch.Want != Digest(was) || mismatch.Got != Digest(raw) {
		t.Errorf("got %v, want both digests named", err)
	}
	put(t, dir, DigestFile, []byte("no digest\n"))
	if _, _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "is not one line") {
		t.Errorf("broken digest file: %v", err)
	}
	put(t, dir, File, make([]byte, MaxBytes+1))
	if _, _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "at most 1048576 are read") {
		t.Errorf("huge index: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, File)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Read(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing index: %v", err)
	}
}

func TestVerifyRefusesOtherArtifacts(t *testing.T) {
	i, files := sample()
	flipped := bytes.Clone(files["root.img"])
	flipped[100] ^= 1
	t.Run("control", func(t *testing.T) {
		if err := i.Verify(write(t, i, files)); err != nil {
			t.Error(err)
		}
	})
	t.Run("flipped bit", func(t *testing.T) {
		dir := write(t, i, files)
		put(t, dir, "root.img", flipped)
		var e *MismatchError
		if err := i.Verify(dir); !errors.As(err, &e) || e.Want != i.Root.SHA256 || e.Got != Digest(flipped) || e.File != filepath.Join(dir, "root.img") {
			t.Errorf("got %v, want both digests and the file named", err)
		}
	})
	for name, data := range map[string][]byte{"truncated": flipped[:100], "longer": append(flipped, 0), "empty": nil} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, i, files)
			put(t, dir, "root.img", data)
			var e *SizeError // not MismatchError: it must not have been hashed
			if err := i.Verify(dir); !errors.As(err, &e) || e.Want != i.Root.Size || e.Got != int64(len(data)) {
				t.Errorf("got %v, want both sizes named", err)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		dir := write(t, i, nil)
		if err := i.Verify(dir); !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
	t.Run("pipe", func(t *testing.T) {
		dir := write(t, i, nil)
		if err := syscall.Mkfifo(filepath.Join(dir, "vmlinux"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := i.Verify(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Error(err)
		}
	})
}

func TestCopyVerifiedReadsNoMoreThanOneByteTooMuch(t *testing.T) {
	i, _ := sample()
	endless := &countingReader{}
	var e *SizeError
	if err := i.Kernel.CopyVerified(&bytes.Buffer{}, endless); !errors.As(err, &e) {
		t.Errorf("got %v, want SizeError", err)
	}
	if endless.n > i.Kernel.Size+1 {
		t.Errorf("read %d bytes of an artifact of %d", endless.n, i.Kernel.Size)
	}
}

// countingReader never ends.
type countingReader struct{ n int64 }

func (r *countingReader) Read(p []byte) (int, error) {
	r.n += int64(len(p))
	return len(p), nil
}

func TestDMCreate(t *testing.T) {
	i, _ := sample()
	hash := strings.Repeat("ab", 32)
	want := "root,,,ro,0 8 verity 1 /dev/vda /dev/vda 4096 4096 1 1 sha256 " + hash + " " + hash + " 1 panic_on_corruption"
	if got := i.Root.DMCreate("/dev/vda"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
