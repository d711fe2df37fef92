package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berthos/berth/host/image"
)

func newImage(w World) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "List and verify guest images",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var asJSON bool
	list := &cobra.Command{
		Use:   "list",
		Short: "Show the image that would be booted",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return imageList(w, asJSON) },
	}
	list.Flags().BoolVar(&asJSON, "json", false, "print the index as JSON")
	verify := &cobra.Command{
		Use:   "verify",
		Short: "Hash every artifact of the image and compare with its index",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return imageVerify(w) },
	}
	cmd.AddCommand(list, verify)
	return cmd
}

// openImage returns the image that this berth boots.
func openImage() (*image.Image, error) {
	where, err := image.Find(image.Search{})
	if err != nil {
		return nil, &failure{code: ExitMachine, err: err}
	}
	img, err := image.Open(where, image.Options{})
	if err != nil {
		return nil, &failure{code: ExitMachine, err: err}
	}
	return img, nil
}

func imageList(w World, asJSON bool) error {
	img, err := openImage()
	if err != nil {
		return err
	}
	if asJSON {
		enc := json.NewEncoder(w.Out)
		enc.SetIndent("", "  ")
		return enc.Encode(map[string]any{"index": img.Index, "sha256": img.Digest, "dir": img.Dir, "source": img.Source})
	}
	x := img.Index
	fmt.Fprintf(w.Out, "%s/%s %s  index sha256 %s\n", x.Name, x.Arch, x.Version, img.Digest)
	fmt.Fprintf(w.Out, "  from    %s\n", img.Source)
	fmt.Fprintf(w.Out, "  kernel  %s  %d bytes  sha256 %s\n", x.Kernel.File, x.Kernel.Size, x.Kernel.SHA256)
	fmt.Fprintf(w.Out, "  root    %s  %d bytes  sha256 %s\n", x.Root.File, x.Root.Size, x.Root.SHA256)
	fmt.Fprintf(w.Out, "  verity  root %s\n", x.Root.VerityRoot)
	for _, app := range x.Apps {
		fmt.Fprintf(w.Out, "  app     %s %s  %s\n", app.Name, app.Version, app.Code)
	}
	return nil
}

func imageVerify(w World) error {
	img, err := openImage()
	if err != nil {
		return err
	}
	if err := img.Verify(); err != nil {
		return &failure{code: ExitMachine, err: err}
	}
	fmt.Fprintf(w.Out, "%s/%s %s: index, kernel and root have the digests that %s names\n", img.Index.Name, img.Index.Arch, img.Index.Version, img.Digest)
	return nil
}
