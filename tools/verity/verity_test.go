package verity

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// make writes an image of some hundred blocks, so that its tree has two levels.
func makeImage(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "img")
	var b bytes.Buffer
	for n := range 200 {
		b.Write(bytes.Repeat([]byte{byte(n), 1}, BlockSize/2))
	}
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// rootOf computes the root digest as the kernel's documentation describes it.
func rootOf(t *testing.T, data []byte) string {
	t.Helper()
	salt, err := hex.DecodeString(Salt())
	if err != nil {
		t.Fatal(err)
	}
	for {
		var level []byte
		for len(data) > 0 {
			sum := sha256.Sum256(append(bytes.Clone(salt), data[:BlockSize]...))
			level = append(level, sum[:]...)
			data = data[BlockSize:]
		}
		if len(level) == sha256.Size {
			return hex.EncodeToString(level)
		}
		data = append(level, make([]byte, (BlockSize-len(level)%BlockSize)%BlockSize)...)
	}
}

func TestFormatMatchesTheDefinition(t *testing.T) {
	name := makeImage(t)
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	digest, size, err := Format(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	if want := rootOf(t, data); digest != want {
		t.Errorf("root digest %s, want %s", digest, want)
	}
	after, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if size != int64(len(data)) || !bytes.Equal(after[:size], data) {
		t.Errorf("data changed, or is not %d bytes", size)
	}
	// 200 digests fill two blocks, those two fill one.
	if tree := int64(len(after)) - size; tree != 3*BlockSize {
		t.Errorf("tree has %d bytes, want 3 blocks", tree)
	}
}

func TestVerifyFindsOneFlippedBit(t *testing.T) {
	name := makeImage(t)
	digest, size, err := Format(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(context.Background(), name, digest, size); err != nil {
		t.Fatalf("control: %v", err)
	}
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for part, at := range map[string]int64{"data": 5 * BlockSize, "last data": size - 1, "tree": size + 7, "last level": size + BlockSize + 9} {
		bad := bytes.Clone(good)
		bad[at] ^= 0x10
		if err := os.WriteFile(name, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := Verify(context.Background(), name, digest, size); err == nil {
			t.Errorf("%s: a flipped bit was not found", part)
		}
	}
}

func TestFormatRefusesPartialBlocks(t *testing.T) {
	name := filepath.Join(t.TempDir(), "img")
	if err := os.WriteFile(name, make([]byte, BlockSize+1), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Format(context.Background(), name); err == nil || !strings.Contains(err.Error(), "not whole blocks") {
		t.Errorf("got %v", err)
	}
	if info, err := os.Stat(name); err != nil || info.Size() != BlockSize+1 {
		t.Errorf("the file was changed: %v, %v", info.Size(), err)
	}
}
