package choose_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine/runtimedir"
	"github.com/berthos/berth/host/machine/stub"
	"github.com/berthos/berth/host/sandbox/choose"
	"github.com/berthos/berth/release/index"
	"github.com/berthos/berth/tools/testimage"
)

func TestMain(m *testing.M) {
	if code, ok := stub.Maybe(os.Args); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func newHost(t *testing.T) choose.Host {
	t.Helper()
	dir := os.Getenv("BERTH_TEST_IMAGE")
	if dir == "" {
		dir = testimage.Dir(t, index.KindImage)
	}
	img, err := image.Open(image.Location{Dir: dir, Source: "test"}, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	state, err := choose.OpenState(func(name string) string { return home })
	if err != nil {
		t.Fatal(err)
	}
	rt, err := runtimedir.Open(runtimedir.Search{Path: filepath.Join(home, "run")})
	if err != nil {
		t.Fatal(err)
	}
	return choose.Host{Image: img, State: state, Runtime: rt}
}

func TestProbe(t *testing.T) {
	h := newHost(t)
	results, err := choose.Probe(context.Background(), h)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		t.Logf("%+v", r)
	}
}
