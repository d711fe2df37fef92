package worklayer

import (
	"bytes"
	"debug/elf"
	"fmt"
)

// Where a layer lies in a sandbox. It is as long as /usr, and /app/ as /bin/:
// so programs that were built for /usr are moved by replacing the one with the
// other, and every compiled-in path, interpreter line and search path is right
// without an environment that says so.
const at = "/app/"

// relocate moves the paths in a file's content from /usr and /bin to /app.
func relocate(raw []byte) ([]byte, error) {
	raw = bytes.Clone(raw)
	isELF := bytes.HasPrefix(raw, []byte(elf.ELFMAG))
	for _, old := range []string{"/usr/", "/bin/"} {
		for i := 0; ; i += len(old) {
			n := bytes.Index(raw[i:], []byte(old))
			if n < 0 {
				break
			}
			if i += n; i == 0 || begins(raw[i-1]) {
				copy(raw[i:], at)
			}
		}
	}
	if !isELF {
		return raw, nil
	}
	// A prefix to which the program itself adds the rest.
	raw = bytes.ReplaceAll(raw, []byte("\x00/usr\x00"), []byte("\x00/app\x00"))
	return raw, interpreter(raw)
}

// begins reports whether an absolute path can begin after c.
func begins(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return false
	}
	return !bytes.ContainsRune([]byte("_.-~/)}]*+\\"), rune(c)) || c == 0
}

// interpreter makes a program's loader the layer's, in place: the kernel reads
// the path up to its first NUL.
func interpreter(raw []byte) error {
	f, err := elf.NewFile(bytes.NewReader(raw))
	if err != nil {
		return nil // something that only begins like a program
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		old := raw[p.Off : p.Off+p.Filesz]
		base := old[bytes.LastIndexByte(old, '/')+1:]
		if len(at)+len(base) > len(old) {
			return fmt.Errorf("cannot replace the loader %q: the new path is longer", bytes.Trim(old, "\x00"))
		}
		path := append([]byte(at), base...)
		clear(old[copy(old, path):])
	}
	return nil
}
