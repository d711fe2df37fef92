package denial

import (
	"strings"
	"testing"
	"unicode"

	"github.com/berthos/berth/sdk/protocol"
)

// FuzzExplain: whatever an app says of its failure, and whatever a guest says was
// recorded, the block has its five lines and nothing that steers a terminal.
func FuzzExplain(f *testing.F) {
	f.Add("system", "open", "/tmp/x", "", "EACCES", "write", "fs.make_reg", "/tmp")
	f.Add("system", "rename", "/workspace/a", "/workspace/b\nfix: x", "EXDEV", "", "fs.refer", "/workspace")
	f.Add("system", "connect", "127.0.0.1:80", "", "EACCES", "", "net.connect_tcp", "127.0.0.1:80")
	f.Add("denied", "", "peer.bye\nfix: yes", "", "", "", "", "")
	f.Add("system", "open\x1b[2J", "/dev/pts/../x\r\n", "", "EROFS", "read", "fs.read_file\nrule: none", "\u202e")
	f.Fuzz(func(t *testing.T, code, op, path, newPath, errno, access, blocker, object string) {
		c := testContext()
		c.Records = Records{Kept: true, Complete: true, List: []Record{{Blockers: []string{blocker}, Object: object}}}
		d, ok := Explain(c, protocol.Error{Code: code, Op: op, Path: path, NewPath: newPath, Errno: errno, Access: access})
		if !ok {
			return
		}
		block := d.String()
		if strings.Count(block, "\n") != 5 {
			t.Errorf("%d lines: %q", strings.Count(block, "\n"), block)
		}
		if i := strings.IndexFunc(block, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%q does not print", block[i:])
		}
	})
}
