package rootbuild

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/u-root/gobusybox/src/pkg/bb"
	"github.com/u-root/gobusybox/src/pkg/bb/findpkg"
	"github.com/u-root/gobusybox/src/pkg/golang"
	"github.com/u-root/uio/ulog"

	"github.com/berthos/berth/rootfs"
)

// buildBusybox compiles all of rootfs.Commands into one program, out. gobusybox
// rewrites the commands' sources into one package; the compiler is run here, so
// that it gets the same fixed environment and flags as every other program.
func buildBusybox(ctx context.Context, g goTool, arch, work, out string) error {
	goroot, err := g.run(ctx, "env", "GOROOT")
	if err != nil {
		return fmt.Errorf("cannot build busybox: %w", err)
	}
	goarch, err := GoArch(arch)
	if err != nil {
		return err
	}
	env := golang.Default(
		golang.DisableCGO(), golang.WithGOOS("linux"), golang.WithGOARCH(goarch), golang.WithGOROOT(goroot),
		golang.WithWorkingDir(g.dir), golang.WithGO111MODULE("on"), golang.WithBuildTag(strings.Split(rootfs.CommandTags, ",")...),
	)
	err = bb.BuildBusybox(ulog.Null, &bb.Opts{
		Env: env, LookupEnv: &findpkg.Env{}, GenSrcDir: work, CommandPaths: commandPackages(), GenerateOnly: true,
	})
	if err != nil {
		return fmt.Errorf("cannot generate busybox: %w", err)
	}
	// Inlining is off as in u-root's own images: size counts here, speed does not.
	main := filepath.Join(work, "src/bb.u-root.com/bb")
	return g.with(main, "GO111MODULE=off", "GOPATH="+work).build(ctx, ".", out, "-gcflags=all=-l", "-tags="+rootfs.CommandTags)
}

func commandPackages() []string {
	names := rootfs.Commands()
	for n, name := range names {
		names[n] = rootfs.CommandPrefix + name
	}
	return names
}
