package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/cmd/kale/chaos"
	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
)

// nomadShares are the cards of what only a Nomad brings about.
var nomadShares = []chaos.Share{
	{Kind: chaos.KillController, Number: 2},
	{Kind: chaos.KillAgent, Number: 1},
	{Kind: chaos.LoseNode, Number: 1},
	{Kind: chaos.DrainNode, Number: 1},
	{Kind: chaos.LateSubmit, Number: 2},
	{Kind: chaos.CancelWork, Number: 1},
	{Kind: chaos.Preempt, Number: 1},
	{Kind: chaos.FillCluster, Number: 1},
}

// nomadFaults are what can be done to a Nomad, and by its other users.
func nomadFaults(c *nomadtest.Cluster, client *api.Client, relay *chaos.Relay) map[chaos.Kind]strikes {
	faults := map[chaos.Kind]strikes{}
	for kind, strike := range map[chaos.Kind]func(*nomadStorm, chaos.Fault) (string, func() error, bool){
		chaos.KillController: (*nomadStorm).killServer,
		chaos.KillAgent:      (*nomadStorm).killAgent,
		chaos.LoseNode:       (*nomadStorm).loseNode,
		chaos.DrainNode:      (*nomadStorm).drainNode,
		chaos.LateSubmit:     (*nomadStorm).lateSubmit,
		chaos.CancelWork:     (*nomadStorm).cancelWork,
		chaos.Preempt:        (*nomadStorm).preempt,
		chaos.FillCluster:    (*nomadStorm).fill,
	} {
		faults[kind] = func(k *storm, f chaos.Fault) (string, func() error, bool) {
			return strike(&nomadStorm{storm: k, nomad: c, client: client, relay: relay}, f)
		}
	}
	return faults
}

// allowPreemption lets jobs of a higher priority take the places of others.
func allowPreemption(client *api.Client) error {
	now, _, err := client.Operator().SchedulerGetConfiguration(nil)
	if err != nil {
		return err
	}
	now.SchedulerConfig.PreemptionConfig.BatchSchedulerEnabled = true
	_, _, err = client.Operator().SchedulerSetConfiguration(now.SchedulerConfig, nil)
	return err
}

// nomadStorm is a storm on a Nomad.
type nomadStorm struct {
	*storm
	nomad  *nomadtest.Cluster
	client *api.Client // one: Nomad takes a hundred connections of one host, and each client keeps its own
	relay  *chaos.Relay
}

// nomadServer is what a fault takes that keeps the server from answering, or needs that it does.
const nomadServer = "the Nomad server"

var errNoServer = errors.New("the Nomad server is away")

// askWithin bounds one question to the server.
const askWithin = 5 * time.Second

// ask gives the options of one question to the server, past the relay, unless the server is away.
func (c *nomadStorm) ask() (*api.QueryOptions, func(), error) {
	if c.busy[nomadServer] {
		return nil, nil, errNoServer
	}
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	return (&api.QueryOptions{}).WithContext(ctx), cancel, nil
}

// running gives the job's own allocations that run, of Nomad jobs whose names contain a word, ordered by name.
func (c *nomadStorm) running(word string) []*api.AllocationListStub {
	q, done, err := c.ask()
	if err != nil {
		return nil
	}
	defer done()
	all, _, err := c.client.Allocations().List(q)
	if err != nil {
		return nil // it is tried again
	}
	var out []*api.AllocationListStub
	for _, a := range all {
		if strings.HasPrefix(a.JobID, "kale-"+jobName+"-") && strings.Contains(a.JobID, word) && a.ClientStatus == api.AllocClientStatusRunning && a.DesiredStatus == api.AllocDesiredStatusRun {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b *api.AllocationListStub) int { return strings.Compare(a.JobID+a.ID, b.JobID+b.ID) })
	return out
}

