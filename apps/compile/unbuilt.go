package compile

import (
	"fmt"

	"github.com/berthos/berth/apps/manifest"
)

const notStarted = "is valid, but this version of berth does not enforce it yet; the app is not started"

// unbuiltCapability stops the start of an app that asks for something nothing
// enforces: it would run without the right it needs, or with no limit to it.
func (c *compiler) unbuiltCapability(of manifest.Capability) {
	c.fail(of.Pos, "remove the line, or wait for a version that enforces it", "%s %s", of, notStarted)
}

// unbuilt reports the keys that nothing acts on yet: those that ask for
// something are errors, those that ask for nothing are notes.
func (c *compiler) unbuilt() {
	m := c.m
	hint := "remove the key, or wait for a version that has it"
	stop := func(asked bool, key, what string) {
		if asked {
			c.fail(m.At(key), hint, "%s is valid, but this version of berth does not have it yet; the app is not started", what)
		}
	}
	stop(m.Runtime != manifest.RuntimeNone, "runtime", fmt.Sprintf("runtime: %s", m.Runtime))
	stop(len(m.OnInstall) > 0, "on_install", "on_install with commands")
	stop(m.Governs, "governs", "governs: true")
	stop(m.Expose.Browser, "expose.browser", "expose.browser: true")
	stop(m.Expose.Terminal, "expose.terminal", "expose.terminal: true")
	stop(m.Expose.Preview, "expose.preview", "expose.preview: true")
	if m.Resources.GPU > 0 {
		c.fail(m.At("resources.gpu"), "remove the key", "resources.gpu: %d can not be given: no machine of berth passes a GPU through, and none could be kept to one app; the app is not started", m.Resources.GPU)
	}
	for _, s := range m.Secrets {
		if s.For != "" {
			c.fail(s.Pos, hint, "secret %s: for and header are valid, but this version of berth does not add secrets to requests yet; the app is not started", s.Name)
		}
	}
	if len(m.OnAgentReady) > 0 {
		c.note(m.At("on_agent_ready"), "on_agent_ready has no effect: nothing ever runs it")
	}
	if m.Exempt {
		c.note(m.At("governance.exempt"), "governance.exempt has no effect: no app governs others yet")
	}
}
