package grant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/berthos/berth/apps/manifest"
	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/init/policy"
)

const heading = `# What you let this app do. Berth records it at the first start and when you
# run: berth approve DIR
# You may narrow it in each folder's entry:
#   read_only: true            the shared folders can not be changed
#   exports: [read, list]      only these can be called
#   paths: [/workspace/docs]   only these folders
`

// render writes a grant file. What it writes, manifest.ParseGrants reads.
func render(list manifest.Grants) ([]byte, error) {
	var b strings.Builder
	b.WriteString(heading)
	fmt.Fprintf(&b, "schema_version: %d\napp: %s\nfolders:\n", manifest.SchemaVersion, single(list.App))
	for _, g := range list.Folders {
		fmt.Fprintf(&b, "  - folder: %s\n", single(g.Folder))
		if g.ReadOnly {
			b.WriteString("    read_only: true\n")
		}
		if g.Exports != nil {
			fmt.Fprintf(&b, "    exports: [%s]\n", join(g.Exports))
		}
		if g.Paths != nil {
			fmt.Fprintf(&b, "    paths: [%s]\n", join(g.Paths))
		}
		fmt.Fprintf(&b, "    approved_sha256: %s\n    approved: |\n", single(g.SHA256))
		for line := range strings.Lines(g.Approved) {
			b.WriteString("      " + strings.TrimRight(line, "\n") + "\n")
		}
	}
	raw := []byte(b.String())
	again, err := manifest.ParseGrants("grants", raw)
	if err == nil && !slices.EqualFunc(again.Folders, list.Folders, equal) {
		err = errors.New("it would not be read back as it is")
	}
	if err != nil {
		return nil, hint.Errorf("a folder's name must print; at most 256 KiB are kept for one app", "cannot record what app %q may do: %w", list.App, err)
	}
	return raw, nil
}

// equal compares what two entries say, wherever they stand.
func equal(a, b manifest.Grant) bool {
	a.Pos = b.Pos
	a.Approved, b.Approved = strings.TrimSpace(a.Approved), strings.TrimSpace(b.Approved)
	return reflect.DeepEqual(a, b)
}

func single(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func join(list []string) string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, single(s))
	}
	return strings.Join(out, ", ")
}

// entry is the record of p.
func entry(folder string, p policy.Policy, n Narrowing) (manifest.Grant, error) {
	raw, err := Blank(p).Encode()
	if err != nil {
		return manifest.Grant{}, err
	}
	var text bytes.Buffer
	if err := json.Indent(&text, raw, "", " "); err != nil {
		return manifest.Grant{}, fmt.Errorf("cannot record what app %q may do: %w", p.App, err)
	}
	return manifest.Grant{
		Folder: folder, SHA256: policy.Digest(raw), Approved: text.String(),
		ReadOnly: n.ReadOnly, Exports: slices.Clone(n.Exports), Paths: slices.Clone(n.Paths),
	}, nil
}

// approved reads a record back.
func approved(g manifest.Grant) (policy.Policy, error) {
	const advice = "remove the entry and run berth approve again; narrow with read_only, exports and paths"
	var raw bytes.Buffer
	if err := json.Compact(&raw, []byte(g.Approved)); err != nil {
		return policy.Policy{}, hint.Errorf(advice, "cannot use the grant for %s: approved is not JSON: %w", g.Folder, err)
	}
	if policy.Digest(raw.Bytes()) != g.SHA256 {
		return policy.Policy{}, hint.Errorf(advice, "cannot use the grant for %s: approved was changed by hand, its sha256 is %s", g.Folder, policy.Digest(raw.Bytes()))
	}
	p, err := policy.Parse(raw.Bytes())
	if err != nil {
		return policy.Policy{}, hint.Errorf("run berth approve again: another version of berth wrote it", "cannot use the grant for %s: %w", g.Folder, err)
	}
	return p, nil
}
