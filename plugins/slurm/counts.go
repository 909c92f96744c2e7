package slurm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kale-sched/kale/core/backend"
)

// used is how many of the node's GPUs Slurm counts as used.
func (n node) used() (used int) {
	for _, g := range n.gpus {
		if g.used {
			used++
		}
	}
	return used
}

// markSuspended marks the nodes with suspended jobs, if there is one of which it matters.
func (q *queue) markSuspended(ctx context.Context, nodes []node) error {
	if !slices.ContainsFunc(nodes, func(n node) bool { return n.miscounted() != "" }) {
		return nil
	}
	held, err := q.ctl.suspended(ctx)
	for i, n := range nodes {
		nodes[i].suspended = slices.Contains(held, n.name)
	}
	return err
}

func (c cli) suspended(ctx context.Context) (nodes []string, err error) {
	for _, c := range c.each() {
		out, _, err := c.run(ctx, askTimeout, "", "squeue", "--noheader", "--states=SUSPENDED", "--format=%N")
		if err != nil {
			return nil, err
		}
		for _, list := range strings.Fields(out) {
			nodes = append(nodes, hosts(list)...)
		}
	}
	return nodes, nil
}

func (r *rest) suspended(ctx context.Context) (nodes []string, err error) {
	queue, err := everybodys[struct {
		State restStrings `json:"job_state"`
		Nodes string      `json:"nodes"`
	}](ctx, r)
	for _, j := range queue {
		if j.State.state() == stateSuspended {
			nodes = append(nodes, hosts(j.Nodes)...)
		}
	}
	return nodes, err
}

// miscounted says, with what helps, that Slurm counts GPUs of the node as used while no job is there: its state and its CPUs say so in the same answer, as they do where there are suspended jobs alone. Slurm (22.05) does
// that for ever after its controller was killed and has read an older state. Empty: it does not.
func (n node) miscounted() string {
	words := strings.Split(strings.TrimSuffix(n.state, "*"), "+")
	if words[0] != "IDLE" || slices.Contains(words, "COMPLETING") || n.cpusUsed > 0 || n.used() == 0 || n.suspended {
		return ""
	}
	back := "gives them back"
	if n.used() == 1 {
		back = "gives it back"
	}
	return fmt.Sprintf("Slurm counts %s of node %s as used, and shows no job there that has any: scontrol reconfigure, by an administrator, %s", gpuNoun(n.used()), n.name, back)
}

// needs says how many GPUs a process that waits for something to come free needs, and how many there are, with what is wrong in that count; empty where it needs
// none, or the nodes are not known.
func (j *job) needs(ctx context.Context, v view) string {
	need := j.set.need(v.record.Resources)
	waits := v.inQueue && v.row.phase() == phaseQueued && (v.behind != nil || v.row.reason == reasonResources || v.row.reason == reasonPriority)
	if need.gpus == 0 || !waits {
		return ""
	}
	nodes, err := j.queue.lookWithin(ctx, drainSeen)
	if err != nil {
		return ""
	}
	free, total, wrong := 0, 0, ""
	for _, n := range nodes {
		if !j.set.suits(n) {
			continue
		}
		for _, g := range n.gpus {
			if j.set.gpuType != "" && g.model != j.set.gpuType {
				continue
			}
			if total++; !g.used {
				free++
			}
		}
		if fault := n.miscounted(); fault != "" {
			wrong += "; " + fault
		}
	}
	where := ""
	if need.gpus > 1 {
		where = " on one node"
	}
	return fmt.Sprintf("needs %s%s, %d of %d free%s", gpuNoun(need.gpus), where, free, total, wrong)
}

// faults are the nodes' wrong counts, of those that the job may use.
func (s settings) faults(nodes []node) (out []string) {
	for _, n := range nodes {
		if fault := n.miscounted(); fault != "" && s.allows(n) {
			out = append(out, fault)
		}
	}
	return out
}

// tell adds to a pending status what the process needs.
func (j *job) tell(ctx context.Context, v view, st *backend.Status) {
	if st.State != backend.StatePending {
		return
	}
	if needs := j.needs(ctx, v); needs != "" {
		st.Reason += "; " + needs
	}
}
