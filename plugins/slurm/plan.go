package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kale-sched/kale/core/backend"
)

// Plan implements backend.Backend. Slurm is asked with sbatch --test-only, which submits nothing, whether it would take the job at all; what is free now
// is counted from the nodes.
func (s *slurm) Plan(ctx context.Context, name string, ws []backend.Workload) (backend.Report, error) {
	j, err := s.mine(ctx, name)
	if err != nil {
		return backend.Report{}, err
	}
	problems, err := backend.ValidateAll(name, ws)
	if err != nil {
		return backend.Report{}, err
	}
	if m := j.unusable(); m != nil {
		return j.impossible(m, ws), nil
	}
	c, err := s.capture(ctx, j.queue)
	if err != nil {
		if report, ok := j.unaskable(ctx, err, ws); ok {
			return report, nil
		}
		return backend.Report{}, err
	}
	views, room := c.views[j], c.room(j)
	markAway(views, c.nodes)
	j.excluded(views, room)
	var report backend.Report
	needs, free := 0, room.freeGPUs(j.set, backend.AvoidedByAll(ws)...)
	tested := map[backend.Resources]string{}
	var fresh []int     // workloads that Slurm would queue
	var standard string // the partition that it names
	var refusals []*refusal
	for i, w := range ws {
		place := backend.Placement{ID: w.ID}
		newest, known := newestOf(views, w.ID)
		switch {
		case problems[i] != nil:
			place.Reason = problems[i].Message
		case known && (newest.id.Generation > w.ID.Generation || newest.id == w.ID && newest.release != nil):
			place.Newest, place.Reason = newest.id.Generation, fmt.Sprintf("it was released or replaced: the newest is %s", newest.id)
		case known && newest.id == w.ID:
			st := newest.status()
			place.Fits, place.Node, place.Devices, place.Reason = true, st.Node, st.Devices, "it is there already"
		default:
			if _, err := j.set.program(backend.Executable(), w.Argv[0]); err != nil {
				place.Reason = fmt.Sprintf("its program cannot be run: %v", err)
				break
			}
			says, done := tested[w.Resources]
			if !done {
				var no []*refusal
				var in string
				if says, in, no, err = j.test(ctx, w); err != nil {
					return backend.Report{}, err
				}
				standard = cmp.Or(standard, in)
				if len(no) > 0 && j.set.excludesAll(c.nodes) {
					says = j.noNodeLeft()
				}
				tested[w.Resources] = says
				refusals = append(refusals, no...)
			}
			if says != "" {
				place.Reason, report.Shortage = says, says
				break
			}
			needs += j.set.need(w.Resources).gpus
			if known && !newest.over() { // its devices come free when it is replaced
				needs -= len(newest.report.Devices)
				room.giveBack(newest)
			}
			if place.Node, place.Devices, place.Fits = room.place(j.set, w.Resources, name+"/"+w.ID.String(), w.Avoid...); place.Fits {
				fresh = append(fresh, i)
			} else {
				place.Reason = room.lacks(j.set, w.Resources, w.Avoid...)
				report.Shortage = place.Reason
				if j.set.maxPending > 0 {
					place.Reason += "; it would wait in Slurm's queue"
				}
			}
		}
		report.Placements = append(report.Placements, place)
	}
	if len(fresh) > 0 {
		first := j.ahead(ctx, c, standard)
		for _, i := range fresh {
			report.Placements[i].Reason = first
		}
	}
	if needs > free {
		report.Shortage = fmt.Sprintf("needs %s, %d free", gpuNoun(needs), free) + room.without()
	}
	if len(tested) > 0 {
		report.Mistakes = j.mistakes(ctx, c.nodes, refusals)
	}
	return report, nil
}

// giveBack frees what an instance holds.
func (r *room) giveBack(v view) {
	need := v.record.Resources
	for i := range r.nodes {
		sp := &r.nodes[i]
		if !sp.is(v.submission.Cluster, v.report.Node) {
			continue
		}
		for _, d := range v.report.Devices {
			for _, g := range parseIndexes(d) {
				delete(sp.held, g)
			}
		}
		sp.cpusUsed -= max(1, (need.CPUMilli+999)/1000)
		sp.memoryUsedMB -= int(need.MemoryBytes >> 20)
	}
}

// test asks Slurm whether it would take such a job, and in which partition; says is why not, empty when it would. no are its refusals, where they are of those that
// are known.
func (j *job) test(ctx context.Context, w backend.Workload) (says, partition string, no []*refusal, err error) {
	b := batch{set: j.set, instance: j.instance(w.ID), record: record{Nonce: "test", Resources: w.Resources, StopGrace: w.StopGrace, Warning: j.set.warning(w.StopGrace)}}
	if partition, err = j.queue.ctl.test(ctx, b); err == nil || errors.Is(err, errUntested) {
		return "", partition, nil, nil
	}
	var e *slurmError
	if !errors.As(err, &e) {
		e = &slurmError{}
	}
	at, bare := j.culprits(ctx, b, e)
	if len(at) == 0 {
		bare = err
	}
	if r := refused(bare); r != nil {
		no = append(no, r)
	}
	if len(at) > 0 {
		var said []string
		for _, d := range at {
			said = append(said, fmt.Sprintf("%q: %s", d.value, d.says))
		}
		no = append(no, &refusal{Error: backend.Errorf(backend.Blocked, "Slurm refuses directives: %s", strings.Join(said, "; ")), attr: attrDirectives, directives: at})
	}
	if len(no) > 0 {
		return no[0].Message, "", no, nil
	}
	if strings.Contains(e.said, "allocation failure") {
		return "Slurm would not take it: " + e.words(), "", nil, nil
	}
	return "", "", nil, unavailable(fmt.Sprintf("ask Slurm whether it would take %s of job %q", w.ID, j.name), err)
}
