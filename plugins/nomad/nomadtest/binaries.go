package nomadtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Version is the Nomad that .ci/fetch-nomad.sh builds.
const Version = "1.11.3"

// binaries are the programs that a cluster is made of.
type binaries struct {
	nomad   string
	plugins string // the folder with fakegpu
}

func find() (binaries, error) {
	if runtime.GOOS != "linux" {
		return binaries{}, fmt.Errorf("the Nomad for tests runs on Linux, this is %s", runtime.GOOS)
	}
	base := os.Getenv("KALE_CACHE")
	if base == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return binaries{}, fmt.Errorf("find a cache folder: %w; set KALE_CACHE to one", err)
		}
		base = filepath.Join(user, "kale")
	}
	dir, err := filepath.Abs(filepath.Join(base, "nomad-"+Version))
	if err != nil {
		return binaries{}, err
	}
	b := binaries{nomad: filepath.Join(dir, "nomad"), plugins: filepath.Join(dir, "plugins")}
	if own := os.Getenv("KALE_NOMAD"); own != "" {
		b.nomad = own
	}
	for _, path := range []string{b.nomad, filepath.Join(b.plugins, "fakegpu")} {
		if _, err := exec.LookPath(path); err != nil {
			return binaries{}, fmt.Errorf("%w: run .ci/fetch-nomad.sh (Go is enough; 2 minutes, once), or set KALE_NOMAD to a nomad binary and run it for the fake GPUs", err)
		}
	}
	return b, nil
}

// Missing says what this machine lacks to run a cluster, and what to do; it is empty when it lacks nothing.
func Missing() string {
	if _, err := find(); err != nil {
		return "real Nomad is not here: " + err.Error()
	}
	return ""
}
