package nomadtest

import (
	"debug/buildinfo"
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

// MissingExec says what this machine lacks, beyond Missing, to run tasks by the driver exec, which gives each a file system
// and control groups of its own; it is empty when it lacks nothing.
func MissingExec() string {
	if why := Missing(); why != "" {
		return why
	}
	if os.Geteuid() != 0 {
		return "Nomad's driver exec is not tried: it takes root"
	}
	if _, err := os.ReadDir("/sys/fs/cgroup"); err != nil {
		return "Nomad's driver exec is not tried: it takes control groups: " + err.Error()
	}
	b, err := find()
	if err != nil {
		return err.Error()
	}
	info, err := buildinfo.ReadFile(b.nomad)
	if err != nil {
		return "" // not built in a way that tells: it is the user's own, and has it
	}
	for _, setting := range info.Settings {
		if setting.Key == "CGO_ENABLED" && setting.Value == "0" {
			return "Nomad's driver exec is not tried: " + b.nomad + " was built without cgo and lacks it; remove it and run .ci/fetch-nomad.sh where there is a C compiler"
		}
	}
	return ""
}

// Missing says what this machine lacks to run a cluster, and what to do; it is empty when it lacks nothing.
func Missing() string {
	if _, err := find(); err != nil {
		return "real Nomad is not here: " + err.Error()
	}
	return ""
}
