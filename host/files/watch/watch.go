//go:build linux

// Package watch owns the following of a folder for names that come into being,
// where nobody can refuse them: inotify on every folder below it.
package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/berthos/berth/host/hint"
	"golang.org/x/sys/unix"
)

// What was found.
type What string

// The kinds.
const (
	Made     What = "made"     // a wanted name
	Replaced What = "replaced" // a covered place is another file now
	FIFO     What = "fifo"     // whatever it is called
	Lost     What = "lost"     // the kernel dropped events: everything was looked at again
)

// Found is one of them; Place is slash-separated below the folder.
type Found struct {
	Place string
	What  What
}

// Options say what to look for.
type Options struct {
	Root   string
	Wanted func(place string, dir bool) bool
	// Covered are places of now that the app cannot change; it cannot replace
	// them either, so whoever does is a program of the host.
	Covered []string
	// Found is called with a lock held, for each once. It must not block.
	Found func(Found)
	// MaxFolders bounds the watches (0: 50,000).
	MaxFolders int
}

const (
	maxFolders = 50_000
	maxKnown   = 50_000 // places remembered as told; more are told again
	maxDepth   = 200
)

const mask = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK

// Watcher follows one folder.
type Watcher struct {
	o    Options
	root int // the folder, O_PATH
	fd   int // inotify
	file *os.File
	done chan struct{}

	mu      sync.Mutex // guards what follows; events are read with it held, as their order is that of the map's changes
	closed  bool
	folders map[int]string // by watch
	covered map[string]id
	inodes  map[id]bool // of covered
	told    map[string]id
	missed  string
	buf     []byte
}

// id is a file, whatever it is called.
type id struct{ dev, ino uint64 }

// Start looks through the folder and follows it until Close.
func Start(ctx context.Context, o Options) (*Watcher, error) {
	if o.MaxFolders == 0 {
		o.MaxFolders = maxFolders
	}
	root, err := unix.Open(o.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open it: %w", err)
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		unix.Close(root)
		return nil, hint.Errorf("raise it: sysctl fs.inotify.max_user_instances=1024", "cannot use inotify: %w", err)
	}
	w := &Watcher{
		o: o, root: root, fd: fd, file: os.NewFile(uintptr(fd), "inotify"), done: make(chan struct{}),
		folders: map[int]string{}, covered: map[string]id{}, inodes: map[id]bool{}, told: map[string]id{}, buf: make([]byte, 64<<10),
	}
	for _, place := range o.Covered {
		if st, err := w.stat(place); err == nil {
			w.covered[place] = idOf(st)
			w.inodes[idOf(st)] = true
		}
	}
	// What is there at the start is known already.
	if err := w.look(ctx, "", 0, func(place string, st unix.Stat_t) { w.told[place] = idOf(st) }); err != nil {
		w.release()
		return nil, err
	}
	go w.follow()
	return w, nil
}

// follow takes events whenever there are some.
func (w *Watcher) follow() {
	defer close(w.done)
	conn, err := w.file.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Read(func(uintptr) bool { // ends when the file is closed
		w.Drain()
		return false
	})
}

// Missed says what is not followed, as a sentence; "" if all is.
func (w *Watcher) Missed() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.missed
}

// Close ends it.
func (w *Watcher) Close() {
	w.mu.Lock()
	was := w.closed
	w.closed = true
	w.mu.Unlock()
	if !was {
		w.release()
		<-w.done
	}
}

func (w *Watcher) release() {
	w.file.Close()
	unix.Close(w.root)
}

// Drain tells of everything that has happened until now: the kernel queues an
// event before the call that caused it returns.
func (w *Watcher) Drain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.closed {
		n, err := unix.Read(w.fd, w.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		for _, e := range parse(w.buf[:n]) {
			w.handle(e)
		}
	}
}