// killServer kills the server, and starts it again.
func (c *nomadStorm) killServer(chaos.Fault) (what string, undo func() error, void bool) {
	if !c.take(nomadServer) {
		return "", nil, true
	}
	c.nomad.KillServer()
	return nomadServer, c.freeing(nomadServer, func() {
		if err := c.nomad.StartServer(context.Background()); err != nil {
			c.fatalf("%v", err)
		}
	}), false
}

// killAgent kills a node's client, and starts it again. What it runs lives on.
func (c *nomadStorm) killAgent(f chaos.Fault) (what string, undo func() error, void bool) {
	if !c.take(nomadServer) { // nodes come back to a server that answers
		return "", nil, true
	}
	n := 1 + f.Of(nomadNodes)
	c.nomad.KillClient(n)
	return fmt.Sprintf("the client on node n%d", n), c.nodeReturns(n), false
}

// loseNode takes a node's power, and gives it back.
func (c *nomadStorm) loseNode(f chaos.Fault) (what string, undo func() error, void bool) {
	if !c.take(nomadServer) {
		return "", nil, true
	}
	n := 1 + f.Of(nomadNodes)
	if err := c.nomad.CrashNode(n); err != nil {
		c.fatalf("%v", err)
	}
	return fmt.Sprintf("node n%d and all that ran on it", n), c.nodeReturns(n), false
}

func (c *nomadStorm) nodeReturns(n int) func() error {
	return c.freeing(nomadServer, func() {
		if err := c.nomad.StartClient(context.Background(), n); err != nil {
			c.fatalf("%v", err)
		}
	})
}

// drainNode takes a node out of use: what runs there has half of the fault's time to leave.
func (c *nomadStorm) drainNode(f chaos.Fault) (what string, undo func() error, void bool) {
	n := 1 + f.Of(nomadNodes)
	name := fmt.Sprintf("node n%d", n)
	if c.busy[nomadServer] || !c.take(name) {
		return "", nil, true
	}
	if err := c.nomad.Drain(n, f.For/2); err != nil {
		c.busy[name] = false
		return "", nil, true
	}
	return fmt.Sprintf("%s, by %v from now", name, f.For/2), func() error {
		if c.busy[nomadServer] {
			return errNoServer
		}
		if err := c.endDrain(n); err != nil {
			return err
		}
		c.busy[name] = false
		return nil
	}, false
}

// endDrain gives a node back.
func (c *nomadStorm) endDrain(n int) error {
	q, done, err := c.ask()
	if err != nil {
		return err
	}
	defer done()
	nodes, _, err := c.client.Nodes().List(q)
	for _, node := range nodes {
		if err == nil && node.Name == fmt.Sprintf("n%d", n) {
			_, err = c.client.Nodes().UpdateDrainOpts(node.ID, &api.DrainOptions{MarkEligible: true}, nil)
		}
	}
	return err
}

// cancelWork stops one of the job's allocations, which Nomad then starts again, or its whole Nomad job, as a person would.
func (c *nomadStorm) cancelWork(f chaos.Fault) (what string, undo func() error, void bool) {
	all := c.running("")
	q, done, err := c.ask()
	if err != nil || len(all) == 0 {
		return "", nil, true
	}
	defer done()
	a := all[f.Of(len(all))]
	if f.Pick>>32%2 == 0 {
		if _, err := c.client.Allocations().Stop(&api.Allocation{ID: a.ID}, q); err != nil {
			return "", nil, true
		}
		return "the allocation of " + a.JobID, nil, false
	}
	what, void = c.deregister(a.JobID)
	return what, nil, void
}

// deregister stops a Nomad job.
func (c *nomadStorm) deregister(job string) (what string, void bool) {
	_, done, err := c.ask()
	if err != nil {
		return "", true
	}
	defer done()
	if _, _, err := c.client.Jobs().Deregister(job, false, nil); err != nil {
		return "", true
	}
	return "Nomad job " + job, false
}

