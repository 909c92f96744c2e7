package slurm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// room is what is free on the cluster for new workloads, after what waits already; a nil room is not known.
type room struct {
	nodes    []spot
	waiting  int         // workloads of the job that wait and do not fit now
	excluded []exclusion // nodes that the job is kept off
}

// spot is a node of the room.
type spot struct {
	node
	suits bool           // for the job that the room was made for
	held  map[int]string // who holds a GPU, by index: running or about to
	kept  int            // of those GPUs, what is free still, for what waits
	own   int            // of kept, what is for the job that the room was made for
}

// captured is one consistent look at queue, nodes and folders.
type captured struct {
	nodes []node
	views map[*job][]view
}

// capture looks at the nodes between two looks at the queue that agree on what waits, so that nothing is counted twice or not at all.
func (s *slurm) capture(ctx context.Context, q *queue) (captured, error) {
	var jobs []*job
	for _, j := range s.allJobs() {
		if j.queue == q {
			jobs = append(jobs, j)
		}
	}
	var c captured
	for try := 0; ; try++ {
		before := q.poll(ctx, 0)
		if before.err != nil {
			return c, unasked("look at the queue", before.err)
		}
		var err error
		if c.nodes, err = q.look(ctx); err != nil {
			return c, unasked("look at the nodes", err)
		}
		after := q.poll(ctx, 0)
		if after.err != nil {
			return c, unasked("look at the queue", after.err)
		}
		if waiting(before) != waiting(after) && try < 4 {
			continue
		}
		c.views = map[*job][]view{}
		for _, j := range jobs {
			if c.views[j], err = j.scan(ctx, after); err != nil {
				return c, err
			}
		}
		return c, nil
	}
}

// waiting names the jobs that hold nothing yet, and those that hold something.
func waiting(s snapshot) string {
	var ids []string
	for _, rows := range s.rows {
		for _, r := range rows {
			ids = append(ids, r.id+" "+fmt.Sprint(r.phase()))
		}
	}
	slices.Sort(ids)
	return strings.Join(ids, ",")
}

// awaits reports whether the instance is on its way to a place that Slurm's nodes do not show yet.
func (v view) awaits() bool {
	return v.broken == nil && v.verdict == nil && v.release == nil &&
		(v.inQueue && v.row.phase() == phaseQueued && v.claim == "" || !v.inQueue && v.submission.JobID != "" && v.recent)
}

// room gives what is free for job j.
func (s *slurm) room(ctx context.Context, j *job) (*room, error) {
	c, err := s.capture(ctx, j.queue)
	if err != nil {
		return nil, err
	}
	return c.room(j), nil
}

func (c captured) room(j *job) *room {
	r := &room{}
	for _, n := range c.nodes {
		sp := spot{node: n, suits: j.set.suits(n), held: map[int]string{}}
		sp.gpus = slices.Clone(n.gpus)
		for _, g := range n.gpus {
			if g.used {
				sp.held[g.index] = "another job of Slurm's"
			}
		}
		r.nodes = append(r.nodes, sp)
	}
	for owner, views := range c.views {
		for _, v := range views {
			for _, d := range v.report.Devices {
				r.holds(v.report.Node, d, owner.name+"/"+v.id.String(), v)
			}
		}
	}
	for owner, views := range c.views {
		for _, v := range views {
			if !v.awaits() {
				continue
			}
			kept := r.keep(owner.set, v.record.Resources, owner.name+"/"+v.id.String(), owner == j)
			if !kept && owner == j {
				r.waiting++
			}
		}
	}
	return r
}

// holds notes who holds a GPU that Slurm says is used.
func (r *room) holds(node, index, who string, v view) {
	if v.verdict != nil {
		return
	}
	for i := range r.nodes {
		for _, g := range parseIndexes(index) {
			if r.nodes[i].is(v.submission.Cluster, node) && r.nodes[i].held[g] != "" {
				r.nodes[i].held[g] = who
			}
		}
	}
}

// take gives what needs the resources a place; false when there is none.
func (r *room) take(s settings, res backend.Resources, who string) bool {
	_, _, ok := r.place(s, res, who)
	return ok
}

