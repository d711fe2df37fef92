package appimage

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkUnpack measures what an app of one 4 MiB program adds to its start.
func BenchmarkUnpack(b *testing.B) {
	dir := b.TempDir()
	program := make([]byte, 4<<20)
	rand.Read(program)
	if err := os.WriteFile(filepath.Join(dir, "run"), program, 0o755); err != nil {
		b.Fatal(err)
	}
	var image bytes.Buffer
	digest, size, err := Build(&image, dir)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	for b.Loop() {
		if err := Unpack(bytes.NewReader(image.Bytes()), b.TempDir(), digest, size); err != nil {
			b.Fatal(err)
		}
	}
}
