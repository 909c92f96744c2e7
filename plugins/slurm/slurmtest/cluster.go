// Package slurmtest starts a private Slurm on this machine: one slurmctld and several slurmd on loopback, with fake GPUs, in a temporary folder, as
// root or not, in about two seconds. Input: Options. Output: a Cluster, which tests break on purpose (KillController, KillNode, Drain) and which ends
// what it started, by process id, and leaves nothing.
//
// A fake GPU is a character device, as Slurm demands: jobs get CUDA_VISIBLE_DEVICES, and nothing computes. Every node has the folder Shared in common.
// As root each node also lives in a mount namespace of its own, in which the one path Private is another folder on every node: what a job writes there
// is not seen by the others nor by the test, as on a real cluster. Slurm's accounts come with slurmdbd over a MariaDB that the cluster starts too.
package slurmtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options say how large the cluster is. The zero value of a field takes its default.
type Options struct {
	Nodes       int      // default 2
	GPUsPerNode int      // default 2; negative for none
	CPUs        int      // of each node, default 16: they are counted, not bound
	MemoryMB    int      // of each node, default 1000 for each CPU
	Conf        []string // more lines for slurm.conf; one that begins with PartitionName= replaces the default partition
	Dir         string   // a folder that exists; default: a new temporary one, removed at the end
	Accounting  bool     // slurmdbd over a database of its own, so that sacct tells of jobs that slurmctld has forgotten (MissingAccounting)
	Rest        bool     // slurmrestd on a unix socket, with tokens (MissingRest)
	Name        string   // ClusterName, default "kale"
	Beside      *Cluster // another cluster with accounts, which this one shares, so that clients reach either with --clusters; it is closed after this one

	chosen func(c *Cluster) // is told when the ports of c are, and nobody listens on them yet; nil: nobody
}

// Cluster is a Slurm that runs. Its methods may be called from any goroutine.
type Cluster struct {
	dir     string
	own     bool // the folder was made here
	opt     Options
	private bool // each node has a mount namespace of its own
	port    int
	ports   []int

	starter         *starter
	dismiss         func() // ends the guard; nil before it was started
	mu              sync.Mutex
	control         *daemon
	nodes           []*daemon
	database, dbd   *daemon // with Accounting
	restd           *daemon // with Rest
	dbPort, dbdPort int
	starting        bool // it is not known yet whether its daemons have their ports
	closed          bool
}

// programs are what a private Slurm is made of, and the clients.
var programs = []string{"slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo"}

// Missing says what to install for Start to work, "" when all is there.
func Missing() string {
	for _, p := range programs {
		if _, err := find(p); err != nil {
			return p + " is not here: apt-get install slurm-wlm (or your distribution's slurm, slurm-slurmctld and slurm-slurmd)"
		}
	}
	return ""
}

// find looks for a program in $PATH and where daemons live.
func find(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/slurm/sbin", "/opt/slurm/bin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is neither in $PATH nor in /usr/sbin", name)
}

// Start starts a cluster and returns when all its nodes are idle. The caller closes it. Where somebody else took one of its ports before its daemon listened
// there, it is started once more, on others.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if why := Missing(); why != "" {
		return nil, errors.New("start a private Slurm: " + why)
	}
	orDefault := func(p *int, value int) {
		if *p == 0 {
			*p = value
		}
	}
	orDefault(&o.Nodes, 2)
	orDefault(&o.GPUsPerNode, 2)
	orDefault(&o.CPUs, 16)
	orDefault(&o.MemoryMB, 1000*o.CPUs)
	if o.Name == "" {
		o.Name = "kale"
	}
	c, err := start(ctx, o)
	if errors.Is(err, errTaken) {
		c, err = start(ctx, o)
	}
	return c, err
}

