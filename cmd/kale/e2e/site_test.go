package e2e_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/cmd/kale/chaos"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/plugins/local"
)

// site is where a job's processes run: a backend, and what the tests have to know of it beyond its contract. Workloads are processes of this machine that
// the tests may look for in /proc and signal, whatever started them: they must be recognisable (see belongs) by the variable that kale's processes inherit,
// or by a folder of the rig in their arguments or as their working directory; and KALE_ALLOC_DIR must have the workload's ID as one of its parts.
type site struct {
	backend string // its name in the job file
	block   string // what stands between its braces, lines that end
	look    func(r *rig) backend.Backend
	// files is a pattern for a file of every workload, by its path below the workload's folder.
	files func(r *rig, name string) string
	// start starts a cluster for one rig, which ends with its test, and gives the site that it is; nil where nothing has to be started.
	start func(r *rig) *site
	// spec gives the specification that the job's processes are given; nil where it lies in files.
	spec func(r *rig) ([]byte, error)
	gpus int // of a worker

	// faults are what the site can bring about besides chaos.Everywhere.
	faults map[chaos.Kind]strikes
	// tend looks after what the cluster itself may do amiss in a storm; nil where nothing is known of.
	tend func(c *storm)
	// shares are the cards of those faults in a deck.
	shares []chaos.Share
	// always: its storm is among the tests of every day.
	always bool
}

// strikes brings a fault about, and gives what it hit and what undoes it (nil where nothing has to). void says that it cannot be done just now and is to
// be tried again.
type strikes func(c *storm, f chaos.Fault) (what string, undo func() error, void bool)

// here is this machine, by the backend that comes with Kale.
var here = &site{
	backend: "local", always: true,
	look: func(*rig) backend.Backend { return local.New(nil) },
	files: func(r *rig, name string) string {
		return filepath.Join(r.stateDir(), "local", "backend-local", "jobs", r.name(), "*", name)
	},
	faults: supervised, shares: []chaos.Share{{Kind: chaos.KillSupervisor, Number: 1}},
}

// example is this machine, by the backend of examples/backend-processes.
var example = &site{
	backend: "processes", block: "    slots = 16\n",
	look: func(r *rig) backend.Backend {
		c, err := backend.Launch(r.t.Context(), slog.New(slog.DiscardHandler), filepath.Join(r.bins.dir, "kale-backend-processes"), backend.Options{})
		if err != nil {
			r.t.Fatal(err)
		}
		return c
	},
	files: func(r *rig, name string) string {
		return filepath.Join(r.stateDir(), "processes", "backend-processes", jobName, "*-g*", name)
	},
	faults: supervised, shares: []chaos.Share{{Kind: chaos.KillSupervisor, Number: 1}},
}

// supervised is what can be done where each process is the child of its supervisor: it is killed, and its process with it, by the kernel's hand. Only the
// scheduler starts them again.
var supervised = map[chaos.Kind]strikes{
	chaos.KillSupervisor: func(c *storm, f chaos.Fault) (what string, undo func() error, void bool) {
		all := trainees(c.dir)
		if len(all) == 0 {
			return "", nil, true
		}
		p := all[f.Of(len(all))]
		supervisor := parent(p.pid)
		if !p.lives() || !c.send(supervisor, syscall.SIGKILL) {
			return "", nil, true
		}
		return fmt.Sprintf("%s, process %d, and its supervisor, %d", p.id, p.pid, supervisor), nil, false
	},
}

// proxyServers puts a proxy in front of each of the job's two servers, by a trainer that listens and advertises accordingly.
func (r *rig) proxyServers() {
	r.t.Helper()
	script := "#!/bin/sh\ncase \"$1 $3\" in\n"
	r.proxies = map[int]*chaos.Proxy{}
	for i := range 2 {
		p, err := chaos.OpenProxy("127.0.0.1:0")
		if err != nil {
			r.t.Fatal(err)
		}
		r.proxies[i] = p
		behind := quietPort(r.t)
		p.Lead(behind)
		script += fmt.Sprintf("'ps %d') set -- \"$@\" --listen %s --advertise %s;;\n", i, behind, p.Addr())
	}
	script += "esac\nexec '" + filepath.Join(r.bins.dir, "kale-trainer") + "' \"$@\"\n"
	r.trainer = filepath.Join(r.dir, "proxied-trainer")
	if err := os.WriteFile(r.trainer, []byte(script), 0o700); err != nil {
		r.t.Fatal(err)
	}
}

// quietPort finds a port that is free now and that the system gives nobody by itself: a server that is killed comes back to it.
func quietPort(t *testing.T) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000))
		if ln, err := net.Listen("tcp", addr); err == nil {
			_ = ln.Close() // it is free again
			return addr
		}
	}
	t.Fatal("no port from 20000 to 29999 is free")
	return ""
}

// disk is a file system for one folder, which can be full. Root gets a real one; for others the folder can only be made such that nothing can be written.
type disk struct {
	t     *testing.T
	dir   string
	mount bool
}

const diskSize = 512 << 20 // bytes; of memory, as far as they are used

func newDisk(t *testing.T, dir string) *disk {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	err := unix.Mount("kale-e2e", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", diskSize))
	if err != nil {
		t.Logf("no file system of its own for the checkpoints (%v): where they cannot be written, it is for lack of permission and not of space", err)
	}
	return &disk{t: t, dir: dir, mount: err == nil}
}

// fill leaves no byte free. What runs may free some and take it again.
func (d *disk) fill() (what string) {
	if !d.mount {
		d.permit(0o500)
		return "nothing can be written to the checkpoints: permission denied"
	}
	for range 1000 {
		var st unix.Statfs_t
		if err := unix.Statfs(d.dir, &st); err != nil {
			d.t.Fatalf("fill the disk of the checkpoints: %v", err)
		}
		used := int64(st.Blocks-st.Bfree) * st.Bsize
		err := unix.Mount("kale-e2e", d.dir, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%d", used))
		if err == nil {
			return fmt.Sprintf("the disk of the checkpoints is full, at %d KiB", used>>10)
		}
		if err != unix.EINVAL { // more was written meanwhile
			d.t.Fatalf("fill the disk of the checkpoints: %v", err)
		}
	}
	d.t.Fatal("the disk of the checkpoints could not be filled: it grows all the time")
	return ""
}

// free takes fill back.
func (d *disk) free() {
	if !d.mount {
		d.permit(0o700)
		return
	}
	if err := unix.Mount("kale-e2e", d.dir, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%d", diskSize)); err != nil {
		d.t.Fatalf("free the disk of the checkpoints: %v", err)
	}
}

// permit changes what may be done in every folder of it.
func (d *disk) permit(mode os.FileMode) {
	_ = filepath.WalkDir(d.dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = os.Chmod(path, mode)
		}
		return err // what is removed meanwhile needs no permission
	})
}

func (d *disk) close() {
	if d.mount {
		if err := unix.Unmount(d.dir, 0); err != nil {
			d.t.Errorf("unmount the checkpoints: %v", err)
			_ = unix.Unmount(d.dir, unix.MNT_DETACH) // the folder must be removed
		}
		return
	}
	d.permit(0o700)
}

// unmountBelow takes down what tests that were killed left mounted.
func unmountBelow(root string) {
	raw, _ := os.ReadFile("/proc/self/mounts") // not there: nothing can be mounted
	for _, line := range strings.Split(string(raw), "\n") {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], root+"/") {
			if err := unix.Unmount(f[1], unix.MNT_DETACH); err != nil {
				fmt.Println("  ", err)
			}
		}
	}
}
