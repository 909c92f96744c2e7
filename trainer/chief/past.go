package chief

import (
	"slices"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/spans"
)

// processKey names one life of a worker process: its metrics are cumulative within it.
type processKey struct {
	member     string
	generation uint64
	startedMS  int64
}

func (m *member) process() processKey { return processKey{m.name, m.generation, m.startedMS} }

// keptProcesses is how many processes that left are kept apart, since they may register again (an expelled one, one that outlived a chief). Older ones are
// summed up; one that came back after so many others had left would be counted twice in the totals, and nowhere else.
const keptProcesses = 32

// past are the metrics of processes that left.
type past struct {
	metrics map[processKey]*rpc.WorkerMetrics
	order   []processKey // by when they left
	retired *rpc.WorkerMetrics
}

func emptyMetrics() *rpc.WorkerMetrics {
	return &rpc.WorkerMetrics{Validation: &rpc.Validation{}, LagMs: &rpc.Histogram{}}
}

// keep takes in the last metrics of a process.
func (p *past) keep(k processKey, last *rpc.WorkerMetrics) {
	if i := slices.Index(p.order, k); i >= 0 {
		p.order = slices.Delete(p.order, i, i+1)
	}
	p.order = append(p.order, k)
	p.metrics[k] = last
	for len(p.order) > keptProcesses {
		addMetrics(p.retired, p.metrics[p.order[0]])
		delete(p.metrics, p.order[0])
		p.order = slices.Delete(p.order, 0, 1)
	}
}

// memory is what a successor must be told: the living are in it, since they may end before they meet it.
func (m *machine) memory() *rpc.ChiefMemory {
	out := &rpc.ChiefMemory{Timeline: m.opt.Timeline, Retired: m.past.retired, Applied: m.evidence(), Rollbacks: m.keptRollbacks()}
	add := func(k processKey, last *rpc.WorkerMetrics) {
		out.Processes = append(out.Processes, &rpc.ProcessMetrics{Member: k.member, Generation: k.generation, StartedUnixMs: k.startedMS, Metrics: last})
	}
	living := map[processKey]bool{}
	for _, w := range m.sortedMembers() {
		if w.live() {
			living[w.process()] = true
		}
	}
	for _, k := range m.past.order {
		if !living[k] {
			add(k, m.past.metrics[k])
		}
	}
	for _, w := range m.sortedMembers() {
		if w.live() {
			add(w.process(), w.metrics)
		}
	}
	return out
}

// remember takes in what a chief before kept. That of another timeline is another job's.
func (m *machine) remember(r *rpc.ChiefMemory) {
	if r == nil || r.GetTimeline() != m.opt.Timeline {
		return
	}
	addMetrics(m.past.retired, r.GetRetired())
	for p, set := range confirmed(r.GetApplied()) {
		m.before[p] = spans.Union(orEmpty(m.before[p]), set)
	}
	m.rememberRollbacks(r.GetRollbacks())
	for _, p := range r.GetProcesses() {
		if p.GetMetrics() != nil {
			m.past.keep(processKey{p.GetMember(), p.GetGeneration(), p.GetStartedUnixMs()}, p.GetMetrics())
		}
	}
}
