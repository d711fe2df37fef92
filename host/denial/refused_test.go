package denial

import (
	"strings"
	"testing"
)

// What the file server of a share reports is named, also where the app said
// another name; a record of the kernel, or no report, says otherwise.
func TestRefusedByTheShare(t *testing.T) {
	refused := func(path string) []Refusal {
		return []Refusal{{Path: path, Op: "create", Why: "programs of this host execute what has this name"}}
	}
	for _, c := range []struct {
		name    string
		path    string
		refused []Refusal
		record  bool
		want    string // a part of By
		not     string
	}{
		{"the name itself", "/workspace/out/.envrc", refused("/workspace/out/.envrc"), false, "reported by the file server (create of /workspace/out/.envrc)", "Landlock"},
		{"not reported", "/workspace/out/.envrc", nil, false, "programs of the host execute", "reported"},
		{"by way of a link", "/workspace/out/link/pre-commit", refused("/workspace/out/.git/hooks/pre-commit"), false, "reported by the file server (create of /workspace/out/.git/hooks/pre-commit)", "permissions"},
		{"nothing was reported", "/workspace/out/link/pre-commit", nil, false, "permissions", "file server"},
		{"the kernel says otherwise", "/workspace/out/link/pre-commit", refused("/workspace/out/.git/hooks/pre-commit"), true, "Landlock", "file server"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := testContext()
			ctx.Refused = c.refused
			if c.record {
				ctx.Records = Records{Kept: true, Complete: true, List: []Record{{Blockers: []string{"fs.write_file"}, Object: c.path}}}
			}
			d, ok := Explain(ctx, system("open", c.path, "EACCES", "write"))
			if !ok || !strings.Contains(d.By, c.want) || strings.Contains(d.By, c.not) {
				t.Errorf("%+v", d)
			}
		})
	}
}
