package manifest

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is the namespace and action of a capability.
type Kind string

// The kinds. Each has a grammar for its scope, in the table kinds.
const (
	FilesystemRead    Kind = "filesystem:read"
	FilesystemWrite   Kind = "filesystem:write"
	NetworkConnect    Kind = "network:connect"
	NetworkBind       Kind = "network:bind"
	NetworkHost       Kind = "network:host"
	NetworkPeer       Kind = "network:peer"
	BrowserNavigate   Kind = "browser:navigate"
	BrowserScreenshot Kind = "browser:screenshot"
	GitHubRead        Kind = "github:read"
	GitHubWrite       Kind = "github:write"
	TerminalAttach    Kind = "terminal:attach"
	AppInvoke         Kind = "app:invoke"
	ContextPublish    Kind = "context:publish"
	ContextSubscribe  Kind = "context:subscribe"
)

// Capability is one thing that an app may do. Every capability has exactly one
// spelling, so two are equal if their kind and scope are.
type Capability struct {
	Pos
	Kind  Kind
	Scope string
}

func (c Capability) String() string { return string(c.Kind) + ":" + c.Scope }

// Port returns the port of a NetworkConnect or NetworkBind capability, else 0.
func (c Capability) Port() uint16 {
	if c.Kind != NetworkConnect && c.Kind != NetworkBind {
		return 0
	}
	port, _ := strconv.ParseUint(c.Scope, 10, 16)
	return uint16(port)
}

// kindOf describes a kind: the grammar of its scope as people read it, the
// check of a scope, and whether one scope covers another that differs.
type kindOf struct {
	kind   Kind
	form   string
	check  func(scope string) *Error
	covers func(wide, narrow string) bool
}

func kinds() []kindOf {
	return []kindOf{
		{FilesystemRead, "<path>", checkPath, coversPath},
		{FilesystemWrite, "<path>", checkPath, coversPath},
		{NetworkConnect, "<port>", checkPort, nil},
		{NetworkBind, "<port>", checkPort, nil},
		{NetworkHost, "<host>[:<port>]", checkHostPort, coversHost},
		{NetworkPeer, "<name>", checkPeer, nil},
		{BrowserNavigate, "<host>[:<port>]", checkHostPort, coversHost},
		{BrowserScreenshot, "*", checkStar, nil},
		{GitHubRead, "<scope>[@<owner>/<repo>]", checkGitHubRead, coversGitHub},
		{GitHubWrite, "<scope>@<owner>/<repo>", checkGitHubWrite, nil},
		{TerminalAttach, "*", checkStar, nil},
		{AppInvoke, "<app>[.<export>]", checkInvoke, coversInvoke},
		{ContextPublish, "<topic>", checkTopic, coversTopic},
		{ContextSubscribe, "<topic>", checkTopic, coversTopic},
	}
}

func describe(k Kind) (kindOf, bool) {
	for _, of := range kinds() {
		if of.kind == k {
			return of, true
		}
	}
	return kindOf{}, false
}

// ParseCapability reads namespace:action:scope. The error is of type Error,
// without a place.
func ParseCapability(text string) (Capability, error) {
	c, fault := parseCapability(text)
	if fault != nil {
		return Capability{}, *fault
	}
	return c, nil
}

func parseCapability(text string) (Capability, *Error) {
	if len(text) > maxScope {
		return Capability{}, &Error{Msg: fmt.Sprintf("a capability of %d bytes, at most %d are read", len(text), maxScope)}
	}
	namespace, rest, _ := strings.Cut(text, ":")
	action, scope, three := strings.Cut(rest, ":")
	kind := Kind(namespace + ":" + action)
	of, known := describe(kind)
	if !known {
		return Capability{}, unknownKind(text, namespace, action)
	}
	if !three {
		return Capability{}, &Error{Msg: fmt.Sprintf("capability %s has no scope", quote(text)), Hint: fmt.Sprintf("write %s:%s", kind, of.form)}
	}
	if fault := of.check(scope); fault != nil {
		fault.Msg = fmt.Sprintf("capability %s: %s", quote(text), fault.Msg)
		if fault.Hint == "" {
			fault.Hint = fmt.Sprintf("the form is %s:%s", kind, of.form)
		}
		return Capability{}, fault
	}
	return Capability{Kind: kind, Scope: scope}, nil
}

// unknownKind names the nearest thing that does exist.
func unknownKind(text, namespace, action string) *Error {
	var namespaces, actions, all []string
	for _, of := range kinds() {
		n, a, _ := strings.Cut(string(of.kind), ":")
		if len(namespaces) == 0 || namespaces[len(namespaces)-1] != n {
			namespaces = append(namespaces, n)
		}
		if n == namespace {
			actions = append(actions, a)
		}
		all = append(all, string(of.kind))
	}
	switch near := nearest(namespace+":"+action, all); {
	case near != "":
		return &Error{Msg: fmt.Sprintf("unknown capability %s", quote(text)), Hint: fmt.Sprintf("did you mean %q?", near)}
	case len(actions) > 0:
		return &Error{Msg: fmt.Sprintf("capability %s: unknown action %s", quote(text), quote(action)), Hint: namespace + " has " + strings.Join(actions, ", ")}
	}
	return &Error{Msg: fmt.Sprintf("capability %s: unknown namespace %s", quote(text), quote(namespace)), Hint: oneOf(namespace, namespaces)}
}

// Covers reports whether c allows everything that o does.
func (c Capability) Covers(o Capability) bool {
	if c.Kind != o.Kind && (c.Kind != FilesystemWrite || o.Kind != FilesystemRead) {
		return false
	}
	of, known := describe(c.Kind)
	return known && (c.Scope == o.Scope || of.covers != nil && of.covers(c.Scope, o.Scope))
}

func (d *decoder) capabilities(n node, what string) []Capability {
	list := []Capability{}
	ports := map[Kind]int{}
	d.list(n, what, maxCapabilities, func(_ int, n node) {
		text, ok := d.capabilityText(n)
		if !ok {
			return
		}
		c, fault := parseCapability(text)
		if fault != nil {
			d.fail(n.pos, fault.Hint, "%s", fault.Msg)
			return
		}
		c.Pos = n.pos
		list = append(list, c)
		if ports[c.Kind]++; c.Port() != 0 && ports[c.Kind] == maxPorts+1 {
			d.fail(n.pos, "", "more than %d ports of %s", maxPorts, c.Kind)
		}
	})
	return list
}

// capabilityText reads one item of a list of capabilities. An item such as
// "network: connect" is a mapping to YAML and deserves its own hint.
func (d *decoder) capabilityText(n node) (string, bool) {
	if n.kind == kindMap {
		d.fail(n.pos, "no space after the colons; in { } put the capability in quotes", "a capability is a mapping, it must be text of the form namespace:action:scope")
		return "", false
	}
	if n.kind != kindText {
		d.wrong(n, "a capability", "text of the form namespace:action:scope")
		return "", false
	}
	return n.text, true
}
