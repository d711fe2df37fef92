package link

import (
	"errors"
	"io"
	"sync"
)

// Half is a connection whose writing half can be ended alone: a *Stream, a
// *net.UnixConn.
type Half interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// spliceBuffer is the size of each direction's buffer, in bytes.
const spliceBuffer = 32 << 10

// Splice copies between a and b, both ways, until both directions have ended,
// and then closes both. The end of one half is passed on to the other side's;
// a reset, or any other failure to read, ends everything at once. What can
// not be written any more ends its direction only: the other side may still
// have something to say.
func Splice(a, b Half) error {
	var wg sync.WaitGroup
	var errs [2]error
	wg.Go(func() { errs[0] = pass(a, b) })
	wg.Go(func() { errs[1] = pass(b, a) })
	wg.Wait()
	_ = a.Close()
	_ = b.Close()
	return errors.Join(errs[:]...)
}

// buffers are used again: a short call would else spend its time on clearing
// memory that it hardly uses. (A function literal in a pool is no computed
// variable: nothing runs before the first use.)
var buffers = sync.Pool{New: func() any {
	b := make([]byte, spliceBuffer)
	return &b
}}

// pass copies from one to the other until the end of from.
func pass(to, from Half) error {
	p := buffers.Get().(*[]byte)
	defer buffers.Put(p)
	buf := *p
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return to.CloseWrite()
		}
		if err != nil {
			Abort(to)
			Abort(from)
			return err
		}
	}
}

// Abort ends a connection without an orderly end: nothing waits on it any more.
func Abort(h Half) {
	if s, ok := h.(interface{ Reset() }); ok { // a *Stream, or what holds one
		s.Reset()
		return
	}
	_ = h.Close()
}