// keep takes room for what waits already, and is one of the job's own or not.
func (r *room) keep(s settings, res backend.Resources, who string, own bool) bool {
	sp := r.fit(s, res)
	if sp == nil {
		return false
	}
	n := len(sp.give(s, res, who))
	if sp.kept += n; own {
		sp.own += n
	}
	return true
}

func (r *room) place(s settings, res backend.Resources, who string, avoid ...string) (name string, devices []string, ok bool) {
	sp := r.fit(s, res, avoid...)
	if sp == nil {
		return "", nil, false
	}
	return sp.name, sp.give(s, res, who), true
}

// fit finds the node that is fullest and still has the resources; nil when there is none.
func (r *room) fit(s settings, res backend.Resources, avoid ...string) (best *spot) {
	need, bestFree := s.need(res), 0
	for i := range r.nodes {
		sp := &r.nodes[i]
		free := len(sp.free(s.gpuType))
		if !sp.suits || slices.Contains(avoid, sp.name) || free < need.gpus || sp.cpus-sp.cpusUsed < need.cpus || need.memoryMB > int64(sp.memoryMB-sp.memoryUsedMB) {
			continue
		}
		if best == nil || free < bestFree {
			best, bestFree = sp, free
		}
	}
	return best
}

// give notes that the resources are somebody's, and says which GPUs.
func (sp *spot) give(s settings, res backend.Resources, who string) (devices []string) {
	need := s.need(res)
	for _, g := range sp.free(s.gpuType)[:need.gpus] {
		sp.held[g] = who
		devices = append(devices, deviceID(sp.name, fmt.Sprint(g)))
	}
	sp.cpusUsed += need.cpus
	sp.memoryUsedMB += int(need.memoryMB)
	return devices
}

// free gives the indexes of the GPUs of the type that nobody holds.
func (sp *spot) free(model string) []int {
	var out []int
	for _, g := range sp.gpus {
		if sp.held[g.index] == "" && (model == "" || g.model == model) {
			out = append(out, g.index)
		}
	}
	return out
}

// freeGPUs counts them over all nodes that suit, but for those to avoid.
func (r *room) freeGPUs(s settings, avoid ...string) int {
	n := 0
	for i := range r.nodes {
		if r.nodes[i].suits && !slices.Contains(avoid, r.nodes[i].name) {
			n += len(r.nodes[i].free(s.gpuType))
		}
	}
	return n
}

// lacks says why the resources are not to be had now.
func (r *room) lacks(s settings, res backend.Resources, avoid ...string) string {
	need, free := s.need(res), r.freeGPUs(s, avoid...)
	if need.gpus > free {
		return fmt.Sprintf("needs %s, %d free", gpuNoun(need.gpus), free) + r.without()
	}
	var and []string
	if need.gpus > 0 {
		and = append(and, gpuNoun(need.gpus))
	}
	and = append(and, fmt.Sprintf("%d CPUs", need.cpus))
	if need.memoryMB > 0 {
		and = append(and, fmt.Sprintf("%d MB", need.memoryMB))
	}
	return "needs " + strings.Join(and, " and ") + " on one node, and no node has that free" + r.without()
}

