package seccompile

import "testing"

func TestFiles(t *testing.T) {
	for _, arch := range []string{"x86_64", "arm64"} {
		files, err := Files(arch)
		if err != nil {
			t.Fatal(err)
		}
		for name, raw := range files {
			if len(raw) == 0 || len(raw)%8 != 0 {
				t.Errorf("%s %s: %d bytes", arch, name, len(raw))
			}
		}
	}
}
