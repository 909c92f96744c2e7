package nomadtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hashicorp/nomad/api"
)

// What becomes of nodes. They are counted from 1: node n is called "n1", "n2", ….

// KillClient kills the agent of node n with SIGKILL. Its tasks live on.
func (c *Cluster) KillClient(n int) { c.clients[n-1].kill() }

// StopClient asks the agent of node n to end, as a service manager does, and waits for it. Its tasks live on.
func (c *Cluster) StopClient(n int) error { return c.clients[n-1].stop() }

// SuspendClient stops the agent of node n with SIGSTOP: to the server the node is lost after a while, though all that it
// runs goes on, as when a network parts them. ResumeClient ends it.
func (c *Cluster) SuspendClient(n int) error { return c.clients[n-1].suspend() }

// ResumeClient lets a suspended agent go on, and waits until its node is ready.
func (c *Cluster) ResumeClient(ctx context.Context, n int) error {
	if err := c.clients[n-1].resume(); err != nil {
		return err
	}
	return c.allReady(ctx)
}

// CrashNode ends the agent of node n and all that it runs, as a node that loses its power does.
func (c *Cluster) CrashNode(n int) error {
	a := c.clients[n-1]
	a.kill()
	return sweepMarked("NOMAD_ALLOC_DIR=" + filepath.Join(a.dir, "data") + "/")
}

// ReplaceNode ends node n as CrashNode does, and starts another of the same name that knows nothing of it, as where a
// machine was set up anew. The server goes on to know the old one, which is down.
func (c *Cluster) ReplaceNode(ctx context.Context, n int) error {
	if err := c.CrashNode(n); err != nil {
		return err
	}
	unmount(filepath.Join(c.clients[n-1].dir, "data"))
	if err := os.RemoveAll(filepath.Join(c.clients[n-1].dir, "data")); err != nil {
		return fmt.Errorf("forget what node n%d was: %w", n, err)
	}
	return c.StartClient(ctx, n)
}

// StartClient starts the agent of node n again, and waits until it is ready.
func (c *Cluster) StartClient(ctx context.Context, n int) error {
	if err := c.clients[n-1].start(); err != nil {
		return err
	}
	return c.allReady(ctx)
}

// Revive starts again the agents that have ended, whoever has ended them, and names them. It waits until the nodes are ready.
func (c *Cluster) Revive(ctx context.Context) (names []string, err error) {
	if c.server.ended() {
		if err := c.StartServer(ctx); err != nil {
			return nil, err
		}
		names = append(names, c.server.name)
	}
	for _, a := range c.clients {
		if !a.ended() {
			continue
		}
		if err := a.start(); err != nil {
			return names, err
		}
		names = append(names, a.name)
	}
	if len(names) == 0 {
		return nil, nil
	}
	return names, c.allReady(ctx)
}

// node gives node n as the server sees it: the newest of that name.
func (c *Cluster) node(n int) (*api.NodeListStub, *api.Client, error) {
	client, err := c.Client()
	if err != nil {
		return nil, nil, err
	}
	nodes, _, err := client.Nodes().List(nil)
	if err != nil {
		return nil, nil, err
	}
	var newest *api.NodeListStub
	for _, node := range nodes {
		if node.Name == c.clients[n-1].name && (newest == nil || node.CreateIndex > newest.CreateIndex) {
			newest = node
		}
	}
	if newest == nil {
		return nil, nil, fmt.Errorf("the server does not know node n%d", n)
	}
	return newest, client, nil
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

// Drain drains node n: batch jobs, as Kale's are, go on there until the deadline. 0 means that there is none, less than 0
// that it is now.
func (c *Cluster) Drain(n int, deadline time.Duration) error {
	return c.drain(n, &api.DrainOptions{DrainSpec: &api.DrainSpec{Deadline: deadline}})
}

// EndDrain takes a drain of node n back, or ends one that is over: it takes new work.
func (c *Cluster) EndDrain(n int) error {
	return c.drain(n, &api.DrainOptions{MarkEligible: true})
}

func (c *Cluster) drain(n int, opts *api.DrainOptions) error {
	node, client, err := c.node(n)
	if err == nil {
		_, err = client.Nodes().UpdateDrainOpts(node.ID, opts, nil)
	}
	return err
}

// PurgeDown makes the server forget the nodes that are down, as an administrator does with those that will not be back.
func (c *Cluster) PurgeDown() error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	nodes, _, err := client.Nodes().List(nil)
	if err != nil {
		return err
	}
	var all []error
	for _, node := range nodes {
		if node.Status == "down" || node.Status == "disconnected" {
			_, _, err := client.Nodes().Purge(node.ID, nil)
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// SuspendServer stops the server with SIGSTOP: it accepts connections and answers nothing, until ResumeServer.
func (c *Cluster) SuspendServer() error { return c.server.cmd.Process.Signal(syscall.SIGSTOP) }

// ResumeServer lets a suspended server go on.
func (c *Cluster) ResumeServer() error { return c.server.cmd.Process.Signal(syscall.SIGCONT) }
