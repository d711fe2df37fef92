package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"
)

type download struct {
	dst, part string
	want      Want
	opt       Options
}

// temporary marks an error that the same source may not give a second time.
type temporary struct{ error }

func (t temporary) Unwrap() error { return t.error }

// from gets the file from one source, continuing as often as it is allowed to.
func (d *download) from(ctx context.Context, source string) error {
	wait := d.opt.Wait
	for try := 1; ; try++ {
		err := d.once(ctx, source)
		var again temporary
		if err == nil || !errors.As(err, &again) || try >= d.opt.Tries {
			return err
		}
		if wait > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(wait):
			}
			wait *= 2
		}
	}
}

// once opens the source where the part file ends, appends, and, when the size
// is reached, verifies and renames.
func (d *download) once(ctx context.Context, source string) error {
	f, err := os.OpenFile(d.part, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return local("cannot write", d.part, err)
	}
	defer f.Close()
	begun, err := d.begun(f)
	if err != nil {
		return local("cannot read", d.part, err)
	}
	if begun < d.want.Size {
		err = d.fill(ctx, source, f, begun)
		if err != nil {
			return err
		}
	}
	return d.finish(source, begun)
}

// begun is the number of bytes to keep of the part file. One that is too long
// belongs to something else.
func (d *download) begun(f *os.File) (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if st.Size() > d.want.Size {
		return 0, f.Truncate(0)
	}
	return st.Size(), nil
}

func (d *download) fill(ctx context.Context, source string, f *os.File, begun int64) error {
	body, offset, err := d.open(ctx, source, begun)
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	defer body.Close()
	if err := f.Truncate(offset); err != nil {
		return local("cannot write", d.part, err)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return local("cannot write", d.part, err)
	}
	return d.copy(source, f, body, offset)
}

// copy appends to the part file, never beyond the wanted size.
func (d *download) copy(source string, f *os.File, body io.Reader, done int64) error {
	buf := make([]byte, 1<<17)
	for {
		n, rerr := body.Read(buf)
		if int64(n) > d.want.Size-done {
			f.Truncate(0)
			return fmt.Errorf("%s: sends more than the %d bytes that are pinned", source, d.want.Size)
		}
		if _, err := f.Write(buf[:n]); err != nil {
			return local("cannot write", d.part, err)
		}
		done += int64(n)
		d.opt.Progress(source, done, d.want.Size)
		switch {
		case rerr == io.EOF && done == d.want.Size:
			return nil
		case rerr == io.EOF:
			return temporary{fmt.Errorf("%s: ended after %d of %d bytes", source, done, d.want.Size)}
		case rerr != nil:
			return temporary{fmt.Errorf("%s: after %d of %d bytes: %w", source, done, d.want.Size, rerr)}
		}
	}
}

// finish verifies the whole part file. If it does not match and was begun by
// somebody else, the fault may lie there: the source gets a second chance.
func (d *download) finish(source string, begun int64) error {
	got, err := hashFile(d.part)
	if err != nil {
		return local("cannot read", d.part, err)
	}
	if got != d.want.SHA256 {
		if err := os.Remove(d.part); err != nil {
			return local("cannot remove", d.part, err)
		}
		wrong := &DigestError{Source: source, Want: d.want.SHA256, Got: got}
		if begun > 0 {
			return temporary{wrong}
		}
		return wrong
	}
	if err := os.Rename(d.part, d.dst); err != nil {
		return local("cannot keep", d.dst, err)
	}
	return nil
}

func (d *download) open(ctx context.Context, source string, begun int64) (io.ReadCloser, int64, error) {
	if strings.HasPrefix(source, "http://") || strings.HasPrefix(source, "https://") {
		return d.openHTTP(ctx, source, begun)
	}
	path := source
	if strings.HasPrefix(source, "file:") {
		u, err := url.Parse(source)
		if err != nil {
			return nil, 0, err
		}
		path = u.Path
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, errors.Unwrap(err)
	}
	st, err := f.Stat()
	if err == nil && (!st.Mode().IsRegular() || st.Size() != d.want.Size) {
		err = fmt.Errorf("is %d bytes long (%s), want a file of %d", st.Size(), st.Mode().Type(), d.want.Size)
	}
	if err == nil {
		_, err = f.Seek(begun, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, begun, nil
}

func local(what, path string, err error) error {
	return &localError{fmt.Errorf("%s %s: %w", what, path, withoutPath(err))}
}

type localError struct{ error }

func (e *localError) Is(target error) bool { return target == errLocal }
func (e *localError) Unwrap() error        { return e.error }

func removeIfThere(path string) error {
	err := os.Remove(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// withoutPath drops the operation and path that os errors repeat.
func withoutPath(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
