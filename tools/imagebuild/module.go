package imagebuild

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// Module returns the root of the checkout that dir is in.
func Module(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("cannot find checkout: %w", err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		data, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil && bytes.HasPrefix(data, []byte("module github.com/berthos/berth\n")) {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("cannot find checkout: %s is not inside one of github.com/berthos/berth", dir)
		}
	}
}
