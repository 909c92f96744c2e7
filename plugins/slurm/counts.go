package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// seemsIdle says that Slurm counts GPUs of the node as used while its state and its CPUs say, in the same answer, that no job runs there: only suspended ones may hold any.
func (n node) seemsIdle() bool {
	return strings.Split(strings.TrimSuffix(n.state, "*"), "+")[0] == "IDLE" && !n.completing() && n.cpusUsed == 0 && n.used() > 0
}

func (n node) completing() bool { return slices.Contains(strings.Split(n.state, "+"), "COMPLETING") }

// checkCounts finds GPUs that Slurm counts as used though no job has them: Slurm (22.05) does that for ever after its controller was killed and has read an older state. A
// node is suspected once it seems idle, and from then on whatever runs there.
func (q *queue) checkCounts(ctx context.Context, nodes []node) error {
	q.mu.Lock()
	was := q.leaked
	q.mu.Unlock()
	leaked := map[string]int{}
	for i := range nodes {
		n := &nodes[i]
		key := n.cluster + "/" + n.name
		before := min(was[key], n.used())
		if before == 0 && !n.seemsIdle() {
			continue
		}
		n.leaked = before
		if !n.completing() {
			held, err := q.ctl.held(ctx, n.cluster, n.name)
			if err != nil && !errors.Is(err, errUntested) {
				return err
			}
			switch {
			case err != nil:
				n.leaked = 0
			case held.cpus == n.cpusUsed: // else not all jobs show, or some have begun or ended since
				n.leaked = max(0, n.used()-held.gpus)
			}
		}
		if n.leaked > 0 {
			leaked[key] = n.leaked
		}
	}
	q.mu.Lock()
	q.leaked = leaked
	q.mu.Unlock()
	return nil
}

// holding is what the jobs on a node have of it, those that show: CPUs, but for suspended jobs, and GPUs.
type holding struct{ cpus, gpus int }

func (c cli) held(ctx context.Context, cluster, node string) (sum holding, err error) {
	c = c.at(cluster)
	out, _, err := c.run(ctx, askTimeout, "", "squeue", "--noheader", "--nodelist="+node, "--states=RUNNING,SUSPENDED,COMPLETING", "--format=%A")
	if err != nil {
		return sum, err
	}
	for _, id := range strings.Fields(out) {
		out, _, err := c.run(ctx, askTimeout, "", "scontrol", "--details", "--oneliner", "show", "job", id)
		if err != nil {
			return sum, err
		}
		has := parseHolding(out, node)
		sum.cpus, sum.gpus = sum.cpus+has.cpus, sum.gpus+has.gpus
	}
	return sum, nil
}

// parseHolding reads from scontrol show job, with details and on one line, what the job has of a node: "… Nodes=n[1-2] CPU_IDs=0-1 Mem=100 GRES=gpu:h200:1(IDX:2) …".
func parseHolding(out, node string) (has holding) {
	here := false
	for word := range strings.FieldsSeq(out) {
		key, value, _ := strings.Cut(word, "=")
		switch {
		case key == "Nodes":
			here = slices.Contains(hosts(value), node)
		case here && key == "CPU_IDs" && !strings.Contains(out, "JobState="+stateSuspended):
			has.cpus += len(parseIndexes(value))
		case here && key == "GRES":
			has.gpus += countGPUs(value)
		}
	}
	return has
}

// countGPUs is how many a list of what a job has names, "gpu:h200:2(IDX:1-2),shard:1".
func countGPUs(gres string) (n int) {
	for _, m := range gresForm.FindAllStringSubmatch(gres, -1) {
		count, _ := strconv.Atoi(m[2]) // digits
		n += count
	}
	return n
}

// restHeld is what a job has, in the order of its nodes; with several of them it is not told which has the CPUs.
type restHeld struct {
	State restStrings `json:"job_state"`
	Nodes string      `json:"nodes"`
	CPUs  restNumber  `json:"cpus"`
	GRES  restStrings `json:"gres_detail"`
}

func (r *rest) held(ctx context.Context, _, node string) (sum holding, err error) {
	queue, err := everybodys[restHeld](ctx, r)
	for _, j := range queue {
		on := hosts(j.Nodes)
		state := j.State.state()
		switch {
		case !slices.Contains(on, node) || state != "RUNNING" && state != stateSuspended && state != "COMPLETING":
			continue
		case len(on) > 1:
			return sum, errUntested
		case state != stateSuspended:
			sum.cpus += int(j.CPUs.value)
		}
		for _, gres := range j.GRES {
			sum.gpus += countGPUs(gres)
		}
	}
	return sum, err
}

// miscounted says, with what helps, that Slurm counts GPUs of the node as used that no job has. Empty: it does not.
func (n node) miscounted() string {
	if n.leaked == 0 {
		return ""
	}
	has, back := "shows no job there that has any", "gives them back"
	if jobs := n.used() - n.leaked; jobs > 0 {
		has = fmt.Sprintf("the jobs there have %d", jobs)
		back = fmt.Sprintf("gives %d back", n.leaked)
	} else if n.leaked == 1 {
		back = "gives it back"
	}
	return fmt.Sprintf("Slurm counts %s of node %s as used, and %s: scontrol reconfigure, by an administrator, %s", gpuNoun(n.used()), n.name, has, back)
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
