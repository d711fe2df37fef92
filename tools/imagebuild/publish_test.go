package imagebuild

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthos/berth/release/index"
)

// sources makes the files of a small image and returns its index digest.
func sources(t *testing.T, version string) (digest string, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	root := bytes.Repeat([]byte(version[:1]), 2*index.BlockSize)
	hash := strings.Repeat("ab", 32)
	i := index.Index{
		Schema: index.Schema, Kind: index.KindImage, Name: "base", Arch: "x86_64", Version: version,
		Kernel:   index.Artifact{File: KernelFile, SHA256: index.Digest([]byte(version)), Size: int64(len(version))},
		Root:     index.Root{Artifact: index.Artifact{File: RootFile, SHA256: index.Digest(root), Size: int64(len(root))}, DataSize: index.BlockSize, VerityRoot: hash, VeritySalt: hash},
		Landlock: 11, Apps: []index.App{}, Toolchain: map[string]string{},
	}
	raw, err := i.Encode()
	if err != nil {
		t.Fatal(err)
	}
	digest = index.Digest(raw)
	files = map[string]string{}
	for name, data := range map[string][]byte{
		index.File: raw, index.DigestFile: []byte(index.DigestLine(digest)), KernelFile: []byte(version), RootFile: root,
	} {
		files[name] = filepath.Join(dir, name)
		if err := os.WriteFile(files[name], data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return digest, files
}

func mustPublish(t *testing.T, out, digest string, files map[string]string) bool {
	t.Helper()
	changed, err := publish(out, digest, files)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

func TestPublishReplacesTheWholeFolder(t *testing.T) {
	out := filepath.Join(t.TempDir(), "build", "image")
	one, oneFiles := sources(t, "1.0.0")
	two, twoFiles := sources(t, "2.0.0")
	if !mustPublish(t, out, one, oneFiles) {
		t.Error("the first image did not count as a change")
	}
	if mustPublish(t, out, one, oneFiles) {
		t.Error("the same image again counted as a change")
	}
	// Who has the old image open keeps it.
	old, err := os.Open(filepath.Join(out, KernelFile))
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if !mustPublish(t, out, two, twoFiles) {
		t.Error("another image did not count as a change")
	}
	i, digest, err := index.Read(out)
	if err != nil || digest != two {
		t.Fatalf("read %s, %v; want %s", digest, err, two)
	}
	if err := i.Verify(out); err != nil {
		t.Error(err)
	}
	data := make([]byte, 5)
	if _, err := old.Read(data); err != nil || string(data) != "1.0.0" {
		t.Errorf("the open kernel became %q, %v", data, err)
	}
	onlyImage(t, filepath.Dir(out))
	info, err := os.Stat(filepath.Join(out, RootFile))
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v; another user could not read it", info.Mode(), err)
	}
}

// onlyImage checks that nothing was left beside the image.
func onlyImage(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "image" {
			t.Errorf("%s was left in %s", e.Name(), dir)
		}
	}
}

func TestPublishRepairsADamagedImage(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image")
	digest, files := sources(t, "1.0.0")
	mustPublish(t, out, digest, files)
	if err := os.Truncate(filepath.Join(out, RootFile), 100); err != nil {
		t.Fatal(err)
	}
	if !mustPublish(t, out, digest, files) {
		t.Error("a truncated root image was taken for unchanged")
	}
	i, _, err := index.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Verify(out); err != nil {
		t.Error(err)
	}
}

func TestPublishLeavesOtherFoldersAlone(t *testing.T) {
	parent := t.TempDir()
	out := filepath.Join(parent, "image")
	if err := os.MkdirAll(out, 0o755); err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(out, "thesis.tex")
	if err := os.WriteFile(precious, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	digest, files := sources(t, "1.0.0")
	if _, err := publish(out, digest, files); err == nil || !strings.Contains(err.Error(), "other files than an image") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

func TestFailedPublishKeepsTheOldImage(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image")
	one, oneFiles := sources(t, "1.0.0")
	mustPublish(t, out, one, oneFiles)
	two, twoFiles := sources(t, "2.0.0")
	for name, damage := range map[string]func(file string) error{
		"missing": os.Remove,
		"changed": func(file string) error { return os.WriteFile(file, []byte("2.0.x"), 0o600) },
	} {
		if err := damage(twoFiles[KernelFile]); err != nil {
			t.Fatal(err)
		}
		if _, err := publish(out, two, twoFiles); err == nil {
			t.Errorf("%s: the image was published", name)
		}
		if err := os.WriteFile(twoFiles[KernelFile], []byte("2.0.0"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, digest, err := index.Read(out); err != nil || digest != one {
			t.Errorf("%s: the old image is gone: %s, %v", name, digest, err)
		}
		onlyImage(t, filepath.Dir(out))
	}
}

func TestCompareNamesWhatDiffers(t *testing.T) {
	dir := t.TempDir()
	one, oneFiles := sources(t, "1.0.0")
	two, twoFiles := sources(t, "2.0.0")
	a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	mustPublish(t, a, one, oneFiles)
	mustPublish(t, b, one, oneFiles)
	mustPublish(t, c, two, twoFiles)
	if _, err := Compare(a, b); err != nil {
		t.Errorf("equal images: %v", err)
	}
	_, err := Compare(a, c)
	if err == nil || !strings.Contains(err.Error(), "kernel differs") || !strings.Contains(err.Error(), "root image differs") {
		t.Errorf("different images: %v", err)
	}
}

func TestReadRecipe(t *testing.T) {
	module, err := Module(".")
	if err != nil {
		t.Fatal(err)
	}
	r, err := ReadRecipe(filepath.Join(module, "images", "base.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.check("x86_64"); err != nil {
		t.Error(err)
	}
	if err := r.check("riscv64"); err == nil || !strings.Contains(err.Error(), "its recipe has arm64, x86_64") {
		t.Errorf("got %v", err)
	}
	for name, text := range map[string]string{
		"unknown key": `{"name":"x","landlock_abi":11,"app":[]}`, "no name": `{"landlock_abi":11}`,
		"no ABI": `{"name":"x"}`, "unsorted": `{"name":"x","landlock_abi":11,"apps":["b","a"]}`, "not JSON": `name: x`,
	} {
		file := filepath.Join(t.TempDir(), "recipe.json")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadRecipe(file); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
