package sandbox

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/berthos/berth/init/policy"
	"golang.org/x/sys/unix"
)

// etcSource is the folder of the verified root that becomes /etc.
const etcSource = "/usr/share/berth/etc"

// canaryDir is a folder on which ownership and mount allow the app everything
// and only Landlock does not.
const canaryDir = "/run/canary"

// device is a node of /dev and what Landlock opens of it.
type device struct {
	name         string
	major, minor uint32
	kind         kind
}

// devices are the nodes of /dev: harmless, and programs expect them. /dev/tty is
// whatever terminal the process that opens it has, which is one of the app's own.
func (e *enforcer) devices() []device {
	list := []device{
		{"null", 1, 3, kindDevice}, {"zero", 1, 5, kindDevice}, {"full", 1, 7, kindDevice},
		{"random", 1, 8, kindDevice}, {"urandom", 1, 9, kindDevice},
	}
	switch {
	case e.policy.Terminal:
		list = append(list, device{"tty", 5, 0, kindDevice})
	case e.hasTerminals():
		list = append(list, device{"tty", 5, 0, kindNone})
	}
	return list
}

// source is a mount that is ready to be attached, and what is granted of it.
type source struct {
	mount  int
	target string
	isDir  bool
	kind   kind
}

// buildAndEnter makes the app's tree and pivots into it. Everything that comes
// from PID 1's tree is opened and cloned before the first path is covered.
func buildAndEnter(e *enforcer) (string, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", fmt.Errorf("cannot make mounts private: %w", err)
	}
	l, err := lay(e.policy, e.Spec.Shares)
	if err != nil {
		return "", err
	}
	sources, err := e.gather(l)
	if err != nil {
		return "", err
	}
	t, err := newTree()
	if err != nil {
		return "", err
	}
	if err := e.furnish(t, l); err != nil {
		return "", err
	}
	if sources, err = e.visible(sources); err != nil {
		return "", err
	}
	for _, s := range sources {
		if err := t.put(s.mount, s.target, s.isDir); err != nil {
			return "", err
		}
	}
	if !e.ablated(ablateReadOnly) {
		if err := t.seal(); err != nil {
			return "", err
		}
	}
	return l.String(), t.enter()
}

// gather clones what the app sees of PID 1's tree, in the order of attaching.
func (e *enforcer) gather(l layout) ([]source, error) {
	base, err := e.gatherBase()
	if err != nil {
		return nil, err
	}
	nodes, err := e.gatherDevices()
	if err != nil {
		return nil, err
	}
	parts, err := e.gatherShares(l.binds)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(base, nodes, parts)
	for _, s := range all {
		if s.kind == kindNone {
			continue
		}
		e.Grants = append(e.Grants, grant{s.target, s.kind, s.mount})
	}
	return all, nil
}

// take clones what handle refers to, and closes handle.
func (e *enforcer) take(handle int, target string, attrs uint64, k kind) (source, error) {
	defer unix.Close(handle)
	var st unix.Stat_t
	if err := unix.Fstat(handle, &st); err != nil {
		return source{}, err
	}
	mount, err := clone(handle, e.attrs(attrs))
	return source{mount, target, st.Mode&unix.S_IFMT == unix.S_IFDIR, k}, err
}

