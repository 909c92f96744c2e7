package nomad

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
)

// Plan implements backend.Backend. It has Nomad's scheduler plan one job that holds all workloads which are not there,
// one group for each shape: what it could not place is what would not fit. Nothing is submitted.
func (n *nomad) Plan(ctx context.Context, job string, ws []backend.Workload) (backend.Report, error) {
	s, err := n.jobs.Of(ctx, job)
	if err != nil {
		return backend.Report{}, err
	}
	problems, err := backend.ValidateAll(job, ws)
	if err != nil {
		return backend.Report{}, err
	}
	s.payloadProblems(job, ws, problems)
	p, err := s.look(ctx, job)
	if err != nil {
		if diags := s.blame(err); len(diags) > 0 {
			return s.mistaken(ws, diags), nil
		}
		return backend.Report{}, err
	}
	if err := p.ledger.refuse(s, job); err != nil {
		return backend.Report{}, err
	}
	gpus := slices.ContainsFunc(ws, func(w backend.Workload) bool { return w.Resources.GPUs > 0 })
	if diags := s.mistakes(ctx, p.nodes, gpus); len(diags) > 0 {
		return s.mistaken(ws, diags), nil
	}
	report := backend.Report{Placements: make([]backend.Placement, len(ws)), Mistakes: s.located(s.lackingCapabilities(ctx, job))}
	q := question{groupOf: map[int]int{}, off: avoid(p), avoided: backend.AvoidedByAll(ws)}
	shape := map[string]int{}
	for i, w := range ws {
		place := &report.Placements[i]
		place.ID = w.ID
		v, there := p.find(w.ID)
		switch {
		case problems[i] != nil:
			place.Reason = problems[i].Message
		case p.ledger.released(w.ID):
			place.Newest = p.ledger.entries[seat(w.ID)].Generation
			place.Reason = fmt.Sprintf("it was released or replaced: the newest generation is %d", place.Newest)
		case there && v.latest() != nil:
			st := n.statusOf(ctx, s, v)
			place.Fits, place.Node, place.Devices, place.Reason = true, st.Node, st.Devices, "it is there already"
		default:
			q.needs += w.Resources.GPUs
			q.freed += s.freedBy(p, w.ID)
			key := fmt.Sprint(w.Resources, w.Avoid)
			at, known := shape[key]
			if !known {
				at = len(q.groups)
				shape[key] = at
				q.groups = append(q.groups, s.planGroup(w, at))
			}
			*q.groups[at].Count++
			q.groupOf[i] = at
		}
	}
	if len(q.groups) == 0 {
		return report, nil
	}
	if err := s.fillIn(ctx, job, &report, q); err != nil {
		if diags := s.blame(err); len(diags) > 0 {
			return s.mistaken(ws, diags), nil
		}
		return backend.Report{}, err
	}
	return report, nil
}

// question is what Nomad's scheduler is asked to place.
type question struct {
	groups       []*api.TaskGroup
	groupOf      map[int]int // of a workload's index
	off          []string    // the nodes that all are kept off, by ID
	avoided      []string    // those that all are to avoid, by name
	needs, freed int         // GPUs that they need, and that come free when they replace others
}

// planGroup makes an empty group of w's shape.
func (s settings) planGroup(w backend.Workload, at int) *api.TaskGroup {
	g := s.group(w)
	g.Name, g.Count, g.Constraints = ptr(fmt.Sprintf("shape-%d", at)), ptr(0), offNodes(w.Avoid)
	return g
}

// freedBy gives how many GPUs come free when id replaces what is in its place.
func (s settings) freedBy(p picture, id backend.ID) int {
	total := 0
	for _, v := range p.views {
		if a := v.latest(); seat(v.id) == seat(id) && v.id != id && a != nil && !ended(a) {
			var st backend.Status
			v.placed(a, &st)
			total += len(st.Devices)
		}
	}
	return total
}

// nodeLater is said of what fits: Nomad's plan tells what would not, and not where the rest would go.
const nodeLater = "Nomad chooses its node when it is started"

// fillIn asks Nomad's scheduler, and completes the report.
func (s settings) fillIn(ctx context.Context, job string, report *backend.Report, q question) error {
	name := jobPrefix(job) + "plan"
	opts, cancel := s.write(ctx)
	defer cancel()
	all := &api.Job{
		ID: &name, Name: &name, Type: ptr(api.JobTypeBatch), Priority: s.priority, Datacenters: s.datacenters, NodePool: s.nodePool,
		Namespace: &s.namespace, Constraints: s.constraints, TaskGroups: q.groups,
	}
	keepOff(all, q.off)
	answer, _, err := s.client.Jobs().Plan(all, false, opts)
	if err != nil {
		return failed(err, capSubmit, "plan workloads of job %q", job)
	}
	if len(answer.FailedTGAllocs) == 0 {
		for i := range q.groupOf {
			report.Placements[i].Fits, report.Placements[i].Reason = true, nodeLater
		}
		return nil
	}
	if diags, err := s.unmet(ctx, all); err != nil {
		return err
	} else if len(diags) > 0 {
		report.Mistakes = append(report.Mistakes, s.located(diags)...)
	}
	free := -1
	if f, err := s.fleet(ctx, nil); err == nil {
		free = q.freed
		for _, d := range f.inventory(s).Devices {
			if d.HeldBy == "" && !slices.Contains(q.avoided, d.Node) {
				free++
			}
		}
	}
	for i := range report.Placements { // those that come last are those that do not fit
		at, asked := q.groupOf[i]
		if !asked {
			continue
		}
		name, place := *q.groups[at].Name, &report.Placements[i]
		m := answer.FailedTGAllocs[name]
		if m == nil || q.remaining(i, at) > m.CoalescedFailures+1 || q.needs <= free && q.freed > 0 && len(m.DimensionExhausted) > 0 {
			place.Fits, place.Reason = true, nodeLater
			continue
		}
		place.Reason = shortage(0, -1, m)
		report.Shortage = shortage(q.needs, free, m)
	}
	return nil
}

// remaining gives how many workloads of the group there are from index i on.
func (q question) remaining(i, at int) int {
	before := 0
	for j, g := range q.groupOf {
		if g == at && j < i {
			before++
		}
	}
	return *q.groups[at].Count - before
}
