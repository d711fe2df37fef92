package sandbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/berthos/berth/init/link"
)

// codeDigest is the digest of the code that an App names, as policies have it.
func (s *Sandbox) codeDigest(name string, a App) (string, error) {
	if a.InRoot == (a.Image != nil) {
		return "", errors.New("exactly one of code in the root file system, folder and image must be given")
	}
	if !a.InRoot {
		sum := sha256.Sum256(a.Image)
		return "sha256:" + hex.EncodeToString(sum[:]), nil
	}
	for _, have := range s.o.Image.Index.Apps {
		if have.Name == a.rootName(name) {
			return have.Code, nil
		}
	}
	return "", errors.New("the image has no app of this name")
}

// sendCode brings an app's code into the guest, if it is not in the root file
// system.
func (s *Sandbox) sendCode(ctx context.Context, spec appSpec) error {
	if spec.InRoot {
		return nil
	}
	stream, err := s.session.OpenStream(link.StreamHeader{
		Type: link.StreamCode, Size: int64(len(spec.Image)),
		SHA256: strings.TrimPrefix(spec.policy.Code, "sha256:"),
	})
	if err != nil {
		return err
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, stream.Reset)()
	if _, err := bytes.NewReader(spec.Image).WriteTo(stream); err != nil {
		// A guest that refuses answers before it has read everything.
		if refused := stream.ReceiveReply(); errors.Is(refused, link.ErrRefused) {
			err = refused
		}
		return fmt.Errorf("cannot send code: %w", err)
	}
	if err := stream.ReceiveReply(); err != nil {
		return fmt.Errorf("cannot send code: %w", err)
	}
	return nil
}

// startOf is the request to start a process.
func (s *Sandbox) startOf(a *app) (link.Start, error) {
	start := link.Start{
		App: a.policy.App, Worker: a.worker, Policy: a.Policy, UID: a.uid, GID: a.uid,
		ReadyMillis: a.ReadyMillis, Ablate: s.o.Ablate, Secrets: a.own.SecretsOf(a.Secrets),
	}
	if a.InRoot {
		start.CodeDir = "/apps/" + a.rootName(a.policy.App)
	}
	var err error
	start.Shares, err = s.sharesFor(a.policy.App, a.own.Rights)
	return start, err
}
