package hostexecuted

import (
	"strings"

	"github.com/berthos/berth/host/files"
)

// Table is the default list as docs/host-executed.md has it.
func Table() string {
	var b strings.Builder
	b.WriteString("| who | does what | names |\n|---|---|---|\n")
	for _, g := range files.DefaultHostExecuted() {
		b.WriteString("| " + g.What + " | " + g.Reason + " | `" + strings.Join(g.Names, "` `") + "` |\n")
	}
	return b.String()
}
