//go:build linux

// Package files owns a sandbox's view of one folder of the host: a 9P2000.L
// server over one connection, confined to that folder.
//
// The guest is not trusted, its kernel included. Whatever bytes arrive, the
// folder is all they reach (package beneath), what they cost is bounded
// before it is spent, and no link that the guest made is followed.
package files

import (
	"context"
	"fmt"
	"io"

	"github.com/berthos/berth/host/files/beneath"
)

// Serve answers the requests on conn until it ends or ctx is done, and closes
// it. It returns nil when the guest closed the connection between messages.
// All descriptors are closed when it returns.
func Serve(ctx context.Context, conn io.ReadWriteCloser, o Options) error {
	defer conn.Close()
	o, names, err := o.checked()
	if err != nil {
		return err
	}
	owner, err := check(o.Root)
	if err != nil {
		return err
	}
	all, err := budget()
	if err != nil {
		return err
	}
	root, err := beneath.Open(owner.path, o.MaxOpen, all)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := owner.confirm(root); err != nil {
		return err
	}
	names.aliases = owner.aliases

	s := newSession(conn, root, o, names, owner)
	stop := context.AfterFunc(ctx, s.abort)
	defer stop()
	err = s.run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("cannot go on serving %s: %w", o.Root, err)
	}
	return nil
}
