package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// backend tries the plugin: it starts, takes the job's block, says what it has, and whether the job has room.
func (p Patient) backend() group {
	var b atomic.Pointer[backend.Client] // set by the first trial, which may end late
	g := group{
		trials: []trial{
			{check: "backend plugin", limit: pluginLimit, vital: true, needs: []string{"backend"}, try: func(ctx context.Context) []Finding {
				started, found := p.launch(ctx)
				b.Store(started)
				return []Finding{found}
			}},
			{check: "backend block", limit: pluginLimit, vital: true, needs: []string{"backend", "name"}, try: func(ctx context.Context) []Finding {
				return p.configure(ctx, b.Load())
			}},
			{check: clusterCheck, limit: answerLimit, vital: true, faultsOnly: true, needs: []string{"backend", "name"}, try: func(ctx context.Context) []Finding {
				return p.cluster(ctx, b.Load())
			}},
			{check: "devices", limit: pluginLimit, needs: []string{"backend", "name"}, try: func(ctx context.Context) []Finding { return p.has(ctx, b.Load()) }},
			{check: "room", limit: pluginLimit, needs: []string{"backend", "name", "workers", "servers", "model"}, try: func(ctx context.Context) []Finding { return p.room(ctx, b.Load()) }},
		},
		end: func() {
			if b := b.Load(); b != nil {
				_ = b.Close() // the plugin has said what there was to say
			}
		},
	}
	if p.ProbeLimit > 0 {
		g.trials = append(g.trials, trial{check: nodesCheck, limit: p.ProbeLimit + letGoLimit, ends: letGoLimit, needs: []string{"backend", "name", "workers", "servers", "model", "stream", "checkpoint", "network"}, try: func(ctx context.Context) []Finding { return p.nodes(ctx, b.Load()) }})
	}
	return g
}

func (p Patient) launch(ctx context.Context) (*backend.Client, Finding) {
	const check = "backend plugin"
	began := time.Now()
	b, err := p.Launch(ctx)
	if err != nil {
		return nil, ok(check, "%v", err).but(Fail, fmt.Sprintf("Install kale-backend-%s beside kale or in $PATH, or name its folder with -plugin-dir.", p.Job.Backend.Name))
	}
	info, err := b.Info(ctx)
	if err != nil {
		return b, ok(check, "it starts, but does not say what it is: %v", err).but(Fail, "Install the plugin of this version of Kale.")
	}
	f := ok(check, "%s %s answers after %s", info.Name, info.Version, job.Length(time.Since(began)))
	var lacks []string
	if !info.Drains {
		lacks = append(lacks, "let workers drain")
	}
	if !info.Survives {
		lacks = append(lacks, "let workers outlive the scheduler")
	}
	switch {
	case info.Name != p.Job.Backend.Name:
		return b, f.but(Warn, fmt.Sprintf("The job names backend %q: is this its plugin?", p.Job.Backend.Name))
	case p.Job.Workers.GPUs > 0 && !info.GPUs:
		return b, f.but(Warn, fmt.Sprintf("It assigns no GPUs, only slots in their stead, and workers ask for %d (%s): set workers.gpus to 0 to compute on CPUs, or use another backend.", p.Job.Workers.GPUs, place(p.Job, "workers.gpus")))
	case len(lacks) > 0:
		return b, f.but(Warn, fmt.Sprintf("It does not %s: records are trained again after each scale-in or restart.", strings.Join(lacks, " or ")))
	}
	return b, f
}

const (
	clusterCheck = "cluster"
	// answerLimit is how long a cluster may not answer before it counts as away: what comes after would wait for it again and again.
	answerLimit = 8 * time.Second
)

// answers says that the cluster is away, if it is; devices and room say what else there is of it.
func answers(ctx context.Context, b backend.Backend) []Finding {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	began := time.Now()
	for why := error(nil); ; {
		_, err := b.Inventory(ctx)
		if err == nil || backend.CodeOf(err) != backend.Unavailable {
			return nil
		}
		if why == nil || ctx.Err() == nil {
			why = err
		}
		select {
		case <-ctx.Done():
			return []Finding{ok(clusterCheck, "it does not answer, tried for %s: %v", job.Length(time.Since(began)), why).but(Fail,
				"See from this machine that its servers are up, and that the address is theirs. Nothing was started; kale validate -offline checks a job file without its cluster.")}
		case <-time.After(probeEvery):
		}
	}
}

// cluster asks the cluster whether it answers and, at the same time, what is wrong in the block: one that is away says neither. Where nothing is wrong there are no
// findings.
func (p Patient) cluster(ctx context.Context, b backend.Backend) []Finding {
	asking, enough := context.WithCancel(ctx)
	wrong := make(chan []Finding, 1)
	go func() { wrong <- p.mistakes(asking, b) }() // ends with asking, and touches nothing else
	away := answers(ctx, b)
	if len(away) > 0 {
		enough()
	}
	said := <-wrong
	enough()
	if len(away) > 0 {
		return away
	}
	return said
}

