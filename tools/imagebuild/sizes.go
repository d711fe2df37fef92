package imagebuild

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"github.com/berthos/berth/release/index"
)

// Size is the size of one artifact in bytes, as it is and compressed with zstd
// at the level that stands for 19.
type Size struct {
	File       string
	Raw        int64
	Compressed int64
}

// Sizes measures the artifacts of an image folder.
func Sizes(dir string) ([]Size, error) {
	i, _, err := index.Read(dir)
	if err != nil {
		return nil, err
	}
	var sizes []Size
	for _, a := range []index.Artifact{i.Kernel, i.Root.Artifact} {
		n, err := compressedSize(filepath.Join(dir, a.File))
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, Size{File: a.File, Raw: a.Size, Compressed: n})
	}
	return sizes, nil
}

func compressedSize(name string) (int64, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, fmt.Errorf("cannot measure %s: %w", name, err)
	}
	defer f.Close()
	var n counter
	enc, err := zstd.NewWriter(&n, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(19)))
	if err != nil {
		return 0, fmt.Errorf("cannot measure %s: %w", name, err)
	}
	if _, err := io.Copy(enc, f); err != nil {
		enc.Close()
		return 0, fmt.Errorf("cannot measure %s: %w", name, err)
	}
	if err := enc.Close(); err != nil {
		return 0, fmt.Errorf("cannot measure %s: %w", name, err)
	}
	return int64(n), nil
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