// foreign registers work of others, which holds GPUs until it is stopped: so many groups of so many GPUs, on one node or (0) on any.
func (c *nomadStorm) foreign(f chaos.Fault, priority, groups, gpus, node int) (undo func() error, err error) {
	_, done, err := c.ask()
	if err != nil {
		return nil, err
	}
	defer done()
	id := fmt.Sprintf("foreign-%d", f.Number)
	job := api.NewBatchJob(id, id, "global", priority)
	if node > 0 {
		job.Constrain(api.NewConstraint("${node.unique.name}", "=", fmt.Sprintf("n%d", node)))
	}
	count, cpu, memory := uint64(gpus), 1, 10
	task := api.NewTask("hold", "raw_exec").SetConfig("command", "/bin/sleep").SetConfig("args", []string{"1000"})
	task.Resources = &api.Resources{CPU: &cpu, MemoryMB: &memory, Devices: []*api.RequestedDevice{{Name: "gpu", Count: &count}}}
	job.AddTaskGroup(api.NewTaskGroup("hold", groups).AddTask(task))
	if _, _, err := c.client.Jobs().Register(job, nil); err != nil {
		return nil, err
	}
	return func() error {
		_, done, err := c.ask()
		if err != nil {
			return err
		}
		defer done()
		_, _, err = c.client.Jobs().Deregister(id, true, nil)
		return err
	}, nil
}

// preempt lets others have all GPUs of a node on which workers run, by a higher priority.
func (c *nomadStorm) preempt(f chaos.Fault) (what string, undo func() error, void bool) {
	first := f.Of(nomadNodes)
	for i := range nomadNodes {
		n := 1 + (first+i)%nomadNodes
		var names []string
		for _, a := range c.running("worker") {
			if a.NodeName == fmt.Sprintf("n%d", n) {
				names = append(names, a.JobID)
			}
		}
		if len(names) == 0 {
			continue
		}
		undo, err := c.foreign(f, 90, 1, stormWorkers, n)
		if err != nil {
			return "", nil, true
		}
		return fmt.Sprintf("all GPUs of node n%d, from %v", n, names), undo, false
	}
	return "", nil, true
}

// fill lets others have every free GPU, and wait for those that come free before the job does; and a worker is stopped, which then finds no place.
func (c *nomadStorm) fill(f chaos.Fault) (what string, undo func() error, void bool) {
	if len(c.running("worker")) == 0 || !c.take("places") {
		return "", nil, true
	}
	free, err := c.foreign(f, 55, nomadNodes*stormWorkers, 1, 0) // a higher priority, but none that preempts
	if err != nil {
		c.busy["places"] = false
		return "", nil, true
	}
	return "every GPU; and " + c.stopWorker(f), func() error {
		if err := free(); err != nil {
			return err
		}
		c.busy["places"] = false
		return nil
	}, false
}

// stopWorker stops the Nomad job of a worker, so that it is submitted again.
func (c *nomadStorm) stopWorker(f chaos.Fault) (what string) {
	if all := c.running("worker"); len(all) > 0 {
		if what, void := c.deregister(all[f.Of(len(all))].JobID); !void {
			return what
		}
	}
	return "no worker ran any more"
}

// lateSubmit makes the next registration of a job one that Nomad accepts and whose answer is lost; and a worker is stopped, so that there is one.
func (c *nomadStorm) lateSubmit(f chaos.Fault) (what string, undo func() error, void bool) {
	if len(c.running("worker")) == 0 || !c.take("submission") {
		return "", nil, true
	}
	hang := []time.Duration{0, 20 * time.Second}[f.Of(2)]
	c.relay.Lose(func(r *http.Request) bool { return r.Method == http.MethodPut && r.URL.Path == "/v1/jobs" }, hang)
	again := func() string { return c.stopWorker(f) }
	return fmt.Sprintf("the answer to the next registration, after %v; %s", hang, again()), c.untilTaken(func() bool { return !c.relay.Losing() }, again), false
}
