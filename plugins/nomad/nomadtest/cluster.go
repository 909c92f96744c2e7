package nomadtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Options says what a cluster is like.
type Options struct {
	Clients int    // nodes, named n1, n2, …; 0 means 1
	GPUs    int    // on each node
	ACL     bool   // with access control; Token has the management token then
	Dir     string // keeps everything; empty: a temporary folder, removed by Stop
}

// Cluster is a Nomad of one server and some clients. Methods are for one goroutine at a time.
type Cluster struct {
	dir     string
	own     bool // Stop removes dir
	opts    Options
	server  *agent
	clients []*agent
	token   string
	private bool // the clients have mount namespaces of their own
}

const (
	readyWithin = 90 * time.Second
	readyPoll   = 50 * time.Millisecond
)

// Start starts a cluster and waits until every node is ready.
func Start(ctx context.Context, opts Options) (_ *Cluster, err error) {
	bin, err := find()
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: opts.Dir, opts: opts}
	if c.opts.Clients == 0 {
		c.opts.Clients = 1
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
	c.private = os.Geteuid() == 0 && exec.Command("unshare", "-m", "--propagation", "private", "true").Run() == nil
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
	for i := range c.clients {
		if err := c.clients[i].start(); err != nil {
			return nil, err
		}
	}
	return c, c.allReady(ctx)
}

// configure writes the agents' files.
func (c *Cluster) configure(bin binaries) error {
	ports, err := freePorts(3 + c.opts.Clients)
	if err != nil {
		return err
	}
	for _, dir := range []string{c.Shared(), c.Private()} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
		if err := os.Chmod(dir, 0o777); err != nil { // whatever the umask
			return err
		}
	}
	env := append(os.Environ(), envMark+"="+c.dir)
	c.server, err = c.newAgent("server", ports[0], bin, env, fmt.Sprintf(serverConfig, ports[0], ports[1], ports[2], c.opts.ACL))
	if err != nil {
		return err
	}
	for i := range c.opts.Clients {
		name := fmt.Sprintf("n%d", i+1)
		port := ports[3+i]
		text := fmt.Sprintf(clientConfig, port, ports[1], c.opts.ACL, bin.plugins, c.opts.GPUs, "GPU-"+name)
		a, err := c.newAgent(name, port, bin, env, text)
		if err != nil {
			return err
		}
		if c.private {
			own := filepath.Join(a.dir, "private")
			if err := os.Mkdir(own, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
				return err
			}
			script := `mount --bind "$1" "$2" && shift 2 && exec "$@"`
			a.argv = append([]string{"unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", own, c.Private()}, a.argv...)
		}
		c.clients = append(c.clients, a)
	}
	return nil
}

func (c *Cluster) newAgent(name string, port int, bin binaries, env []string, config string) (*agent, error) {
	a := &agent{name: name, dir: filepath.Join(c.dir, name), address: fmt.Sprintf("http://127.0.0.1:%d", port), env: env}
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		return nil, err
	}
	config = fmt.Sprintf("name = %q\ndata_dir = %q\n", name, filepath.Join(a.dir, "data")) + config
	file := filepath.Join(a.dir, "agent.hcl")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	a.argv = []string{bin.nomad, "agent", "-config", file}
	return a, nil
}

const common = `
bind_addr = "127.0.0.1"
log_level = "WARN"
disable_update_check = true
leave_on_terminate = false
advertise {
  http = "127.0.0.1"
  rpc  = "127.0.0.1"
  serf = "127.0.0.1"
}
consul {
  auto_advertise      = false
  server_auto_join    = false
  client_auto_join    = false
}
`

const serverConfig = common + `
ports {
  http = %d
  rpc  = %d
  serf = %d
}
server {
  enabled          = true
  bootstrap_expect = 1
  heartbeat_grace  = "2s"
  min_heartbeat_ttl = "1s"
  max_heartbeats_per_second = 1000
  raft_multiplier  = 1
}
acl {
  enabled = %t
}
`

const clientConfig = common + `
ports {
  http = %d
}
client {
  enabled            = true
  servers            = ["127.0.0.1:%d"]
  network_interface  = "lo"
  cpu_total_compute  = 64000
  memory_total_mb    = 64000
  min_dynamic_port   = 20000
  gc_interval        = "1h"
  options = {
    "driver.allowlist"     = "raw_exec"
    "fingerprint.denylist" = "env_aws,env_gce,env_azure,env_digitalocean,consul,vault,cni,bridge,landlock,secrets_plugins"
  }
}
acl {
  enabled = %t
}
plugin_dir = %q
plugin "raw_exec" {
  config {
    enabled = true
  }
}
plugin "fakegpu" {
  config {
    count  = %d
    prefix = %q
  }
}
`

