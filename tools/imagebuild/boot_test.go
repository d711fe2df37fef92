package imagebuild_test

import (
	"bytes"
	"context"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/erofs/go-erofs"

	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/tools/testimage"
	"github.com/berthos/berth/tools/testvm"
)

// patience bounds a boot that hangs; nothing is measured against it.
const patience = 3 * time.Minute

// TestOnlyTheRootWithItsDigestBoots boots the image as it is and with one bit
// flipped in different places. It looks at the effect: PID 1 answers on the
// link, or the kernel stops before it does.
func TestOnlyTheRootWithItsDigestBoots(t *testing.T) {
	dir := testimage.Dir(t, index.KindImage)
	i, _, err := index.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.ReadFile(filepath.Join(dir, i.Root.File))
	if err != nil {
		t.Fatal(err)
	}
	data := i.Root.DataSize
	init := firstBlockOf(t, root, i, "sbin/init")
	for name, at := range map[string]int64{
		"control":      -1,
		"superblock":   1024 + 16,
		"PID 1":        init + 64,
		"root of tree": data + 5,
		"leaf of tree": data + index.BlockSize + 32*(init/index.BlockSize),
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "root.img")
			copied := bytes.Clone(root)
			if at >= 0 {
				copied[at] ^= 0x04
			}
			if err := os.WriteFile(file, copied, 0o600); err != nil {
				t.Fatal(err)
			}
			console, met := boot(t, i, filepath.Join(dir, i.Kernel.File), file)
			panicked := strings.Contains(console, "Kernel panic - not syncing: dm-verity device corrupted")
			if at < 0 && (met != nil || panicked) {
				t.Errorf("PID 1 did not answer: %v\n%s", met, console)
			}
			if at >= 0 && (met == nil || !panicked || !strings.Contains(console, "is corrupted")) {
				t.Errorf("handshake error %v, panic %v; want both\n%s", met, panicked, console)
			}
		})
	}
}

// firstBlockOf returns where the content of a program begins in the image.
func firstBlockOf(t *testing.T, image []byte, i index.Index, name string) int64 {
	t.Helper()
	img, err := erofs.Open(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	content, err := fs.ReadFile(img, name)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(image[:i.Root.DataSize], content[:2*index.BlockSize])
	if at < 0 || at%index.BlockSize != 0 {
		t.Fatalf("%s begins at %d in the image, not at a block", name, at)
	}
	return int64(at)
}

// boot starts QEMU on a root image and shakes hands with PID 1. It returns
// what was on the console and the handshake's error; QEMU has ended by then.
func boot(t *testing.T, i index.Index, kernel, root string) (console string, met error) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "link")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out bytes.Buffer
	cmd := testvm.Machine{
		Kernel: kernel, Link: socket,
		Devices: []string{"-drive", "id=root,file=" + root + ",format=raw,if=none,readonly=on", "-device", "virtio-blk-device,drive=root"},
		// A bare word is an argument of init. It may not follow "--": QEMU adds its devices at the end of the line.
		Words: `loglevel=7 dm-mod.create="` + i.Root.DMCreate("/dev/vda") + `" root=/dev/dm-0 ro rootwait init=/sbin/init vm`,
	}.Command(ctx)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait(); l.Close() }()
	conn, err := l.Accept()
	if err != nil {
		t.Fatalf("QEMU did not start: %v\n%s", <-ended, out.String())
	}
	session, met := link.Host(ctx, conn)
	if met == nil {
		met = session.Close() // the end of the session is the end of the guest
	}
	conn.Close()
	if err := <-ended; err != nil {
		t.Errorf("QEMU: %v", err)
	}
	return out.String(), met
}
