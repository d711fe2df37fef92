package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Export copies the trail to a new folder, without its key: enough to list,
// verify and prove. The head is copied first, so that what is written meanwhile
// makes the copy no worse.
func (t *Trail) Export(to string) error {
	all, err := t.d.segments()
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return fmt.Errorf("cannot export the audit trail: %w", err)
	}
	names := []string{checkpointFile, verifierFile}
	for _, first := range all {
		names = append(names, segmentName(first))
	}
	for _, name := range append(names, hashFile) {
		if err := t.copyFile(name, filepath.Join(to, name)); err != nil {
			return fmt.Errorf("cannot export the audit trail: %w", err)
		}
	}
	return nil
}

func (t *Trail) copyFile(name, to string) error {
	from, err := t.d.open(name, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) && name == checkpointFile {
		return nil // nothing was signed yet
	}
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