func (w *Watcher) handle(e event) {
	switch {
	case e.mask&unix.IN_Q_OVERFLOW != 0:
		w.o.Found(Found{"", Lost})
		_ = w.look(context.Background(), "", 0, w.tell)
		return
	case e.mask&unix.IN_IGNORED != 0: // the folder is gone
		delete(w.folders, e.watch)
		return
	}
	dir, ok := w.folders[e.watch]
	if !ok || e.name == "" {
		return
	}
	place := join(dir, e.name)
	if e.mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0 {
		w.forget(place, e.mask&unix.IN_ISDIR != 0)
		return
	}
	st, err := w.stat(place)
	if err != nil { // gone already, or its folder was moved: what it was called is all that is known
		if w.o.Wanted(place, e.mask&unix.IN_ISDIR != 0) {
			w.o.Found(Found{place, Made})
		}
		return
	}
	w.tell(place, st)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		_ = w.look(context.Background(), place, 0, w.tell)
	}
}

// forget makes news of what comes to a place again, whatever its inode: file
// systems use the number of a removed file for the next.
func (w *Watcher) forget(place string, dir bool) {
	delete(w.told, place)
	if !dir {
		return
	}
	for below := range w.told {
		if strings.HasPrefix(below, place+"/") {
			delete(w.told, below)
		}
	}
}

// tell judges what is at a place.
func (w *Watcher) tell(place string, st unix.Stat_t) {
	this, dir := idOf(st), st.Mode&unix.S_IFMT == unix.S_IFDIR
	was, covered := w.covered[place]
	what := Made
	switch {
	case w.inodes[this]: // it is the covered one, perhaps with its folder moved
		return
	case covered && was != this:
		what = Replaced
	case w.o.Wanted(place, dir):
	case st.Mode&unix.S_IFMT == unix.S_IFIFO:
		what = FIFO
	default:
		return
	}
	if w.told[place] == this {
		return
	}
	if len(w.told) < maxKnown {
		w.told[place] = this
	}
	w.o.Found(Found{place, what})
}

// look watches a folder and those below it, and shows what is in them. A watch
// comes before the look, so that nothing falls between them.
func (w *Watcher) look(ctx context.Context, dir string, depth int, see func(string, unix.Stat_t)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	fd, err := w.open(dir)
	if err != nil {
		return nil // gone, or not ours to read
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	if depth > maxDepth || !w.add(fd, dir) {
		if w.missed == "" {
			w.missed = fmt.Sprintf("not all of its folders are watched for names that hosts execute: more than %d, deeper than %d, or more than fs.inotify.max_user_watches", w.o.MaxFolders, maxDepth)
		}
		return nil
	}
	for {
		names, err := f.Readdirnames(1024)
		for _, name := range names {
			place := join(dir, name)
			var st unix.Stat_t
			if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			if w.interesting(place, st) {
				see(place, st)
			}
			if st.Mode&unix.S_IFMT != unix.S_IFDIR || w.inodes[idOf(st)] {
				continue
			}
			if err := w.look(ctx, place, depth+1, see); err != nil {
				return err
			}
		}
		if err != nil {
			return nil // io.EOF, or the folder went away
		}
	}
}

func (w *Watcher) interesting(place string, st unix.Stat_t) bool {
	kind := st.Mode & unix.S_IFMT
	_, covered := w.covered[place]
	return covered || kind == unix.S_IFIFO || w.o.Wanted(place, kind == unix.S_IFDIR)
}

// add watches an open folder. One that is watched already has moved.
func (w *Watcher) add(fd int, dir string) bool {
	if len(w.folders) >= w.o.MaxFolders {
		return false
	}
	watch, err := unix.InotifyAddWatch(w.fd, fmt.Sprintf("/proc/self/fd/%d", fd), mask)
	if err != nil {
		return false
	}
	w.folders[watch] = dir
	return true
}

// how opens a place without following any link, and without leaving the folder.
var how = unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV}

func (w *Watcher) open(place string) (int, error) {
	if place == "" {
		place = "."
	}
	h := how
	return unix.Openat2(w.root, place, &h)
}

func (w *Watcher) stat(place string) (st unix.Stat_t, err error) {
	h := how
	h.Flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat2(w.root, place, &h)
	if errors.Is(err, unix.ELOOP) { // the place itself is a link: it is there
		return unix.Stat_t{Mode: unix.S_IFLNK}, nil
	}
	if err != nil {
		return st, err
	}
	defer unix.Close(fd)
	return st, unix.Fstat(fd, &st)
}

func idOf(st unix.Stat_t) id { return id{uint64(st.Dev), st.Ino} }

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
