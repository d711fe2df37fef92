package sandbox

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// etcSource is the folder of the verified root that becomes /etc.
const etcSource = "/usr/share/berth/etc"

// canaryDir is a folder on which ownership and mount allow the app everything
// and only Landlock does not.
const canaryDir = "/run/canary"

// devices are the nodes of /dev: harmless, and programs expect them.
var devices = []struct {
	name         string
	major, minor uint32
}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}}

// source is a mount that is ready to be attached.
type source struct {
	mount  int
	target string
	isDir  bool
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
func (e *enforcer) gather(l layout) (sources []source, err error) {
	for _, gather := range []func(*[]source) error{e.gatherBase, e.gatherDevices, func(s *[]source) error { return e.gatherShares(l, s) }} {
		if err := gather(&sources); err != nil {
			return nil, err
		}
	}
	return sources, nil
}

// take clones what handle refers to, and closes handle.
func (e *enforcer) take(handle int, target string, attrs uint64) (source, error) {
	defer unix.Close(handle)
	var st unix.Stat_t
	if err := unix.Fstat(handle, &st); err != nil {
		return source{}, err
	}
	mount, err := clone(handle, e.attrs(attrs))
	return source{mount, target, st.Mode&unix.S_IFMT == unix.S_IFDIR}, err
}

// gatherBase takes the app's code and the baseline of /etc.
func (e *enforcer) gatherBase(sources *[]source) error {
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
			return fmt.Errorf("cannot open %s for %s: %w", b.from, b.to, err)
		}
		s, err := e.take(handle, b.to, b.attrs)
		if err != nil || !s.isDir {
			return fmt.Errorf("cannot take %s as %s: %w", b.from, b.to, orNotFolder(err))
		}
		*sources = append(*sources, s)
		e.Grants = append(e.Grants, grant{b.to, b.kind})
	}
	return nil
}

// gatherDevices takes the device nodes, after making sure that each is the
// device that its name says.
func (e *enforcer) gatherDevices(sources *[]source) error {
	for _, d := range devices {
		name := "/dev/" + d.name
		handle, err := openAbs(name)
		if err != nil {
			return fmt.Errorf("cannot open %s: %w", name, err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(handle, &st); err != nil {
			return fmt.Errorf("cannot stat %s: %w", name, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(d.major, d.minor) {
			return fmt.Errorf("cannot take %s: it is not character device %d:%d", name, d.major, d.minor)
		}
		s, err := e.take(handle, name, unix.MOUNT_ATTR_NOSUID|attrNoExec|attrReadOnly)
		if err != nil {
			return fmt.Errorf("cannot take %s: %w", name, err)
		}
		*sources = append(*sources, s)
		e.Grants = append(e.Grants, grant{name, kindDevice})
	}
	return nil
}

// gatherShares takes the granted parts of shares. In the test image shares can
// appear whole instead, so that Landlock alone tells what is granted.
func (e *enforcer) gatherShares(l layout, sources *[]source) error {
	for _, b := range l.binds {
		s, k, err := e.takePart(b)
		if err != nil {
			return fmt.Errorf("%s: %w", b.capability, err)
		}
		e.Grants = append(e.Grants, grant{b.target, k})
		if !e.ablated(ablateHide) {
			*sources = append(*sources, s)
		}
	}
	if !e.ablated(ablateHide) {
		return nil
	}
	for _, b := range whole(e.Spec.Shares) {
		s, _, err := e.takePart(b)
		if err != nil {
			return fmt.Errorf("%s: %w", ablateHide, err)
		}
		*sources = append(*sources, s)
	}
	return nil
}

func (e *enforcer) takePart(b bind) (source, kind, error) {
	root, err := openAbs(b.source)
	if err != nil {
		return source{}, "", fmt.Errorf("cannot open its share: %w", err)
	}
	defer unix.Close(root)
	handle, err := open(root, b.rel)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return source{}, "", errors.New("no such folder")
	case errors.Is(err, unix.ELOOP):
		return source{}, "", errors.New("a folder of this path is a symlink, and none is followed")
	case err != nil:
		return source{}, "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(handle, &st); err != nil {
		return source{}, "", err
	}
	file := st.Mode&unix.S_IFMT == unix.S_IFREG
	if !file && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return source{}, "", errNotAFolder
	}
	attrs := uint64(attrSafe | attrNoExec)
	if b.readOnly {
		attrs |= attrReadOnly
	}
	s, err := e.take(handle, b.target, attrs)
	return s, kindFor(!b.readOnly, file), err
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

// furnish makes the file systems of the app's own.
func (e *enforcer) furnish(t *tree, l layout) error {
	uid, gid := option{"uid", itoa(e.Spec.UID)}, option{"gid", itoa(e.Spec.GID)}
	size := option{"size", fmt.Sprintf("%dm", max(1, e.policy.Limits.MemoryMB/2))}
	inodes := option{"nr_inodes", "65536"}
	for _, err := range []error{
		t.tmpfs("/scratch", uid, gid, size, inodes, option{"mode", "0700"}),
		t.tmpfs("/tmp", uid, gid, size, inodes, option{"mode", "1777"}),
		t.tmpfs(canaryDir, uid, gid, option{"size", "64k"}, option{"nr_inodes", "64"}, option{"mode", "0777"}),
		e.proc(t),
		t.symlink("/proc/self/fd", "/dev/fd"),
		t.symlink("/proc/self/fd/0", "/dev/stdin"),
		t.symlink("/proc/self/fd/1", "/dev/stdout"),
		t.symlink("/proc/self/fd/2", "/dev/stderr"),
	} {
		if err != nil {
			return err
		}
	}
	e.Grants = append(e.Grants, grant{"/scratch", kindWrite}, grant{"/proc", kindRead})
	return e.plainFolders(t, l)
}

// proc mounts a /proc that shows the app's own processes and nothing else.
func (e *enforcer) proc(t *tree) error {
	options := []option{{"hidepid", "ptraceable"}, {"subset", "pid"}}
	if e.ablated(ablateProc) {
		options = nil
	}
	mount, err := newFilesystem("proc", int(e.attrs(attrSafe|attrNoExec|attrReadOnly)), options...)
	if err != nil {
		return err
	}
	return t.put(mount, "/proc", true)
}

// plainFolders makes the granted folders that are no part of a share.
func (e *enforcer) plainFolders(t *tree, l layout) error {
	for _, g := range l.plain {
		at, err := t.dir(g.Path)
		if err != nil {
			return fmt.Errorf("%s: %w", capabilityOf(g), err)
		}
		if below(g.Path, "/tmp") {
			err = unix.Fchownat(at, "", int(e.Spec.UID), int(e.Spec.GID), unix.AT_EMPTY_PATH)
		}
		unix.Close(at)
		if err != nil {
			return fmt.Errorf("%s: cannot hand it to the app: %w", capabilityOf(g), err)
		}
		e.Grants = append(e.Grants, grant{g.Path, kindFor(g.Access == "write", false)})
	}
	return nil
}

var errNotAFolder = errors.New("it is neither a folder nor a regular file")

func orNotFolder(err error) error {
	if err == nil {
		return errors.New("it is not a folder")
	}
	return err
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
