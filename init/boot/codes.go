package boot

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/berthos/berth/apps/appimage"
	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/policy"
)

// Limits of app code that comes over the link and lives in memory.
const (
	maxCode  = 512 << 20 // bytes of one image
	maxCodes = 16        // images held at once
)

// codes keeps app images that came over the link, each unpacked in a tmpfs of
// its own below codeDir that is read-only once it is complete.
type codes struct {
	sys *System

	mu   sync.Mutex // guards what follows
	held map[string]*code
}

// code is one image. It is kept while apps use it or a Start is awaited.
type code struct {
	ready   bool // unpacked and verified
	awaited bool // it was sent since the last Start that took it
	users   int
	gone    chan struct{} // while it is being removed: closed when it is
}

func newCodes(sys *System) *codes { return &codes{sys: sys, held: map[string]*code{}} }

func codePath(digest string) string {
	return filepath.Join(codeDir, strings.TrimPrefix(digest, "sha256:"))
}

// receive unpacks what follows the header. An image that is held already is
// only read to its end.
func (c *codes) receive(h link.StreamHeader, r io.Reader) error {
	digest := "sha256:" + strings.TrimPrefix(h.SHA256, "sha256:")
	if raw, err := hex.DecodeString(digest[len("sha256:"):]); err != nil || len(raw) != sha256.Size {
		return fmt.Errorf("cannot receive app code: %q is no sha256", h.SHA256)
	}
	if h.Size <= 0 || h.Size > maxCode {
		return fmt.Errorf("cannot receive app code: %d bytes, at most %d are accepted", h.Size, maxCode)
	}
	body := &io.LimitedReader{R: r, N: h.Size}
	known, err := c.reserve(digest)
	switch {
	case err != nil:
		return fmt.Errorf("cannot receive app code: %w", err)
	case known:
		_, err := io.Copy(io.Discard, body)
		return err
	}
	if err := c.unpack(digest, body, h.Size); err != nil {
		c.forget(digest)
		return err
	}
	c.mu.Lock()
	c.held[digest].ready = true
	c.mu.Unlock()
	return nil
}

// reserve makes an entry for an image that is about to come. One that is being
// removed, since its last app has ended, is waited for and then comes anew.
func (c *codes) reserve(digest string) (known bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.held[digest]; e != nil && e.gone != nil; e = c.held[digest] {
		c.mu.Unlock()
		<-e.gone
		c.mu.Lock()
	}
	if e := c.held[digest]; e != nil {
		if !e.ready {
			return false, errors.New("the same image is being received already")
		}
		e.awaited = true
		return true, nil
	}
	if len(c.held) >= maxCodes {
		return false, fmt.Errorf("%d images are held, which is the limit", maxCodes)
	}
	c.held[digest] = &code{awaited: true}
	return false, nil
}

// unpack writes an image into a tmpfs. A tar is larger than its content, but
// each file takes whole pages: the mount's size has room for that.
func (c *codes) unpack(digest string, body *io.LimitedReader, size int64) error {
	dir := codePath(digest)
	if err := c.sys.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("cannot create folder %s: %w", dir, err)
	}
	m := mount{"tmpfs", dir, "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, fmt.Sprintf("mode=0755,size=%d", 4*size+1<<20)}
	if err := c.sys.Mount(m); err != nil {
		return fmt.Errorf("cannot mount tmpfs on %s: %w", dir, err)
	}
	err := appimage.Unpack(body, dir, digest, size)
	if err == nil && body.N > 0 {
		err = fmt.Errorf("cannot receive app code: %d of %d bytes are missing", body.N, size)
	}
	if err != nil {
		return err
	}
	m = mount{"", dir, "", unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV, ""}
	if err := c.sys.Mount(m); err != nil {
		return fmt.Errorf("cannot make %s read-only: %w", dir, err)
	}
	return nil
}

// forget removes an image.
func (c *codes) forget(digest string) {
	_ = c.sys.Unmount(codePath(digest))
	_ = c.sys.RemoveAll(codePath(digest))
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.held[digest]; e != nil && e.gone != nil {
		close(e.gone)
	}
	delete(c.held, digest)
}

// use returns the folder with an app's code and what gives it back.
func (c *codes) use(s link.Start, p policy.Policy) (dir string, done func(), err error) {
	if s.CodeDir != "" {
		if filepath.Clean(s.CodeDir) != s.CodeDir || !strings.HasPrefix(s.CodeDir, rootApps+"/") {
			return "", nil, fmt.Errorf("code folder %q is not below %s", s.CodeDir, rootApps)
		}
		return s.CodeDir, func() {}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.held[p.Code]
	if e == nil || !e.ready {
		return "", nil, fmt.Errorf("its code %s was not sent", p.Code)
	}
	e.users++
	e.awaited = false
	return codePath(p.Code), func() { c.release(p.Code) }, nil
}

// release forgets an image with its last user.
func (c *codes) release(digest string) {
	c.mu.Lock()
	e := c.held[digest]
	e.users--
	last := e.users == 0 && !e.awaited
	if last {
		e.ready, e.gone = false, make(chan struct{})
	}
	c.mu.Unlock()
	if last {
		c.forget(digest)
	}
}
