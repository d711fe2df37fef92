package boot

import (
	"os"

	"github.com/berthos/berth/init/policy"
)

func appCgroup(app string, limits policy.Limits) ([]*os.File, func() error, error) {
	return nil, func() error { return nil }, nil
}
