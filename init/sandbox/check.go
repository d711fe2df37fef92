package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/berthos/berth/init/policy"
)

// maxSpec bounds the JSON of a Spec: a policy in base64, secrets that may be all
// escapes, and some shares.
const maxSpec = 2*policy.MaxBytes + 6*policy.MaxSecretBytes + 1<<20

// supervisorID is the uid and gid of the supervisor in vm and native-root.
const supervisorID = 900

// readJSON reads one JSON value of at most maxSpec bytes from a descriptor, up
// to its end, and closes it.
func readJSON(fd uintptr, into any) error {
	f := os.NewFile(fd, "json")
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxSpec+1))
	if err != nil {
		return err
	}
	if len(raw) > maxSpec {
		return fmt.Errorf("more than %d bytes", maxSpec)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if dec.More() {
		return errors.New("more than one value")
	}
	return nil
}

// check refuses a Spec that PID 1 has no reason to send, and returns its policy.
func (s Spec) check() (policy.Policy, error) {
	p, err := policy.Parse(s.Policy)
	if err == nil {
		err = p.Check()
	}
	if err == nil {
		p, err = p.For(s.Worker)
	}
	if err != nil {
		return policy.Policy{}, err
	}
	if Required(s.Profile) == nil {
		return policy.Policy{}, fmt.Errorf("profile %q is not known", s.Profile)
	}
	if err := s.checkIdentity(); err != nil {
		return policy.Policy{}, err
	}
	if !cleanAbs(s.Code) || s.Code == "/" {
		return policy.Policy{}, fmt.Errorf("code folder %q is not an absolute, clean path", s.Code)
	}
	if s.Cgroups < 0 || s.Cgroups > 32 {
		return policy.Policy{}, fmt.Errorf("%d cgroup descriptors", s.Cgroups)
	}
	if s.Hostname == "" || len(s.Hostname) > 64 {
		return policy.Policy{}, fmt.Errorf("hostname %q has not 1 to 64 bytes", s.Hostname)
	}
	for _, share := range s.Shares {
		if err := share.check(); err != nil {
			return policy.Policy{}, err
		}
	}
	if err := s.checkGiven(p.Rights); err != nil {
		return policy.Policy{}, err
	}
	return p, checkAblate(s.Ablate)
}

// maxInvoke bounds the apps that one process may call: each is a descriptor.
const maxInvoke = 64

// checkGiven compares what comes with a process with what its rights name.
func (s Spec) checkGiven(r policy.Rights) error {
	var callees []string
	for _, i := range r.Invoke {
		callees = append(callees, i.App)
	}
	switch {
	case len(s.Invoke) > maxInvoke:
		return fmt.Errorf("%d apps to call, at most %d can be", len(s.Invoke), maxInvoke)
	case !slices.Equal(s.Invoke, callees):
		return fmt.Errorf("sockets for calls of %q, the policy names %q", s.Invoke, callees)
	}
	for _, name := range r.Secrets {
		if ownVariable(name) {
			return fmt.Errorf("secret %q would take the place of one of Berth's own variables", name)
		}
	}
	return r.CheckSecrets(s.Secrets)
}

func (s Spec) checkIdentity() error {
	reserved := s.UID == 0 || s.GID == 0 || s.UID == supervisorID || s.GID == supervisorID
	switch {
	case s.Profile == ProfileNativeUser && (s.UID != 0 || s.GID != 0):
		return fmt.Errorf("uid %d and gid %d: profile %s has only 0, which is the user", s.UID, s.GID, s.Profile)
	case s.Profile != ProfileNativeUser && reserved:
		return fmt.Errorf("uid %d or gid %d is not for apps", s.UID, s.GID)
	}
	return nil
}

// aliasTaken are places that an alias may neither be nor lie below.
var aliasTaken = []string{"/app", "/dev", "/proc", "/sys", "/etc", "/run", "/workspace", "/context", "/scratch"}

func (s Share) check() error {
	if !cleanAbs(s.Path) || (s.Path != "/workspace" && !below(s.Path, "/workspace")) {
		return fmt.Errorf("share path %q is not at or below /workspace", s.Path)
	}
	if !cleanAbs(s.Source) || s.Source == "/" {
		return fmt.Errorf("source %q of share %s is not an absolute, clean path", s.Source, s.Path)
	}
	for _, a := range s.Aliases {
		taken := slices.ContainsFunc(aliasTaken, func(t string) bool { return a == t || below(a, t) })
		if !cleanAbs(a) || a == "/" || a == "/tmp" || taken {
			return fmt.Errorf("share %s can not appear at %q as well", s.Path, a)
		}
	}
	return nil
}

func cleanAbs(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && !strings.ContainsRune(p, 0)
}

// below says whether p lies below dir; dir itself does not.
func below(p, dir string) bool {
	return p != dir && strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
