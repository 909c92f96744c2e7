package nomadtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Options says what a cluster is like.
type Options struct {
	Clients int               // nodes, named n1, n2, …; 0 means 1
	GPUs    int               // on each node
	ACL     bool              // with access control; Token has the management token then
	TLS     bool              // the agents speak TLS only, and ask who speaks to them for a certificate: CACert, ClientCert
	Drivers []string          // that run tasks; nil means raw_exec. exec takes root and a kernel with control groups, docker takes root and Docker's programs
	Extra   []string          // paths of programs and libraries that tasks of exec and docker find in /bin, beside the shell and its tools
	Volumes map[string]string // by their names, the folders that are host volumes of every client, beside "shared"
	Dir     string            // keeps everything; empty: a temporary folder, removed by Stop
}

// Cluster is a Nomad of one server and some clients. Methods are for one goroutine at a time.
type Cluster struct {
	program string
	dir     string
	own     bool // Stop removes dir
	opts    Options
	server  *agent
	clients []*agent
	docker  *agent // nil without the driver docker
	token   string
	private bool // the clients have mount namespaces of their own
}

const (
	readyWithin = 3 * time.Minute
	readyPoll   = 50 * time.Millisecond
)

// Start starts a cluster and waits until every node is ready.
func Start(ctx context.Context, opts Options) (_ *Cluster, err error) {
	bin, err := find()
	if err != nil {
		return nil, err
	}
	c := &Cluster{program: bin.nomad, dir: opts.Dir, opts: opts}
	if c.opts.Clients == 0 {
		c.opts.Clients = 1
	}
	if len(c.opts.Drivers) == 0 {
		c.opts.Drivers = []string{"raw_exec"}
	}
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "kale-nomad-"); err != nil {
			return nil, fmt.Errorf("make the cluster's folder: %w", err)
		}
		c.own = true
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return nil, err
	}
	// Docker would not see what clients mount in a namespace of their own, such as the tasks' secrets.
	c.private = os.Geteuid() == 0 && !slices.Contains(c.opts.Drivers, "docker") && exec.Command("unshare", "-m", "--propagation", "private", "true").Run() == nil
	if err := c.configure(bin); err != nil {
		return nil, err
	}
	if err := c.StartServer(ctx); err != nil {
		return nil, err
	}
	if opts.ACL {
		if err := c.bootstrap(ctx); err != nil {
			return nil, err
		}
	}
	if slices.Contains(c.opts.Drivers, "docker") {
		if err := c.startDocker(ctx, c.server.env); err != nil {
			return nil, err
		}
	}
	for i := range c.clients {
		if err := c.clients[i].start(); err != nil {
			return nil, err
		}
	}
	return c, c.allReady(ctx)
}

// Address is the URL of the server's API.
func (c *Cluster) Address() string { return c.server.address }

// Program is the path of the nomad that runs it, which is not in the PATH.
func (c *Cluster) Program() string { return c.program }

// Token is the management token, empty without access control.
func (c *Cluster) Token() string { return c.token }

// Shared is the folder that all nodes share, under one path.
func (c *Cluster) Shared() string { return filepath.Join(c.dir, "shared") }

// Private is a path under which each node has a folder of its own, where IsPrivate says so.
func (c *Cluster) Private() string { return filepath.Join(c.dir, "private") }

// IsPrivate reports whether the nodes' file systems differ in Private: it takes root and unshare.
func (c *Cluster) IsPrivate() bool { return c.private }

// Client gives a client of the server's API, with the management token.
func (c *Cluster) Client() (*api.Client, error) {
	conf := &api.Config{Address: c.Address(), SecretID: c.token, TLSConfig: &api.TLSConfig{}}
	if c.opts.TLS {
		conf.TLSConfig.CACert = c.CACert()
		conf.TLSConfig.ClientCert, conf.TLSConfig.ClientKey = c.ClientCert()
	}
	return api.NewClient(conf)
}

// KillServer kills the server with SIGKILL.
func (c *Cluster) KillServer() { c.server.kill() }

// StartServer starts the server, for the first time or again, and waits until it leads and can sign.
func (c *Cluster) StartServer(ctx context.Context) error {
	if err := c.server.start(); err != nil {
		return err
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	return c.poll(ctx, c.server, "the server is ready", func(q *api.QueryOptions) error {
		leader, err := client.Status().Leader()
		if err == nil && leader == "" {
			err = errors.New("there is no leader")
		}
		if err != nil || c.opts.ACL && c.token == "" {
			return err
		}
		keys, _, err := client.Keyring().List(q)
		if err == nil && len(keys) == 0 {
			err = errors.New("there is no key yet")
		}
		return err
	})
}

// Namespace makes a namespace.
func (c *Cluster) Namespace(name string) error {
	client, err := c.Client()
	if err == nil {
		_, err = client.Namespaces().Register(&api.Namespace{Name: name}, nil)
	}
	return err
}

// Clear ends and purges all jobs of a namespace: what a test that has failed left running, so that those after it have the nodes to themselves.
func (c *Cluster) Clear(namespace string) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	jobs, _, err := client.Jobs().List(&api.QueryOptions{Namespace: namespace})
	for _, j := range jobs {
		_, _, failed := client.Jobs().Deregister(j.ID, true, &api.WriteOptions{Namespace: namespace})
		err = errors.Join(err, failed)
	}
	return err
}

