package manifest

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	label   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	numeric = regexp.MustCompile(`^([0-9]+|0x[0-9a-f]*)$`)
)

// checkHostPort accepts host or host:port.
func checkHostPort(scope string) *Error {
	if strings.ContainsAny(scope, "[]") || strings.Count(scope, ":") > 1 {
		return notAddress(scope)
	}
	host, port, colon := strings.Cut(scope, ":")
	if fault := checkHost(host); fault != nil {
		return fault
	}
	if colon {
		return checkPort(port)
	}
	return nil
}

// checkHost accepts *, a name, or *. and a name; one spelling of each. A star
// stands for exactly one label, or alone for every public host.
func checkHost(host string) *Error {
	if host == "*" {
		return nil
	}
	if canonical := strings.TrimSuffix(strings.ToLower(host), "."); canonical != host && checkHost(canonical) == nil {
		return &Error{Msg: "the host is not in its canonical form", Hint: fmt.Sprintf("write %q", canonical)}
	}
	for _, r := range host {
		if r > 0x7e {
			return &Error{Msg: "the host has characters that are not ASCII", Hint: "write its ASCII form, which begins with xn--"}
		}
	}
	name, _ := strings.CutPrefix(host, "*.")
	labels := strings.Split(name, ".")
	last := labels[len(labels)-1]
	switch {
	case strings.Contains(name, "*"):
		return &Error{Msg: "* is not a part of a name", Hint: "only *.example.com (one label in place of the star) and * alone are patterns"}
	case len(host) > 253:
		return &Error{Msg: "the host has more than 253 characters"}
	case numeric.MatchString(last):
		return notAddress(host)
	case len(labels) < 2 && name != host:
		return &Error{Msg: fmt.Sprintf("%s covers a whole top-level domain", quote(host)), Hint: "write at least two labels after the star"}
	case len(labels) < 2:
		return &Error{Msg: fmt.Sprintf("%s is not a public host", quote(host)), Hint: "write a full name such as api.example.com"}
	}
	for _, l := range labels {
		if len(l) > 63 || !label.MatchString(l) {
			return &Error{Msg: fmt.Sprintf("%s is not a host", quote(host)), Hint: "labels of lower-case letters, digits and dashes, with dots between them"}
		}
	}
	if last == "localhost" {
		return &Error{Msg: fmt.Sprintf("%s is not a public host", quote(host)), Hint: "a sandbox never reaches the host's own loopback"}
	}
	return nil
}

func notAddress(scope string) *Error {
	return &Error{Msg: fmt.Sprintf("%s is an address, it must be a name", quote(scope)), Hint: "write the host's name, such as api.example.com or api.example.com:8443"}
}

// coversHost compares host[:port]. A scope without a port means 80 and 443.
func coversHost(wide, narrow string) bool {
	wideHost, widePort, _ := strings.Cut(wide, ":")
	narrowHost, narrowPort, _ := strings.Cut(narrow, ":")
	if widePort != narrowPort && (widePort != "" || narrowPort != "80" && narrowPort != "443") {
		return false
	}
	if wideHost == "*" || wideHost == narrowHost {
		return true
	}
	parent, star := strings.CutPrefix(wideHost, "*.")
	first, rest, dot := strings.Cut(narrowHost, ".")
	return star && dot && rest == parent && first != "*"
}

var (
	gitHubScope = regexp.MustCompile(`^[a-z][a-z_]*(:[a-z][a-z_]*)?$`)
	gitHubOwner = regexp.MustCompile(`^[A-Za-z0-9](-?[A-Za-z0-9])*$`)
	gitHubRepo  = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
)

func checkGitHubRead(scope string) *Error {
	what, where, at := strings.Cut(scope, "@")
	if !gitHubScope.MatchString(what) || len(what) > maxName {
		return &Error{Msg: fmt.Sprintf("%s is not a scope", quote(what)), Hint: "one of GitHub's areas, such as repos, issues, pulls or contents"}
	}
	if !at {
		return nil
	}
	owner, repo, slash := strings.Cut(where, "/")
	if !slash || len(owner) > 39 || !gitHubOwner.MatchString(owner) ||
		len(repo) > 100 || !gitHubRepo.MatchString(repo) || repo == "." || repo == ".." || strings.HasSuffix(repo, ".git") {
		return &Error{Msg: fmt.Sprintf("%s is not owner/repo", quote(where)), Hint: "write the repository as it stands in its address, such as octocat/hello-world"}
	}
	return nil
}

// checkGitHubWrite demands the repository: without it, one poisoned issue
// could have an app write to every repository that the token reaches.
func checkGitHubWrite(scope string) *Error {
	if fault := checkGitHubRead(scope); fault != nil {
		return fault
	}
	if !strings.Contains(scope, "@") {
		return &Error{Msg: "a write scope names its repository", Hint: fmt.Sprintf("write github:write:%s@owner/repo", scope)}
	}
	return nil
}

func coversGitHub(wide, narrow string) bool {
	return strings.HasPrefix(narrow, wide+"@")
}
