package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Load reads and parses the manifest in a regular file, of which it takes at
// most MaxBytes into memory. Faults of its content are of type Errors.
func Load(file string) (Manifest, error) {
	raw, err := readFile(file)
	if err != nil {
		return Manifest{}, fmt.Errorf("cannot read manifest %s: %w", plain(file), err)
	}
	return Parse(file, raw)
}

var errNotRegular = errors.New("not a regular file")

func readFile(file string) ([]byte, error) {
	// Asked before opening, because opening a pipe would wait for a writer.
	if info, err := os.Stat(file); err != nil {
		return nil, reason(err)
	} else if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, reason(err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	return raw, reason(err)
}

// reason drops the file's name, which the caller says already.
func reason(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
