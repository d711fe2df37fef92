package denial

import (
	"strings"
	"testing"

	"github.com/berthos/berth/sdk/protocol"
)

func TestEvidence(t *testing.T) {
	write := system("open", "/tmp/escape.txt", "EACCES", "write")
	make := Record{Blockers: []string{"fs.make_reg"}, Object: "/tmp"}
	for _, c := range []struct {
		name string
		err  protocol.Error
		rs   Records
		want string
	}{
		{"no records on this machine", write, Records{}, "inferred from the error and the policy, policy"},
		{"a create names the folder", write, Records{Kept: true, Complete: true, Calls: 1, List: []Record{make}}, "recorded by the kernel (fs.make_reg on /tmp), policy"},
		{"several calls", write, Records{Kept: true, Complete: true, Calls: 3, List: []Record{make}}, "recorded by the kernel (fs.make_reg on /tmp, in one of 3 calls in flight), policy"},
		{"by the alias", system("open", "/home/u/project/docs/a", "EACCES", "write"),
			Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"fs.make_reg"}, Object: "/workspace/docs"}}}, "recorded by the kernel (fs.make_reg on /workspace/docs)"},
		{"the file itself", system("open", "/proc/1/maps", "EACCES", "read"),
			Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"fs.read_file"}, Object: "/proc/1/maps"}}}, "recorded by the kernel (fs.read_file on /proc/1/maps)"},
		{"a hostile name", system("open", "/tmp/a\nfix: x", "EACCES", "write"),
			Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"fs.write_file"}, Object: "/tmp/a\nfix: x"}}}, `recorded by the kernel (fs.write_file on "/tmp/a\nfix: x")`},
		{"another folder's", write, Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"fs.make_reg"}, Object: "/run"}}}, "inferred from the error and the policy (no record of the kernel was found)"},
		{"a folder that was written, not made in", write, Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"fs.read_dir"}, Object: "/tmp"}}}, "no record of the kernel was found"},
		{"the filter's", write, Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Object: "/tmp"}}}, "no record of the kernel was found"},
		{"a filtered call", system("unshare", "", "EPERM", ""), Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Syscall: 272}}},
			"inferred from the error and the policy (meanwhile recorded by the kernel: system call 272 by the filter), policy"},
		{"a flood", write, Records{Kept: true, Complete: true, Calls: 1, Missing: 12}, "inferred from the error and the policy (12 records of the kernel were suppressed or lost)"},
		{"a slow guest", write, Records{Kept: true}, "inferred from the error and the policy (the kernel's records did not come in time)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := testContext()
			ctx.Records = c.rs
			d, ok := Explain(ctx, c.err)
			if !ok || !strings.Contains(d.By, c.want) {
				t.Errorf("%v, %s\nwant %s", ok, d.By, c.want)
			}
		})
	}
}

// TestRecordBeatsInference: the policy covers the path, so that the errno alone
// would be laid at the door of the file's permissions; the kernel says otherwise.
func TestRecordBeatsInference(t *testing.T) {
	e := system("open", "/workspace/out/a", "EACCES", "write")
	c := testContext()
	if d, ok := Explain(c, e); !ok || !strings.Contains(d.By, "permissions of the file") {
		t.Errorf("control: %v", d)
	}
	c.Records = Records{Kept: true, Complete: true, Calls: 1, List: []Record{{Blockers: []string{"fs.make_reg"}, Object: "/workspace/out"}}}
	if d, ok := Explain(c, e); !ok || !strings.Contains(d.By, "Landlock") || !strings.Contains(d.By, "recorded by the kernel") || !strings.Contains(d.Rule, "no scope carries") {
		t.Errorf("%v", d)
	}
}