// gatherBase takes the app's code and the baseline of /etc.
func (e *enforcer) gatherBase() (sources []source, err error) {
	for _, b := range []struct {
		from, to string
		attrs    uint64
		kind     kind
	}{
		{e.Spec.Code, "/app", attrSafe | attrReadOnly, kindCode},
		{etcSource, "/etc", attrSafe | attrReadOnly | attrNoExec, kindRead},
	} {
		handle, err := openAbs(b.from)
		if err != nil {
			return nil, fmt.Errorf("cannot open %s for %s: %w", b.from, b.to, err)
		}
		s, err := e.take(handle, b.to, b.attrs, b.kind)
		if err == nil && !s.isDir {
			err = errors.New("it is not a folder")
		}
		if err != nil {
			return nil, fmt.Errorf("cannot take %s as %s: %w", b.from, b.to, err)
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// gatherDevices takes the device nodes, after making sure that each is the
// device that its name says.
func (e *enforcer) gatherDevices() (sources []source, err error) {
	for _, d := range e.devices() {
		name := "/dev/" + d.name
		handle, err := openAbs(name)
		if err != nil {
			return nil, fmt.Errorf("cannot open %s: %w", name, err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(handle, &st); err != nil {
			return nil, fmt.Errorf("cannot stat %s: %w", name, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(d.major, d.minor) {
			return nil, fmt.Errorf("cannot take %s: it is not character device %d:%d", name, d.major, d.minor)
		}
		s, err := e.take(handle, name, unix.MOUNT_ATTR_NOSUID|attrNoExec|attrReadOnly, d.kind)
		if err != nil {
			return nil, fmt.Errorf("cannot take %s: %w", name, err)
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// gatherShares takes parts of shares.
func (e *enforcer) gatherShares(binds []bind) (sources []source, err error) {
	for _, b := range binds {
		s, err := e.takePart(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.capability, err)
		}
		sources = append(sources, s)
	}
	return sources, nil
}

func (e *enforcer) takePart(b bind) (source, error) {
	root, err := openAbs(b.source)
	if err != nil {
		return source{}, fmt.Errorf("cannot open its share: %w", err)
	}
	defer unix.Close(root)
	handle, err := open(root, b.rel)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return source{}, errors.New("no such folder")
	case errors.Is(err, unix.ELOOP):
		return source{}, errors.New("a folder of this path is a symlink, and none is followed")
	case err != nil:
		return source{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(handle, &st); err != nil {
		return source{}, err
	}
	file := st.Mode&unix.S_IFMT == unix.S_IFREG
	if !file && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return source{}, errors.New("it is neither a folder nor a regular file")
	}
	attrs := uint64(attrSafe | attrNoExec)
	if b.readOnly {
		attrs |= attrReadOnly
	}
	return e.take(handle, b.target, attrs, kindFor(!b.readOnly, file))
}

func kindFor(write, file bool) kind {
	switch {
	case write && file:
		return kindWriteFile
	case write:
		return kindWrite
	case file:
		return kindReadFile
	}
	return kindRead
}

// furnish makes the file systems and folders of the app's own.
func (e *enforcer) furnish(t *tree, l layout) error {
	uid, gid := option{"uid", itoa(e.Spec.UID)}, option{"gid", itoa(e.Spec.GID)}
	size := option{"size", fmt.Sprintf("%dm", max(1, e.policy.Limits.MemoryMB/2))}
	inodes := option{"nr_inodes", "65536"}
	scratch, err := t.tmpfs("/scratch", uid, gid, size, inodes, option{"mode", "0700"})
	if err != nil {
		return err
	}
	tmp, err := t.tmpfs("/tmp", uid, gid, size, inodes, option{"mode", "1777"})
	if err != nil {
		return err
	}
	// shm_open and sem_open know no other place, and with them Python's
	// multiprocessing and every browser.
	shm, err := t.tmpfs("/dev/shm", uid, gid, size, inodes, option{"mode", "1777"})
	if err != nil {
		return err
	}
	canary, err := t.tmpfs(canaryDir, uid, gid, option{"size", "64k"}, option{"nr_inodes", "64"}, option{"mode", "0777"})
	if err != nil {
		return err
	}
	unix.Close(tmp) // plainFolders grants what the policy names of it
	unix.Close(canary)
	if err := e.terminals(t); err != nil {
		return err
	}
	proc, err := e.proc(t)
	if err != nil {
		return err
	}
	for _, l := range []struct{ name, to string }{{"fd", ""}, {"stdin", "/0"}, {"stdout", "/1"}, {"stderr", "/2"}} {
		if err := t.symlink("/proc/self/fd"+l.to, "/dev/"+l.name); err != nil {
			return err
		}
	}
	e.Grants = append(e.Grants, grant{"/scratch", kindWrite, scratch}, grant{"/dev/shm", kindWrite, shm}, grant{"/proc", kindRead, proc})
	return e.plainFolders(t, l)
}

// proc mounts a /proc that shows the app's own processes and nothing else.
func (e *enforcer) proc(t *tree) (int, error) {
	options := []option{{"hidepid", "ptraceable"}, {"subset", "pid"}}
	if e.ablated(ablateProc) {
		options = nil
	}
	mount, err := newFilesystem("proc", int(e.attrs(attrSafe|attrNoExec|attrReadOnly)), options...)
	if err != nil {
		return -1, err
	}
	return mount, t.put(mount, "/proc", true)
}

// plainFolders makes the granted folders that are no part of a share.
func (e *enforcer) plainFolders(t *tree, l layout) error {
	for _, g := range l.plain {
		at, err := t.dir(g.Path)
		if err != nil {
			return fmt.Errorf("%s: %w", capabilityOf(g), err)
		}
		if below(g.Path, "/tmp") {
			if err := unix.Fchownat(at, "", int(e.Spec.UID), int(e.Spec.GID), unix.AT_EMPTY_PATH); err != nil {
				return fmt.Errorf("%s: cannot hand it to the app: %w", capabilityOf(g), err)
			}
		}
		e.Grants = append(e.Grants, grant{g.Path, kindFor(g.Access == policy.Write, false), at})
	}
	return nil
}

func itoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// attrs returns a mount's attributes, less what the test image leaves out.
func (e *enforcer) attrs(attrs uint64) uint64 {
	for _, a := range []struct {
		name string
		attr uint64
	}{{ablateReadOnly, attrReadOnly}, {ablateNoExec, attrNoExec}, {ablateNoDev, unix.MOUNT_ATTR_NODEV}} {
		if e.ablated(a.name) {
			attrs &^= a.attr
		}
	}
	return attrs
}