// configure has the plugin take the block.
func (p Patient) configure(ctx context.Context, b backend.Backend) []Finding {
	const check = "backend block"
	diags, err := core.ConfigureBackend(ctx, b, p.Job, p.StateDir)
	if err != nil {
		return []Finding{ok(check, "%v", err).but(Fail, "Look at the plugin's log: -log debug shows it.")}
	}
	return judged(check, diags, ok(check, "backend %q takes it", p.Job.Backend.Name))
}

const byCluster = "backend block, by the cluster"

// mistakes is what the cluster says is wrong in the block, such as a partition that it does not have: what is said of devices and of room would be wrong too.
func (p Patient) mistakes(ctx context.Context, b backend.Backend) []Finding {
	wrong, err := core.BlockMistakes(ctx, p.options(b), max(1, p.Job.Workers.Min))
	if err != nil && backend.CodeOf(err) == backend.Conflict {
		return []Finding{ok("job name", "%s", backend.AsError(err).Message).but(Fail, fmt.Sprintf("Give the job another name (%s).", place(p.Job, "name")))}
	}
	if err != nil || len(wrong) == 0 {
		return nil // room says why it cannot be asked
	}
	return judged(byCluster, wrong, Finding{})
}

func (p Patient) options(b backend.Backend) core.Options {
	return core.Options{Job: p.Job, StateDir: p.StateDir, Backend: b, Trainer: cmp.Or(p.Trainer, "kale-trainer"), Env: p.Env, Log: p.Log}
}

// unasked is what helps where the backend could not be asked: one that waits for a person says itself for what.
func unasked(err error) string {
	if backend.CodeOf(err) == backend.Blocked {
		return "With that done, run kale doctor again."
	}
	return "See that the cluster answers, and that this user may ask it."
}

// has is what the backend has, by one answer: its devices, and what is wrong in its cluster.
func (p Patient) has(ctx context.Context, b backend.Backend) []Finding {
	inv, err := b.Inventory(ctx)
	switch {
	case err != nil && backend.CodeOf(err) == backend.Unsupported:
		return []Finding{{Check: devicesCheck, State: Skip, Says: "the backend does not tell what it has"}}
	case err != nil:
		return []Finding{ok(devicesCheck, "%v", err).but(Fail, unasked(err))}
	}
	_, silent := silentNodes(inv, nil) // the room is without them
	return slices.Concat([]Finding{p.devices(ctx, b, inv)}, silent, faults(inv))
}

const devicesCheck = "devices"

// devices holds what the backend has against what one worker asks for.
func (p Patient) devices(ctx context.Context, b backend.Backend, inv backend.Inventory) Finding {
	gpus, models := 0, map[string]bool{}
	var names []string
	for _, d := range inv.Devices {
		if strings.HasPrefix(d.ID, "slot-") {
			continue
		}
		gpus++
		if d.Model != "" && !models[d.Model] {
			models[d.Model] = true
			names = append(names, d.Model)
		}
	}
	want := p.Job.Workers.GPUs
	noun := "GPU"
	if gpus == 0 && inv.Total > 0 {
		noun = "slot"
	}
	f := ok(devicesCheck, "%s, %d free", job.Count(inv.Total, noun), inv.Free)
	if own := p.own(ctx, b, inv); own > 0 {
		f.Says += fmt.Sprintf("; %d of those taken are this job's own", own)
	}
	if len(names) > 0 {
		f.Says += " (" + strings.Join(names, ", ") + ")"
	}
	switch where := place(p.Job, "workers.gpus"); {
	case want == 0:
		f.Says += "; workers use none"
	case want > inv.Total:
		return f.but(Fail, fmt.Sprintf("One worker asks for %d (%s): ask for fewer, or give the backend more.", want, where))
	case noun == "slot":
		return f.but(Warn, fmt.Sprintf("No GPU was found, and slots stand in for them: workers ask for %d and compute with CUDA (%s). Set workers.gpus to 0 to compute on CPUs, or install the GPU's driver.", want, where))
	}
	return f
}

// silentNodes names the nodes that the cluster does not hear, but for those that were told of: nothing is placed there, so that no probe tells of them. Without such
// there is nothing to say.
func silentNodes(inv backend.Inventory, told []string) (names []string, found []Finding) {
	names = slices.DeleteFunc(inv.Silent, func(name string) bool { return slices.Contains(told, name) })
	if len(names) == 0 {
		return nil, nil
	}
	do := "do"
	if len(names) == 1 {
		do = "does"
	}
	return names, []Finding{ok("nodes that answer", "%s %s not answer the cluster", strings.Join(names, ", "), do).but(Warn, "Nothing is started there until that is mended: "+seeToNode)}
}

