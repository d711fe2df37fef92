package attack

import (
	"fmt"

	"github.com/berthos/berth/host/hint"
	"github.com/berthos/berth/host/sandbox"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/init/sandbox/probe"
)

// The apps of the sandbox, all with the code of the first.
const (
	attacker = "attack"
	rival    = "rival"  // attacks the victim; may connect to its port
	victim   = "victim" // holds what probe.Neighbour says
)

// narrowed is an export of the attack app that is served by a process of its
// own, which may not read partExtra.
const narrowed = "narrowed"

// program is the attack app's in its folder.
const program = "/app/attack"

// apps are the three apps with their policies.
func (r *run) apps() ([]sandbox.App, error) {
	code := ""
	for _, a := range r.o.Image.Index.Apps {
		if a.Name == attacker {
			code = a.Code
		}
	}
	if code == "" {
		return nil, hint.Errorf("use an image of this version", "cannot attack: the image has no app %s", attacker)
	}
	port := uint16(probe.Neighbour("").Port)
	tmp := policy.Path{Path: "/tmp", Access: policy.Write}
	policies := []policy.Policy{
		Policy(code),
		shaped(rival, code, nil, policy.Rights{Class: "network", Paths: []policy.Path{tmp}, Connect: []uint16{port}}),
		shaped(victim, code, []string{"hold", r.field.token}, policy.Rights{
			Class: "network", Bind: []uint16{port}, Paths: []policy.Path{tmp, {Path: "/workspace/" + partVictim, Access: policy.Write}},
		}),
	}
	if len(r.o.Ablate) > 0 {
		policies = policies[:1] // without their trees apps are not apart
	}
	var apps []sandbox.App
	for _, p := range policies {
		raw, err := p.Encode()
		if err != nil {
			return nil, fmt.Errorf("cannot attack: %w", err)
		}
		apps = append(apps, sandbox.App{Policy: raw, InRoot: true, Code: attacker})
	}
	return apps, nil
}

// Policy is that of the attack app's manifest.
func Policy(code string) policy.Policy {
	narrow := []policy.Path{{Path: "/workspace/" + partRead, Access: policy.Read}, {Path: "/workspace/" + partWrite, Access: policy.Write}}
	all := append([]policy.Path{{Path: "/workspace/" + partExtra, Access: policy.Read}}, narrow...)
	p := shaped(attacker, code, nil, policy.Rights{Class: "base", Paths: all})
	p.Workers = []policy.Worker{{Name: narrowed, Rights: policy.Rights{Class: "base", Paths: narrow}, Exports: []string{narrowed}}}
	return p
}

func shaped(app, code string, args []string, rights policy.Rights) policy.Policy {
	return policy.Policy{
		Schema: policy.Schema, App: app, Version: "0.1.0", Code: code, Argv: append([]string{program}, args...), Rights: rights,
		Limits: policy.Limits{CPUMilli: 1000, MemoryMB: 256, Pids: 128}, Exports: []string{"attack", "die"},
	}
}
