package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthos/berth/host/image"
	"github.com/berthos/berth/host/machine"
	"github.com/berthos/berth/host/sandbox/choose"
)

func newDoctor(w World) *cobra.Command {
	var asJSON, accept bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Try what this host can enforce",
		Long: `Verifies the image, then tries every machine: boots it and has the enforcer do
everything that it does for an app, canaries included, except to let one execute.

--accept-native remembers that, on this host, machine "native" may be chosen by
itself. It is fast but has no VM: a fault in the host's kernel would break it.

Exit code 0 only if some machine enforces here.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return doctor(cmd.Context(), w, asJSON, accept)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the findings as JSON")
	cmd.Flags().BoolVar(&accept, "accept-native", false, "let auto choose the machine without a VM on this host")
	return cmd
}

// findings is what doctor found, as --json prints it.
type findings struct {
	OK             bool             `json:"ok"`
	Image          string           `json:"image_sha256,omitempty"`
	ImageVersion   string           `json:"image_version,omitempty"`
	ImageError     string           `json:"image_error,omitempty"`
	Machines       []machine.Result `json:"machines"`
	Auto           string           `json:"auto,omitempty"` // what auto chooses
	AutoReason     string           `json:"auto_reason,omitempty"`
	NativeAccepted bool             `json:"native_accepted"`
}

func doctor(ctx context.Context, w World, asJSON, accept bool) error {
	f, err := examine(ctx, w, accept)
	if asJSON {
		enc := json.NewEncoder(w.Out)
		enc.SetIndent("", "  ")
		if encErr := enc.Encode(f); encErr != nil {
			return encErr
		}
	} else {
		f.print(w.Out)
	}
	if err != nil {
		return &failure{code: ExitMachine, err: err}
	}
	return nil
}

// examine tries everything; its error says why nothing enforces here.
func examine(ctx context.Context, w World, accept bool) (findings, error) {
	f := findings{Machines: []machine.Result{}}
	img, err := verifiedImage()
	if err != nil {
		f.ImageError = err.Error()
		return f, err
	}
	f.Image, f.ImageVersion = img.Digest, img.Index.Version
	state, err := choose.OpenState(os.Getenv)
	if err != nil {
		return f, err
	}
	if accept {
		if err := state.AcceptNative(); err != nil {
			return f, err
		}
	}
	host := choose.Host{Image: img, State: state, Trying: func(what string) { fmt.Fprintln(w.Err, what+" …") }}
	if f.Machines, err = choose.Probe(ctx, host); err != nil {
		return f, err
	}
	for _, m := range f.Machines {
		f.OK = f.OK || m.OK
	}
	if f.NativeAccepted, err = state.NativeAccepted(); err != nil {
		return f, err
	}
	if !f.OK {
		return f, errors.New("no machine can enforce on this host")
	}
	if c, err := choose.Machine(ctx, host, choose.Auto); err != nil {
		f.AutoReason = err.Error()
	} else {
		f.Auto, f.AutoReason = c.Machine.Describe(), c.Reason
	}
	return f, nil
}

// verifiedImage opens the image and hashes everything in it.
func verifiedImage() (*image.Image, error) {
	img, err := openImage()
	if err != nil {
		return nil, err
	}
	return img, img.Verify()
}

func (f findings) print(out io.Writer) {
	if f.ImageError == "" {
		fmt.Fprintf(out, "ok    image: %s, index sha256 %s, kernel and root verified\n", f.ImageVersion, f.Image)
	}
	for _, m := range f.Machines {
		word := "ok   "
		if !m.OK {
			word = "no   "
		}
		name := m.Machine
		if m.Variant != "" {
			name += " (" + m.Variant + ")"
		}
		fmt.Fprintf(out, "%s %s: %s\n", word, name, m.Reason)
		fmt.Fprintf(out, "        boundary: %s\n", m.Boundary)
		for _, fact := range m.Facts {
			fmt.Fprintf(out, "        %s: %s\n", fact.Name, fact.Value)
		}
		for _, weak := range m.Weaker {
			fmt.Fprintf(out, "        weaker here: %s\n", weak)
		}
		if m.Hint != "" {
			fmt.Fprintf(out, "        hint: %s\n", m.Hint)
		}
	}
	switch {
	case f.Auto != "":
		fmt.Fprintf(out, "auto chooses %s: %s\n", f.Auto, f.AutoReason)
	case f.AutoReason != "":
		fmt.Fprintf(out, "auto chooses nothing: %s\n", f.AutoReason)
	}
	if f.OK && !f.NativeAccepted {
		fmt.Fprintln(out, "to let auto use the fast machine without a VM on this host: berth doctor --accept-native")
	}
}

// chooseMachine picks a machine by name for an image.
func chooseMachine(ctx context.Context, w World, name string, img *image.Image) (choose.Choice, error) {
	if !slices.Contains(choose.Names(), name) {
		return choose.Choice{}, fail(ExitUsage, "machines: "+strings.Join(choose.Names(), ", "), "cannot use machine %q: there is none of this name", name)
	}
	c, err := choose.Machine(ctx, choose.Host{Image: img, Trying: func(what string) { fmt.Fprintln(w.Err, what+" …") }}, name)
	if err != nil {
		return c, &failure{code: ExitMachine, err: err}
	}
	return c, nil
}