// Address is the URL of the server's API.
func (c *Cluster) Address() string { return c.server.address }

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
	return api.NewClient(&api.Config{Address: c.Address(), SecretID: c.token})
}

// KillServer kills the server with SIGKILL.
func (c *Cluster) KillServer() { c.server.kill() }

// SuspendServer stops the server with SIGSTOP: it accepts connections and answers nothing, until ResumeServer.
func (c *Cluster) SuspendServer() error { return c.server.cmd.Process.Signal(syscall.SIGSTOP) }

// ResumeServer lets a suspended server go on.
func (c *Cluster) ResumeServer() error { return c.server.cmd.Process.Signal(syscall.SIGCONT) }

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

// KillClient kills the agent of node n (from 1) with SIGKILL. Its tasks live on.
func (c *Cluster) KillClient(n int) { c.clients[n-1].kill() }

// CrashNode ends the agent of node n and all that it runs, as a node that loses its power does.
func (c *Cluster) CrashNode(n int) error {
	a := c.clients[n-1]
	a.kill()
	return sweep("NOMAD_ALLOC_DIR=" + filepath.Join(a.dir, "data") + "/")
}

// StartClient starts the agent of node n again, and waits until it is ready.
func (c *Cluster) StartClient(ctx context.Context, n int) error {
	if err := c.clients[n-1].start(); err != nil {
		return err
	}
	return c.allReady(ctx)
}

// node gives node n as the server sees it.
func (c *Cluster) node(n int) (*api.NodeListStub, *api.Client, error) {
	client, err := c.Client()
	if err != nil {
		return nil, nil, err
	}
	nodes, _, err := client.Nodes().List(nil)
	if err != nil {
		return nil, nil, err
	}
	for _, node := range nodes {
		if node.Name == c.clients[n-1].name {
			return node, client, nil
		}
	}
	return nil, nil, fmt.Errorf("the server does not know node n%d", n)
}

// NodeStatus gives what the server says of node n: "ready", "down", "disconnected", "initializing".
func (c *Cluster) NodeStatus(n int) (string, error) {
	node, _, err := c.node(n)
	if err != nil {
		return "", err
	}
	return node.Status, nil
}

// SetEligible lets node n take new work, or not.
func (c *Cluster) SetEligible(n int, eligible bool) error {
	node, client, err := c.node(n)
	if err == nil {
		_, err = client.Nodes().ToggleEligibility(node.ID, eligible, nil)
	}
	return err
}

// Drain drains node n: what runs there is stopped once the deadline is over.
func (c *Cluster) Drain(n int, deadline time.Duration) error {
	node, client, err := c.node(n)
	if err == nil {
		_, err = client.Nodes().UpdateDrainOpts(node.ID, &api.DrainOptions{DrainSpec: &api.DrainSpec{Deadline: deadline}}, nil)
	}
	return err
}

// Namespace makes a namespace.
func (c *Cluster) Namespace(name string) error {
	client, err := c.Client()
	if err == nil {
		_, err = client.Namespaces().Register(&api.Namespace{Name: name}, nil)
	}
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
		ready := map[string]bool{}
		for _, n := range nodes {
			gpus := 0
			if n.NodeResources != nil {
				for _, d := range n.NodeResources.Devices {
					gpus += len(d.Instances)
				}
			}
			driver := n.Drivers["raw_exec"]
			if n.Status == "ready" && gpus == c.opts.GPUs && driver != nil && driver.Healthy {
				ready[n.Name] = true
			}
		}
		for _, a := range c.clients {
			if a.cmd != nil && !ready[a.name] {
				return fmt.Errorf("node %s is not", a.name)
			}
		}
		return nil
	})
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

// Stop ends the cluster and all that it ran. It is idempotent.
func (c *Cluster) Stop() error {
	for _, a := range c.clients {
		a.kill()
	}
	if c.server != nil {
		c.server.kill()
	}
	err := sweep(envMark + "=" + c.dir + "\x00")
	unmount(c.dir)
	if c.own {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	return err
}