// SetPreemption lets jobs of high priority take the places of batch jobs of low priority, or not, which is Nomad's default.
func (c *Cluster) SetPreemption(on bool) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	now, _, err := client.Operator().SchedulerGetConfiguration(nil)
	if err != nil {
		return err
	}
	now.SchedulerConfig.PreemptionConfig.BatchSchedulerEnabled = on
	_, _, err = client.Operator().SchedulerSetConfiguration(now.SchedulerConfig, nil)
	return err
}

func (c *Cluster) bootstrap(ctx context.Context) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	return c.poll(ctx, c.server, "access control is set up", func(*api.QueryOptions) error {
		token, _, err := client.ACLTokens().Bootstrap(nil)
		if err == nil {
			c.token = token.SecretID
		}
		return err
	})
}

// allReady waits until every node whose agent runs is ready, with its GPUs.
func (c *Cluster) allReady(ctx context.Context) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	return c.poll(ctx, c.clients[0], "all nodes are ready", func(q *api.QueryOptions) error {
		q.Params = map[string]string{"resources": "true"}
		nodes, _, err := client.Nodes().List(q)
		if err != nil {
			return err
		}
		lacks := map[string]string{}
		for _, n := range nodes {
			if why := c.lacks(n); lacks[n.Name] == "" || why == "" { // of several of that name one is enough
				lacks[n.Name] = cmp.Or(why, "nothing")
			}
		}
		for _, a := range c.clients {
			if why := cmp.Or(lacks[a.name], "it has not registered"); a.cmd != nil && !a.suspended && why != "nothing" {
				return fmt.Errorf("node %s is not: %s", a.name, why)
			}
		}
		return nil
	})
}

// lacks says what a node is not ready for; empty when it is.
func (c *Cluster) lacks(n *api.NodeListStub) string {
	if n.Status != "ready" {
		return "it is " + n.Status
	}
	for _, name := range c.opts.Drivers {
		switch d := n.Drivers[name]; {
		case d == nil:
			return "it has no driver " + name
		case !d.Healthy:
			return fmt.Sprintf("its driver %s says %q", name, d.HealthDescription)
		}
	}
	gpus := 0
	if n.NodeResources != nil {
		for _, d := range n.NodeResources.Devices {
			gpus += len(d.Instances)
		}
	}
	if gpus != c.opts.GPUs {
		return fmt.Sprintf("it has %d GPUs", gpus)
	}
	return ""
}

// poll waits until cond gives nil. The log of the agent explains a failure.
func (c *Cluster) poll(ctx context.Context, a *agent, what string, cond func(*api.QueryOptions) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		q := (&api.QueryOptions{}).WithContext(ctx)
		err := cond(q)
		if err == nil {
			return nil
		}
		if a.cmd == nil { // another one is waited for
			a = c.server
		}
		select {
		case <-a.done:
			return fmt.Errorf("the Nomad agent %s in %s has ended; its log ends with:\n%s", a.name, c.dir, strings.TrimSpace(a.tail()))
		case <-ctx.Done():
			return fmt.Errorf("the Nomad in %s: it never came that %s: %w; the log of %s ends with:\n%s", c.dir, what, err, a.name, strings.TrimSpace(a.tail()))
		case <-time.After(readyPoll):
		}
	}
}

// EndLeftover ends all that a cluster has run whose folder this is and whose agents have ended, as they do with the process that started them. It leaves the folder.
func EndLeftover(dir string) error {
	err := sweepMarked(envMark + "=" + dir + "\x00")
	// Containers descend from Docker's shims and have an environment of their own.
	err = errors.Join(err, sweep("processes of the control group "+cgroup(dir), func() []int { return membersOf(cgroup(dir)) }))
	unmount(dir)
	return errors.Join(err, removeCgroups(cgroup(dir)))
}

// Stop ends the cluster and all that it ran. It is idempotent.
func (c *Cluster) Stop() error {
	for _, a := range c.clients {
		a.kill()
	}
	for _, a := range []*agent{c.server, c.docker} {
		if a != nil {
			a.kill()
		}
	}
	err := EndLeftover(c.dir)
	if c.own {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	return err
}
