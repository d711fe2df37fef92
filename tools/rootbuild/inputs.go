package rootbuild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berthos/berth/rootfs"
	"github.com/berthos/berth/tools/buildcache"
)

// Inputs are the things that a build depends on, by name: digests of the files
// of this module, versions and sums of other modules, the compiler's version.
type Inputs map[string]string

// AddTo adds all of in to a key.
func (in Inputs) AddTo(h *buildcache.Hash, prefix string) {
	names := make([]string, 0, len(in))
	for name := range in {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		h.Add(prefix+name, in[name])
	}
}

// BusyboxInputs returns what the busybox is compiled from.
func BusyboxInputs(ctx context.Context, module, arch string) (Inputs, error) {
	g, err := newGoTool(module, arch)
	if err != nil {
		return nil, err
	}
	return g.inputs(ctx, rootfs.CommandTags, commandPackages()...)
}

// ProgramInputs returns what the programs and apps are compiled from, the apps'
// manifests included. Static files are part of the program that embeds rootfs.
func ProgramInputs(ctx context.Context, module, arch, tags string, apps []string) (Inputs, error) {
	g, err := newGoTool(module, arch)
	if err != nil {
		return nil, err
	}
	var packages []string
	for _, p := range rootfs.Programs() {
		packages = append(packages, local(p.Package))
	}
	for _, name := range apps {
		packages = append(packages, local(appPackage(name)))
	}
	in, err := g.inputs(ctx, tags, packages...)
	if err != nil {
		return nil, err
	}
	for _, name := range apps {
		if in["manifest of "+name], err = buildcache.HashFile(manifestOf(module, name)); err != nil {
			return nil, fmt.Errorf("cannot read manifest of app %s: %w", name, err)
		}
	}
	return in, nil
}

// HostInputs returns what a program for this machine is compiled from.
func HostInputs(ctx context.Context, module, folder string) (Inputs, error) {
	return hostTool(module).inputs(ctx, "", local(folder))
}

// listed is the part of go list's answer that is used.
type listed struct {
	ImportPath, Dir                                       string
	Standard                                              bool
	GoFiles, CgoFiles, CFiles, HFiles, SFiles, EmbedFiles []string
	Module                                                *struct {
		Path, Version, Sum string
		Main               bool
		Replace            *struct{ Path, Version, Sum string }
	}
}

func (g goTool) inputs(ctx context.Context, tags string, packages ...string) (Inputs, error) {
	version, err := g.run(ctx, "env", "GOVERSION")
	if err != nil {
		return nil, fmt.Errorf("cannot list inputs: %w", err)
	}
	args := append([]string{"list", "-deps", "-tags=" + tags,
		"-json=ImportPath,Dir,Standard,Module,GoFiles,CgoFiles,CFiles,HFiles,SFiles,EmbedFiles"}, packages...)
	out, err := g.run(ctx, args...)
	if err != nil {
		return nil, fmt.Errorf("cannot list inputs: %w", err)
	}
	in := Inputs{"go": version, "tags": tags, "environment": strings.Join(g.env, " ")}
	dec := json.NewDecoder(strings.NewReader(out))
	for {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return in, nil
		} else if err != nil {
			return nil, fmt.Errorf("cannot list inputs: %w", err)
		}
		if err := in.addPackage(p); err != nil {
			return nil, fmt.Errorf("cannot list inputs: %w", err)
		}
	}
}

func (in Inputs) addPackage(p listed) error {
	if p.Standard || p.Module == nil {
		return nil
	}
	if !p.Module.Main {
		m := p.Module
		value := m.Version + " " + m.Sum
		if r := m.Replace; r != nil {
			value += " => " + r.Path + " " + r.Version + " " + r.Sum
		}
		in["module "+m.Path] = value
		return nil
	}
	for _, name := range slices.Concat(p.GoFiles, p.CgoFiles, p.CFiles, p.HFiles, p.SFiles, p.EmbedFiles) {
		sum, err := buildcache.HashFile(filepath.Join(p.Dir, name))
		if err != nil {
			return err
		}
		in["file "+p.ImportPath+"/"+filepath.ToSlash(name)] = sum
	}
	return nil
}
