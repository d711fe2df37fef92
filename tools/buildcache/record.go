package buildcache

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// recordName is the file of a result that lists all others.
const recordName = "record.json"

type recordFile struct {
	// Files maps a path inside the result to its sha256.
	Files map[string]string `json:"files"`
}

// record writes down the digest of every file in dir.
func record(dir string) error {
	files, err := digests(dir)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("it made no file")
	}
	b, err := json.MarshalIndent(recordFile{files}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, recordName), append(b, '\n'), 0o644)
}

// verify says whether dir holds exactly what was recorded. The error is
// os.ErrNotExist when there is no result at all.
func verify(dir string) error {
	if _, err := os.Lstat(dir); err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return errors.New("it has no record")
	}
	var want recordFile
	if err := json.Unmarshal(b, &want); err != nil {
		return errors.New("its record is damaged")
	}
	got, err := digests(dir)
	if err != nil {
		return err
	}
	for name, w := range want.Files {
		if got[name] != w {
			return fmt.Errorf("%s: want sha256 %s, got %q", name, w, got[name])
		}
	}
	for name := range got {
		if want.Files[name] == "" {
			return fmt.Errorf("%s was added to it", name)
		}
	}
	return nil
}

// digests hashes every file below dir but the record.
func digests(dir string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == recordName {
			return err
		}
		if !e.Type().IsRegular() {
			return fmt.Errorf("%s is not a regular file", name)
		}
		files[name], err = HashFile(path)
		return err
	})
	return files, err
}

// HashFile returns the sha256 of a file, in hexadecimal.
func HashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// A Hash makes a key from named inputs. Each is written with its length, so no
// two different lists of inputs look the same.
type Hash struct{ text []byte }

// Add appends one input.
func (h *Hash) Add(name, value string) {
	h.text = fmt.Appendf(h.text, "%d:%s %d:%s\n", len(name), name, len(value), value)
}

// Sum is the key of the inputs so far.
func (h *Hash) Sum() string {
	s := sha256.Sum256(h.text)
	return hex.EncodeToString(s[:])
}
