package core

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// supposed is the generation of a process that is only supposed: above every real one, so that no backend takes it for one that is gone.
const supposed = 1 << 40

// CouldPlace asks the backend, which must have been configured, whether the job's servers and so many workers could run now, beside what
// others run. It has no side effect. What runs of them already, on whatever ranks, counts as placed and is not in the report; what waits in the cluster's queue
// does not. Where nothing is seen, what the block is wrong for may be why, which is then the report's mistakes. Those to avoid are nodes that do not count.
func CouldPlace(ctx context.Context, o Options, workers int, avoid ...string) (backend.Report, error) {
	fail := func(err error) (backend.Report, error) {
		return backend.Report{}, fmt.Errorf("ask backend %q whether the servers and %d of the workers could run: %w", o.Job.Backend.Name, workers, err)
	}
	list, complete, unseen := o.list(ctx)
	lack, runs := workers, map[backend.ID]bool{}
	for _, st := range list {
		if st.State.Placed() && !runs[placeOf(st.ID)] {
			if runs[placeOf(st.ID)] = true; st.ID.Role == backend.RoleWorker {
				lack-- // whatever its rank
			}
		}
	}
	loads, err := newWorkloads(o.Job, o.Trainer, "", "", o.Env)
	if err != nil {
		return fail(err)
	}
	var missing []backend.Workload
	add := func(w backend.Workload) (added bool) {
		if w.Avoid = avoid; !runs[placeOf(w.ID)] {
			missing = append(missing, w)
		}
		return !runs[placeOf(w.ID)]
	}
	for i := range o.Job.Servers.Count {
		add(loads.server(i, supposed))
	}
	for rank := 0; lack > 0; rank++ {
		if add(loads.worker(rank, supposed)) {
			lack--
		}
	}
	inPart := error(nil) // what waits for a place may be in such a list as unknown
	if unseen == nil && !complete {
		inPart = backend.Errorf(backend.Unavailable, "%s", ListedInPart(list))
	}
	if len(missing) == 0 && inPart != nil {
		return fail(inPart)
	}
	if len(missing) == 0 {
		return backend.Report{}, nil
	}
	report, err := o.Backend.Plan(ctx, o.Job.Name, missing)
	if err == nil { // else it says why
		unseen = cmp.Or(unseen, inPart)
	}
	if unseen != nil && !report.Mistakes.HasErrors() {
		err = unseen
	}
	if err != nil {
		return fail(err)
	}
	return report, nil
}

// BlockMistakes are what the cluster says is wrong in the backend block, for a job with so many workers: of what does not run yet, and of what runs, as if it
// were to be started anew with the block of now.
func BlockMistakes(ctx context.Context, o Options, workers int) (hcl.Diagnostics, error) {
	report, err := CouldPlace(ctx, o, workers)
	if err != nil || report.Mistakes.HasErrors() {
		return report.Mistakes.HCL(), err
	}
	anew, err := mistakesAnew(ctx, o)
	if err == nil && len(anew) == 0 {
		return report.Mistakes.HCL(), nil
	}
	return anew, err // what it warns of, each of the two tells
}

// mistakesAnew asks about a successor of one process of each role that runs: whether it would find room says nothing of the block, and does not count.
func mistakesAnew(ctx context.Context, o Options) (hcl.Diagnostics, error) {
	list, _, err := o.list(ctx)
	if err != nil {
		return nil, err
	}
	loads, err := newWorkloads(o.Job, o.Trainer, "", "", o.Env)
	if err != nil {
		return nil, err
	}
	anew := map[string]backend.Workload{}
	for _, st := range list {
		switch id := st.ID; {
		case !st.State.Live():
		case id.Role == backend.RoleServer && id.Rank < o.Job.Servers.Count:
			anew[id.Role] = loads.server(id.Rank, supposed)
		case id.Role == backend.RoleWorker:
			anew[id.Role] = loads.worker(id.Rank, supposed)
		}
	}
	if len(anew) == 0 {
		return nil, nil
	}
	var ws []backend.Workload
	for _, role := range slices.Sorted(maps.Keys(anew)) {
		ws = append(ws, anew[role])
	}
	report, err := o.Backend.Plan(ctx, o.Job.Name, ws)
	return report.Mistakes.HCL(), err
}

// Shortage is what a report says is missing, "" when everything fits.
func Shortage(r backend.Report) string {
	if r.Shortage != "" || r.Fits() {
		return r.Shortage
	}
	for _, p := range r.Placements {
		if !p.Fits && p.Reason != "" {
			return p.Reason
		}
	}
	return "the backend does not say why"
}

