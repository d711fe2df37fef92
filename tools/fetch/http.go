package fetch

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

// openHTTP asks for the bytes from begun on. It returns the offset at which the
// body really starts: a server may ignore the wish and send everything.
func (d *download) openHTTP(ctx context.Context, source string, begun int64) (io.ReadCloser, int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, source, nil)
	if err != nil {
		cancel(nil)
		return nil, 0, err
	}
	if begun > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", begun))
	}
	watch := newWatch(d.opt.Stall, cancel)
	resp, err := d.opt.Client.Do(req)
	if err != nil {
		watch.stop()
		if c := context.Cause(ctx); c != nil {
			err = c
		}
		return nil, 0, temporary{err}
	}
	body := &watchedBody{ReadCloser: resp.Body, watch: watch, ctx: ctx}
	offset, err := d.accept(resp, begun)
	if err != nil {
		body.Close()
		return nil, 0, err
	}
	return body, offset, nil
}

// accept decides whether a response can be a part of what is wanted.
func (d *download) accept(resp *http.Response, begun int64) (int64, error) {
	var offset int64
	switch {
	case resp.StatusCode == http.StatusPartialContent && begun > 0:
		if err := checkRange(resp.Header.Get("Content-Range"), begun, d.want.Size); err != nil {
			return 0, d.restart(err)
		}
		offset = begun
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return 0, d.restart(fmt.Errorf("has no bytes from %d on", begun))
	case resp.StatusCode == http.StatusOK:
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		return 0, temporary{fmt.Errorf("answers %s", resp.Status)}
	default:
		return 0, fmt.Errorf("answers %s", resp.Status)
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "text/html" {
		return 0, fmt.Errorf("answers with a web page instead of a file of %d bytes", d.want.Size)
	}
	if n := resp.ContentLength; n >= 0 && n != d.want.Size-offset {
		return 0, fmt.Errorf("offers %d bytes, want %d", n, d.want.Size-offset)
	}
	return offset, nil
}

// restart throws the part file away; the next try starts at the beginning.
func (d *download) restart(cause error) error {
	if err := removeIfThere(d.part); err != nil {
		return local("cannot remove", d.part, err)
	}
	return temporary{cause}
}

var reRange = regexp.MustCompile(`^bytes ([0-9]+)-([0-9]+)/([0-9]+|\*)$`)

func checkRange(header string, begun, size int64) error {
	m := reRange.FindStringSubmatch(header)
	bad := fmt.Errorf("answers with Content-Range %q, asked for %d to %d of %d", header, begun, size-1, size)
	if m == nil {
		return bad
	}
	first, err1 := strconv.ParseInt(m[1], 10, 64)
	last, err2 := strconv.ParseInt(m[2], 10, 64)
	if err1 != nil || err2 != nil || first != begun || last != size-1 {
		return bad
	}
	if m[3] != "*" && m[3] != strconv.FormatInt(size, 10) {
		return bad
	}
	return nil
}

// A watch cancels a request on which nothing has come for too long.
type watch struct {
	timer  *time.Timer
	limit  time.Duration
	cancel context.CancelCauseFunc
}

func newWatch(limit time.Duration, cancel context.CancelCauseFunc) *watch {
	stalled := fmt.Errorf("sent nothing for %v", limit)
	return &watch{time.AfterFunc(limit, func() { cancel(stalled) }), limit, cancel}
}

func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

type watchedBody struct {
	io.ReadCloser
	watch *watch
	ctx   context.Context
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.watch.timer.Reset(b.watch.limit)
	}
	if err != nil && err != io.EOF {
		if c := context.Cause(b.ctx); c != nil {
			err = c
		}
	}
	return n, err
}

func (b *watchedBody) Close() error {
	b.watch.stop()
	return b.ReadCloser.Close()
}
