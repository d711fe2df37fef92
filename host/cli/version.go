package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/sdk/protocol"
)

func newVersion(w World) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of berth, its formats and its image",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			fmt.Fprintf(w.Out, "berth %s (%s/%s)\n", w.Version, runtime.GOOS, runtime.GOARCH)
			fmt.Fprintf(w.Out, "link %d, policy %d, app protocol %d\n", link.Version, policy.Schema, protocol.Version)
			img, err := openImage()
			if err != nil {
				fmt.Fprintf(w.Out, "image none: %v\n", err)
				return nil
			}
			fmt.Fprintf(w.Out, "image %s/%s %s, index sha256 %s\n", img.Index.Name, img.Index.Arch, img.Index.Version, img.Digest)
			return nil
		},
	}
}