// NeverFits are errors where a worker asks for more devices than any node has, or a process for more memory or CPUs. Where the inventory is not known, or shows
// no device at all on a cluster, whose nodes may come later, it says nothing.
func NeverFits(ctx context.Context, o Options) hcl.Diagnostics {
	j := o.Job
	inv, err := o.Backend.Inventory(ctx)
	if err != nil {
		return nil
	}
	diags := beyondAnyNode(j, inv)
	most, nodes := 0, map[string]int{}
	for _, d := range inv.Devices {
		nodes[d.Node]++
		most = max(most, nodes[d.Node])
	}
	if j.Workers.GPUs <= most || len(inv.Devices) < inv.Total || most == 0 && j.Backend.Name != job.BackendLocal {
		return diags
	}
	return append(diags, j.ErrorAt("workers.gpus", "No node has so many devices",
		fmt.Sprintf("A worker asks for %d GPUs, and no node of backend %q has more than %d. Lower workers.gpus.", j.Workers.GPUs, j.Backend.Name, most)))
}

// beyondAnyNode says which processes ask for more memory or CPUs than any node has. On this machine, where nobody enforces it, too many CPUs are only a warning.
func beyondAnyNode(j *job.Job, inv backend.Inventory) (diags hcl.Diagnostics) {
	has := fmt.Sprintf("no node of backend %q has more than", j.Backend.Name)
	cpus := j.ErrorAt
	if j.Backend.Name == job.BackendLocal {
		has, cpus = "this machine has", j.WarningAt
	}
	for _, p := range []struct {
		path, who string
		cpu       float64
		memory    int64
	}{{"workers", "worker", j.Workers.CPU, j.Workers.Memory}, {"servers", "server", j.Servers.CPU, j.Servers.Memory}} {
		if most := inv.NodeMemoryBytes; most > 0 && p.memory > most {
			diags = append(diags, j.ErrorAt(p.path+".memory", "No node has so much memory",
				fmt.Sprintf("A %s asks for %s, and %s %s. Lower %s.memory.", p.who, job.FormatSize(p.memory), has, job.FormatSize(most>>20<<20), p.path)))
		}
		if most := inv.NodeCPUMilli; most > 0 && 1000*p.cpu > float64(most) {
			diags = append(diags, cpus(p.path+".cpu", "No node has so many CPUs",
				fmt.Sprintf("A %s asks for %g cores, and %s %g. Lower %s.cpu.", p.who, p.cpu, has, float64(most)/1000, p.path)))
		}
	}
	return diags
}

// impossible gives what in the job no waiting makes possible: a worker that fits on no node, and what the cluster says is wrong in the backend's block, such as
// a partition that it does not have. What cannot be asked now is no mistake.
func impossible(ctx context.Context, o Options) hcl.Diagnostics {
	diags := NeverFits(ctx, o)
	report, err := CouldPlace(ctx, o, max(1, o.Job.Workers.Min))
	if err != nil {
		o.Log.Warn("whether the job can be placed is not known; it is tried", "err", err)
		return diags
	}
	return append(diags, report.Mistakes.HCL()...)
}

// ClusterSilent is the summary of the diagnostic that says that the cluster could not be asked: an error only to whom its answer decides.
const ClusterSilent = "The cluster does not answer"

// PlacementDiagnostics are warnings where the job's servers with workers.min or workers.max workers would find no room now: a job waits for
// room, so that none of it is a mistake. A worker that fits on no node at all is an error, and so is what the cluster says is wrong in the backend block, and that
// it could not be asked (ClusterSilent).
func PlacementDiagnostics(ctx context.Context, o Options) (hcl.Diagnostics, error) {
	if diags := nameTaken(ctx, o); diags.HasErrors() {
		return diags, nil
	}
	never := NeverFits(ctx, o)
	if never.HasErrors() {
		return never, nil
	}
	more, err := roomDiagnostics(ctx, o)
	return slices.Concat(never, excludedNodes(ctx, o), more), err
}

// excludedFrom gives the nodes that the backend keeps a job off.
func excludedFrom(name string, inv *backend.Inventory) (out []backend.Exclusion) {
	for _, x := range inv.Excluded {
		if x.Job == "" || x.Job == name {
			out = append(out, x)
		}
	}
	return out
}

// excludedWords say for people that a node is left out, until when and why.
func excludedWords(x backend.Exclusion) string {
	until := ""
	if !x.Until.IsZero() {
		until = " until " + x.Until.Local().Format(time.TimeOnly)
	}
	return fmt.Sprintf("nothing more is started on node %s%s: %s", x.Node, until, x.Reason)
}