const seeToNode = "See that the machine is up, and that the cluster's daemon runs there (slurmd, Nomad's client)."

// faults are what a person has to mend in the cluster, as the backend says.
func faults(inv backend.Inventory) (found []Finding) {
	for _, fault := range inv.Faults {
		says, do, _ := strings.Cut(fault, ": ")
		found = append(found, ok("the cluster's own word", "%s", says).but(Warn, do+"."))
	}
	return found
}

// own is how many of the devices this job itself holds: its processes run already.
func (p Patient) own(ctx context.Context, b backend.Backend, inv backend.Inventory) (n int) {
	for _, d := range inv.Devices {
		if strings.HasPrefix(d.HeldBy, p.Job.Name+"/") {
			n++
		}
	}
	if n == 0 { // a cluster may not say who holds what
		n = p.Job.Workers.GPUs * p.running(ctx, b)
	}
	return min(n, inv.Total-inv.Free)
}

// running is how many workers of this job have a place already.
func (p Patient) running(ctx context.Context, b backend.Backend) (n int) {
	list, _, err := b.List(ctx, p.Job.Name)
	if err != nil {
		return 0 // the next question says why
	}
	for _, st := range list {
		if st.ID.Role == backend.RoleWorker && st.State.Placed() {
			n++
		}
	}
	return n
}

// room asks whether the least and the most workers would find a place now.
func (p Patient) room(ctx context.Context, b backend.Backend) []Finding {
	const check = "room"
	o := p.options(b)
	if never := core.NeverFits(ctx, o); never.HasErrors() { // nothing that comes free helps
		return judged(check, never, Finding{})
	}
	already := ""
	if n := p.running(ctx, b); n > 0 {
		already = fmt.Sprintf("; %d workers of this job run already and keep their places", n)
		if n == 1 {
			already = "; 1 worker of this job runs already and keeps its place"
		}
	}
	var out []Finding
	for _, w := range []struct {
		path string
		n    int
		bad  State
		do   string
	}{
		{"workers.min", p.Job.Workers.Min, Fail, "Free some, give the backend more, or ask for less: the job waits until there is room."},
		{"workers.max", p.Job.Workers.Max, Warn, "The job grows only as far as there is room, and may fall behind: free some, give the backend more, or lower workers.max."},
	} {
		if w.path == "workers.max" && w.n == p.Job.Workers.Min {
			continue
		}
		name := fmt.Sprintf("room for %s", job.Count(w.n, "worker"))
		report, err := core.CouldPlace(ctx, o, w.n)
		switch {
		case err != nil && backend.CodeOf(err) == backend.Unsupported:
			return []Finding{{Check: check, State: Skip, Says: "the backend cannot tell without starting something"}}
		case err != nil:
			return append(out, ok(name, "%v", err).but(Fail, unasked(err)))
		}
		if report.Mistakes.HasErrors() {
			return append(out, judged(byCluster, report.Mistakes.HCL(), ok(name, ""))...)
		}
		if why := core.Shortage(report); why != "" {
			out = append(out, ok(name, "%s%s (%s)", why, already, place(p.Job, w.path)).but(w.bad, w.do))
			continue
		}
		out = append(out, ok(name, "%s", placed(report)))
	}
	return out
}

// roomWithout says whether the least workers would find a place on other nodes than those, which the room counted and which turned out to be of no use. Where they
// would not, the job does not run; where they would, that is but worth knowing.
func (p Patient) roomWithout(ctx context.Context, b backend.Backend, lost []string) []Finding {
	if len(lost) == 0 {
		return nil
	}
	check := "room without " + strings.Join(lost, ", ")
	report, err := core.CouldPlace(ctx, p.options(b), p.Job.Workers.Min, lost...)
	switch why := core.Shortage(report); {
	case err != nil && backend.CodeOf(err) == backend.Unsupported, report.Mistakes.HasErrors():
		return nil // room says so
	case err != nil:
		return []Finding{ok(check, "whether the job has room on other nodes is not known: %v", err).but(Warn, unasked(err))}
	case why != "":
		return []Finding{ok(check, "%s, for %s (%s)", why, job.Count(p.Job.Workers.Min, "worker"), place(p.Job, "workers.min")).but(Fail,
			"What the job is given there would not begin, and elsewhere is no room for all of it: mend what is said of these nodes, or free places on others.")}
	}
	return []Finding{ok(check, "%s for %s", placed(report), job.Count(p.Job.Workers.Min, "worker"))}
}

// placed says where a report would put what does not run yet.
func placed(r backend.Report) string {
	if len(r.Placements) == 0 {
		return "all of them run"
	}
	nodes := map[string]bool{}
	for _, p := range r.Placements {
		if p.Node != "" {
			nodes[p.Node] = true
		}
	}
	if len(nodes) == 0 {
		return "there is"
	}
	return "there is, on " + job.Count(len(nodes), "node")
}