// start is Start without another try.
func start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{dir: o.Dir, opt: o, starting: true}
	if c.dir == "" {
		dir, err := os.MkdirTemp("", "kale-slurm-")
		if err != nil {
			return nil, fmt.Errorf("start a private Slurm: %w", err)
		}
		c.dir, c.own = dir, true
	}
	c.nodes = make([]*daemon, o.Nodes)
	c.starter = newStarter()
	err := c.lay()
	if err == nil {
		if o.chosen != nil {
			o.chosen(c)
		}
		err = c.guard()
	}
	if err == nil && o.Accounting {
		err = c.startAccounting(ctx)
	} else if err == nil && o.Beside != nil {
		err = c.enrol(ctx)
	}
	if err == nil {
		err = c.StartController(ctx)
	}
	if err == nil && o.Rest {
		err = c.startRest(ctx)
	}
	for n := 1; n <= o.Nodes && err == nil; n++ {
		err = c.StartNode(n)
	}
	if err == nil {
		err = c.wait(ctx, "all nodes are idle", c.allIdle)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("start a private Slurm: %w%s", err, c.complaints()), c.Close())
		if errors.Is(err, errTaken) && !c.own {
			err = errors.Join(err, c.clear())
		}
		return nil, err
	}
	c.starting = false
	return c, nil
}

// Conf is the path of slurm.conf: what SLURM_CONF must name.
func (c *Cluster) Conf() string { return confIn(c.dir) }

func confIn(dir string) string { return filepath.Join(dir, "slurm.conf") }

// Bin is a folder with Slurm's clients for this cluster, which need no SLURM_CONF: what a backend block's bin_dir may name.
func (c *Cluster) Bin() string { return filepath.Join(c.dir, "bin") }

// Shared is the folder that all nodes and the test have in common.
func (c *Cluster) Shared() string { return filepath.Join(c.dir, "shared") }

// Private is a path under which every node has a folder of its own. Private folders that are really apart need root: Apart tells.
func (c *Cluster) Private() string { return filepath.Join(c.dir, "private") }

// Apart reports whether Private is another folder on every node.
func (c *Cluster) Apart() bool { return c.private }

// NodePrivate is where node n's private folder is seen from outside.
func (c *Cluster) NodePrivate(n int) string { return filepath.Join(c.nodeDir(n), "private") }

// Env is the environment for Slurm's clients: that of this process, with SLURM_CONF.
func (c *Cluster) Env() []string { return append(os.Environ(), "SLURM_CONF="+c.Conf()) }

// Node is the name of node n, from 1.
func Node(n int) string { return "n" + strconv.Itoa(n) }

func (c *Cluster) nodeDir(n int) string { return filepath.Join(c.dir, "nodes", Node(n)) }

// clientTimeout bounds one call of a client.
const clientTimeout = time.Minute

// Run runs one of Slurm's clients against the cluster and gives what it printed.
func (c *Cluster) Run(ctx context.Context, name string, args ...string) (string, error) {
	path, err := find(name)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = c.Env()
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Drain takes node n out of use: what runs there goes on, nothing new starts.
func (c *Cluster) Drain(ctx context.Context, n int) error {
	_, err := c.Run(ctx, "scontrol", "update", "NodeName="+Node(n), "State=DRAIN", "Reason=test")
	return err
}

// Resume puts node n into use again after Drain, or after KillNode and StartNode.
func (c *Cluster) Resume(ctx context.Context, n int) error {
	_, err := c.Run(ctx, "scontrol", "update", "NodeName="+Node(n), "State=RESUME")
	return err
}

// Fail declares node n dead to slurmctld, which otherwise takes SlurmdTimeout to notice: jobs there become NODE_FAIL.
func (c *Cluster) Fail(ctx context.Context, n int) error {
	_, err := c.Run(ctx, "scontrol", "update", "NodeName="+Node(n), "State=DOWN", "Reason=test")
	return err
}

func (c *Cluster) allIdle(ctx context.Context) error {
	out, err := c.Run(ctx, "sinfo", "--noheader", "--Node", "-o", "%N %T")
	if err != nil {
		return err
	}
	idle := map[string]bool{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 2 && f[1] == "idle" {
			idle[f[0]] = true
		}
	}
	if len(idle) != c.opt.Nodes {
		return fmt.Errorf("%d of %d nodes are idle: %s", len(idle), c.opt.Nodes, strings.Join(strings.Fields(out), " "))
	}
	return nil
}

// patience bounds each wait for the cluster; it needs a small part of it.
const patience = 2 * time.Minute

func (c *Cluster) wait(ctx context.Context, what string, cond func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if c.starting {
		var end func()
		ctx, end = c.untilTaken(ctx)
		defer end()
	}
	for {
		err := cond(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); errors.Is(cause, errTaken) {
				err = cause
			}
			return fmt.Errorf("wait until %s: %w", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
