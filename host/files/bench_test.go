//go:build linux

package files

import (
	"testing"

	"github.com/berthos/berth/host/files/wire"
)

// What the server itself costs, over a socket pair and without a guest.

func BenchmarkGetattr(b *testing.B) {
	g := serve(b, nil)
	for b.Loop() {
		if _, err := g.getattr(rootFID); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWalkClunk(b *testing.B) {
	g := serve(b, func(o *Options) { o.Exclude = []string{".env", "*.pem"} })
	g.put("a/b/f", "x")
	dir := g.mustWalk("a", "b")
	for b.Loop() {
		fid, err := g.walk(dir, "f")
		if err != nil {
			b.Fatal(err)
		}
		g.clunk(fid)
	}
}

func BenchmarkCreateUnlink(b *testing.B) {
	g := serve(b, nil)
	for b.Loop() {
		fid, err := g.create(rootFID, "f", wire.OpenBoth, 0o600)
		if err != nil {
			b.Fatal(err)
		}
		g.clunk(fid)
		g.unlink(rootFID, "f", 0)
	}
}

func BenchmarkRead(b *testing.B) { benchmarkBulk(b, false) }

func BenchmarkWrite(b *testing.B) { benchmarkBulk(b, true) }

func benchmarkBulk(b *testing.B, write bool) {
	g := serve(b, nil)
	data := make([]byte, wire.MaxPayload)
	fid, err := g.create(rootFID, "f", wire.OpenBoth, 0o600)
	g.must(err)
	g.must(g.write(fid, 0, data))
	b.SetBytes(wire.MaxPayload)
	for b.Loop() {
		if write {
			err = g.write(fid, 0, data)
		} else {
			_, err = g.read(fid, 0, wire.MaxPayload)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
