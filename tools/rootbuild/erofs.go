package rootbuild

import (
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/erofs/go-erofs"
)

// BlockSize is the block size of the image in bytes, which is also the size of
// dm-verity's data blocks.
const BlockSize = 4096

// WriteImage writes t as an uncompressed EROFS image without any time in it:
// equal trees give equal bytes. tmp is a folder for the writer's spool file.
func WriteImage(w io.WriteSeeker, t Tree, tmp string) error {
	img := erofs.Create(w, erofs.WithBlockSize(BlockSize), erofs.WithBuildTime(0, 0), erofs.WithTempDir(tmp))
	for _, e := range t {
		if err := writeEntry(img, e); err != nil {
			return fmt.Errorf("cannot write %s into root image: %w", e.Path, err)
		}
	}
	if err := img.Close(); err != nil {
		return fmt.Errorf("cannot write root image: %w", err)
	}
	return nil
}

func writeEntry(img *erofs.Writer, e Entry) error {
	var err error
	switch e.Mode.Type() {
	case fs.ModeDir:
		err = img.Mkdir(e.Path, e.Mode.Perm())
	case fs.ModeSymlink:
		err = img.Symlink(e.Target, e.Path)
	case 0:
		err = writeFile(img, e)
	default:
		err = fmt.Errorf("mode %v is not supported", e.Mode)
	}
	if err != nil {
		return err
	}
	if err := img.Chown(e.Path, e.UID, e.GID); err != nil {
		return err
	}
	return img.Chtimes(e.Path, time.Unix(0, 0), time.Unix(0, 0))
}

func writeFile(img *erofs.Writer, e Entry) error {
	in, err := e.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := img.Create(e.Path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	if err := out.Chmod(e.Mode); err != nil {
		return err
	}
	return out.Close()
}

// ReadImage returns the tree of an EROFS image, contents included.
func ReadImage(r io.ReaderAt) (Tree, error) {
	img, err := erofs.Open(r)
	if err != nil {
		return nil, fmt.Errorf("cannot read root image: %w", err)
	}
	var t Tree
	err = fs.WalkDir(img, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		e, err := readEntry(img, name, d)
		t = append(t, e)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read root image: %w", err)
	}
	return t.sorted(), nil
}

func readEntry(img fs.FS, name string, d fs.DirEntry) (Entry, error) {
	info, err := d.Info()
	if err != nil {
		return Entry{}, err
	}
	stat, ok := info.Sys().(*erofs.Stat)
	if !ok {
		return Entry{}, fmt.Errorf("%s has no owner", name)
	}
	e := Entry{Path: "/" + name, Mode: info.Mode(), UID: int(stat.UID), GID: int(stat.GID)}
	if name == "." {
		e.Path = "/"
	}
	switch info.Mode().Type() {
	case fs.ModeSymlink:
		e.Target, err = fs.ReadLink(img, name)
	case 0:
		e.Data, err = fs.ReadFile(img, name)
	}
	return e, err
}