// excludedNodes warn of the nodes that the backend keeps the job off now, and of what a person has to mend in the cluster.
func excludedNodes(ctx context.Context, o Options) (diags hcl.Diagnostics) {
	inv, err := o.Backend.Inventory(ctx)
	if err != nil {
		return nil // whoever needs it says so
	}
	for _, x := range excludedFrom(o.Job.Name, &inv) {
		diags = append(diags, o.Job.WarningAt("backend", fmt.Sprintf("Node %s is left out", x.Node), "By backend "+strconv.Quote(o.Job.Backend.Name)+", "+excludedWords(x)+"."))
	}
	for _, fault := range inv.Faults {
		diags = append(diags, o.Job.WarningAt("backend", "Something has to be mended in the cluster", fault+"."))
	}
	return diags
}

// roomDiagnostics is PlacementDiagnostics for a job that fits on the nodes that there are.
func roomDiagnostics(ctx context.Context, o Options) (hcl.Diagnostics, error) {
	j := o.Job
	least, err := CouldPlace(ctx, o, j.Workers.Min)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil && backend.CodeOf(err) == backend.Unsupported:
		return nil, nil
	case err != nil && backend.CodeOf(err) == backend.Blocked:
		return hcl.Diagnostics{j.WarningAt("backend", "Whether the job would find room is not known", backend.AsError(err).Message+".")}, nil
	case err != nil:
		return clusterSilent(j, err), nil
	}
	told := least.Mistakes.HCL()
	if told.HasErrors() {
		return told, nil
	}
	if wrong, err := mistakesAnew(ctx, o); err == nil && wrong.HasErrors() { // that it could not be asked is said of the room
		return wrong, nil
	} else if len(told) == 0 { // where all runs, it was not asked for before
		told = wrong
	}
	room, err := roomFor(ctx, o, least)
	return append(told, room...), err
}

// clusterSilent says that the cluster did not answer everything that it was asked of a job's room.
func clusterSilent(j *job.Job, err error) hcl.Diagnostics {
	return hcl.Diagnostics{j.ErrorAt("backend", ClusterSilent, fmt.Sprintf("%v. The job's room and the names in the backend block (a partition, a node, …) were not "+
		"checked, or not all of them: see that the cluster is up and not overloaded, and that the block says rightly how it is reached, and try again; "+
		"kale validate -offline checks without it.", err))}
}

// roomFor warns where the backend has no room for what the report of workers.min asked for, or for workers.max.
func roomFor(ctx context.Context, o Options, least backend.Report) (hcl.Diagnostics, error) {
	j := o.Job
	if why := Shortage(least); why != "" {
		if inv, err := o.Backend.Inventory(ctx); err == nil && inv.Total > 0 && j.Workers.Min*j.Workers.GPUs > inv.Total {
			return hcl.Diagnostics{j.WarningAt("workers.min", "The job cannot fit, however long it waits",
				fmt.Sprintf("%s (workers.min) with workers.gpus = %d ask for %d, and backend %q has %d in all, taken or free. Lower workers.min, or give the backend more. What does not fit is tried again until it does.",
					job.Count(j.Workers.Min, "worker"), j.Workers.GPUs, j.Workers.Min*j.Workers.GPUs, j.Backend.Name, inv.Total))}, nil
		}
		return hcl.Diagnostics{j.WarningAt("workers.min", "The job would not find room now",
			fmt.Sprintf("For its servers and %s (workers.min) backend %q says: %s. What does not fit is tried again until it does.", job.Count(j.Workers.Min, "worker"), j.Backend.Name, why))}, nil
	}
	most, err := CouldPlace(ctx, o, j.Workers.Max)
	if err != nil && backend.CodeOf(err) == backend.Unavailable {
		return clusterSilent(j, err), nil
	}
	if err != nil {
		return hcl.Diagnostics{j.WarningAt("backend", "Whether the job could grow is not known", fmt.Sprintf("%v.", err))}, nil
	}
	if most.Mistakes.HasErrors() {
		return most.Mistakes.HCL(), nil
	}
	if why := Shortage(most); why != "" {
		return hcl.Diagnostics{j.WarningAt("workers.max", "The job could not grow to workers.max now",
			fmt.Sprintf("For its servers and %s backend %q says: %s. With fewer workers it may fall behind.", job.Count(j.Workers.Max, "worker"), j.Backend.Name, why))}, nil
	}
	return nil, nil
}