// without says what does not count as free though Slurm shows it so, which nodes do not count, and which Slurm counts wrongly, as the end of a sentence.
func (r *room) without() string {
	var out []string
	kept, own := 0, 0
	for _, sp := range r.nodes {
		if sp.suits {
			kept, own = kept+sp.kept, own+sp.own
		}
	}
	switch {
	case kept == 0:
	case own == 0:
		out = append(out, fmt.Sprintf("%d more are free, and for other jobs' processes that wait already", kept))
	case own == kept:
		out = append(out, fmt.Sprintf("%d more are free, and for the job's own processes that wait already", kept))
	default:
		out = append(out, fmt.Sprintf("%d more are free, and for what waits already: %d for the job's own processes, %d for other jobs'", kept, own, kept-own))
	}
	for _, x := range r.excluded {
		out = append(out, x.String())
	}
	for _, sp := range r.nodes {
		if fault := sp.miscounted(); fault != "" && sp.suits {
			out = append(out, fault)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return " (" + strings.Join(out, "; ") + ")"
}

// admit says whether one more workload may be submitted: it fits now, or so many may wait.
func (r *room) admit(s settings, res backend.Resources, who, doing string) *backend.Error {
	switch {
	case r == nil || r.take(s, res, who):
		return nil
	case r.waiting < s.maxPending:
		r.waiting++
		return nil
	case s.maxPending == 0:
		return backend.Errorf(backend.NoCapacity, "%s: %s; max_pending = 0 lets nothing wait in Slurm's queue", doing, r.lacks(s, res))
	}
	return backend.Errorf(backend.NoCapacity, "%s: %s, and %d of the job's processes wait in Slurm's queue already (max_pending)", doing, r.lacks(s, res), r.waiting)
}

// Inventory implements backend.Backend. It covers the nodes that the configured jobs may use; what is submitted and waits counts as held.
func (s *slurm) Inventory(ctx context.Context) (backend.Inventory, error) {
	if err := ctx.Err(); err != nil {
		return backend.Inventory{}, backend.Errorf(backend.Unavailable, "take the inventory: %w", err)
	}
	var inv backend.Inventory
	seen := map[*queue]bool{}
	var waits []backend.Wait
	for _, j := range s.allJobs() {
		if seen[j.queue] {
			continue
		}
		seen[j.queue] = true
		c, err := s.capture(ctx, j.queue)
		if err != nil {
			return backend.Inventory{}, err
		}
		for _, views := range c.views {
			waits = append(waits, queueWaits(views)...)
		}
		for _, n := range c.nodes {
			if !n.answers() && slices.ContainsFunc(slices.Collect(maps.Keys(c.views)), func(j *job) bool { return j.set.allows(n) }) {
				inv.Silent = append(inv.Silent, n.name)
			}
		}
		rooms := map[*job]*room{}
		for owner, views := range c.views {
			inv.Faults = append(inv.Faults, owner.set.faults(c.nodes)...)
			rooms[owner] = c.room(owner)
			for _, x := range owner.excluded(views, rooms[owner]) {
				inv.Excluded = append(inv.Excluded, backend.Exclusion{Job: owner.name, Node: x.node, Reason: x.why, Until: x.until})
			}
		}
		for i, n := range c.nodes {
			for owner := range c.views {
				if owner.set.suits(n) {
					addNode(&inv, rooms[owner].nodes[i], owner.set)
					break
				}
			}
		}
	}
	slices.Sort(inv.Silent)
	slices.Sort(inv.Faults)
	inv.Silent, inv.Faults, inv.QueueWait = slices.Compact(inv.Silent), slices.Compact(inv.Faults), backend.LearnQueueWait(time.Now(), waits)
	return inv, nil
}

// addNode counts a node in: its GPUs, or its CPUs as slots where the job asks for no GPUs.
func addNode(inv *backend.Inventory, sp spot, s settings) {
	inv.CPUMilli += 1000 * sp.cpus
	inv.MemoryBytes += int64(sp.memoryMB) << 20
	inv.NodeCPUMilli, inv.NodeMemoryBytes = max(inv.NodeCPUMilli, 1000*sp.cpus), max(inv.NodeMemoryBytes, int64(sp.memoryMB)<<20)
	if s.noGPUs {
		for i := range sp.cpus {
			d := backend.Device{ID: fmt.Sprintf("%s:slot-%d", sp.name, i), Node: sp.name}
			if i < sp.cpusUsed {
				d.HeldBy = "a job of Slurm's"
			}
			inv.Devices = append(inv.Devices, d)
		}
	}
	for _, g := range sp.gpus {
		if s.noGPUs || s.gpuType != "" && g.model != s.gpuType {
			continue
		}
		inv.Devices = append(inv.Devices, backend.Device{ID: deviceID(sp.name, fmt.Sprint(g.index)), Node: sp.name, Model: g.model, HeldBy: sp.held[g.index]})
	}
	inv.Total, inv.Free = len(inv.Devices), 0
	for _, d := range inv.Devices {
		if d.HeldBy == "" {
			inv.Free++
		}
	}
}

// queueWaits gives the instances' times in the queue.
func queueWaits(views []view) []backend.Wait {
	var out []backend.Wait
	for _, v := range views {
		wait := backend.Wait{ID: v.id, Submitted: v.submission.At, Started: v.report.First}
		if v.record.Beside && v.claim != "" { // it may hold its place for long before it starts its process
			wait.Started = v.row.started
		}
		if !wait.Started.IsZero() || v.awaits() {
			out = append(out, wait)
		}
	}
	return out
}
