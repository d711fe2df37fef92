package kbuild

import (
	"strings"
	"testing"

	"github.com/berthos/berth/kernel"
)

const testIndex = `Package: linux-source-7.3
Version: 7.3.4-1~bpo13+1
Filename: pool/main/l/linux/linux-source-7.3_7.3.4-1~bpo13+1_all.deb
Size: 166780612
SHA256: 703e369ddd4cce971452f5a593ee55df3a5c10c83caf0fa0df039633ed181ee3

Package: linux-source-7.3
Version: 7.3.5-1
Filename: ../../etc/passwd
Size: 1
SHA256: 703e369ddd4cce971452f5a593ee55df3a5c10c83caf0fa0df039633ed181ee3
`

func TestPinFromIndex(t *testing.T) {
	old, err := kernel.LoadPin()
	if err != nil {
		t.Fatal(err)
	}
	w, err := candidate(old, "7.3.4-1~bpo13+1")
	if err != nil {
		t.Fatal(err)
	}
	pin, err := w.in([]byte(testIndex))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pin.Encode(); err != nil || !strings.Contains(string(got), `"suite": "trixie-backports"`) {
		t.Errorf("got %s, %v", got, err)
	}
	if pin.Version != "7.3.4" || pin.Package != "linux-source-7.3" || pin.Size != 166780612 {
		t.Errorf("got %+v", pin)
	}
}

func TestUpdateRefuses(t *testing.T) {
	for _, version := range []string{"", "7.3.4", "latest", "7.3.4-1~bpo99+1"} {
		if w, err := candidate(kernel.Pin{}, version); err == nil {
			t.Errorf("%q became %+v", version, w)
		}
	}
	for _, version := range []string{"7.3.5-1", "7.3.6-1"} {
		w, err := candidate(kernel.Pin{}, version)
		if err != nil {
			t.Fatal(err)
		}
		if pin, err := w.in([]byte(testIndex)); err == nil {
			t.Errorf("%s became %+v", version, pin)
		}
	}
}

func TestListed(t *testing.T) {
	release := "Suite: sid\nMD5Sum:\n 00 5 main/binary-amd64/Packages.xz\nSHA256:\n ab 12 main/binary-all/Packages.xz\n cd 34 main/binary-amd64/Packages.xz\n"
	w, err := listed([]byte(release), indexName)
	if err != nil || w.SHA256 != "cd" || w.Size != 34 {
		t.Errorf("got %+v, %v", w, err)
	}
	if _, err := listed([]byte("Suite: sid\n"), indexName); err == nil {
		t.Error("an index that is not listed was found")
	}
}
