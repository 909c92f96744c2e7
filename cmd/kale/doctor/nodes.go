package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kale-sched/kale/cmd/internal/folder"
	"github.com/kale-sched/kale/cmd/internal/probe"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
)

const (
	nodesCheck = "nodes"
	// letGoLimit bounds the end of the probes, after they have answered or not.
	letGoLimit = 30 * time.Second
	// drainLimit is the part of it after which probes are ended by force.
	drainLimit = 12 * time.Second
	// strandedLimit is yet another, for what has not begun on its node: where the node answers that ends at once.
	strandedLimit = 5 * time.Second
	// removeLimit is another part of it, for what is left on the disk.
	removeLimit = 2 * time.Second
	// anotherLimit is how long one more node may take to be found once a probe runs: a cluster may have no other that is free. It is at most half of the time that
	// is left, so that those that run can tell all that they find.
	anotherLimit = 20 * time.Second
	// settleLimit is how long a file may take to be seen on other nodes, from when all probes have written.
	settleLimit = 10 * time.Second
	// fullLimit is how long a probe waits for its place where the cluster says that there is none: one that ends just then is told to us by then.
	fullLimit = 8 * time.Second
	// probeEvery is how often the cluster is asked how the probes do.
	probeEvery = 300 * time.Millisecond
)

// expedition is the probes of one look at the nodes.
type expedition struct {
	p       Patient
	b       backend.Backend
	run     string
	over    time.Time // when neither this process nor a probe of its is at work any more, whatever becomes of it
	ranks   int       // the first of those that its probes have
	meet    string    // address that probes call back
	ours    bool      // what answers there is this process
	probes  []*probed
	unfound string   // why there is no further node
	gpus    []string // the nodes that have GPUs, as far as the backend tells
	unheard []string // the nodes that do not answer, by the backend's word before there were probes
	only    bool     // the backend tells of one node, and of no other
}

// probed is one probe and what came of it.
type probed struct {
	id     backend.ID
	index  int // from 0; its rank is another
	status backend.Status
	lines  []probe.Line
	rest   []string // of its log
	noLog  error    // why the log cannot be read
	first  string   // the node that it was placed on first
	late   bool     // it has a place, and had not begun there when the time for that was over
	lost   bool     // it has ended without a word, and its node does not answer
}

// moved reports whether the cluster has given the probe up where it was placed first, and placed it elsewhere, where another one may be.
func (o *probed) moved() bool {
	return o.first != "" && o.status.Node != "" && o.status.Node != o.first
}

// absent reports whether the probe has a place, and nothing is to be expected of it: it does not begin there, or its node does not answer, with which it may have been
// given up.
func (o *probed) absent() bool {
	return o.moved() || !o.told() && (o.status.Away || o.lost || o.late && o.status.State.Live() && o.status.State != backend.StateRunning)
}

// present are the probes of which something is to be expected, or has come.
func (e *expedition) present() (out []*probed) {
	for _, one := range e.probes {
		if !one.absent() {
			out = append(out, one)
		}
	}
	return out
}

// nodes starts probes on as many nodes as there are, up to probe.Most, and judges what they say.
func (p Patient) nodes(ctx context.Context, b backend.Backend) (out []Finding) {
	if p.Trainer == "" {
		if p.local() {
			return []Finding{{Check: nodesCheck, State: Skip, Says: "there is no trainer to try them with"}}
		}
		p.Trainer = "kale-trainer"
	}
	if p.local() { // what this backend remembers lies with the scheduler's own: the probe's is kept elsewhere, and nothing stays
		aside, err := p.aside(ctx, b)
		if err != nil {
			return []Finding{ok(nodesCheck, "%v", err).but(Fail, "See that the folder for temporary files can be written ($TMPDIR).")}
		}
		defer func() {
			if err := removeSoon(ctx, aside); err != nil {
				out = append(out, ok(nodesCheck, "%v", err).but(Warn, "Remove it."))
			}
		}()
	}
	over := p.over()
	e := &expedition{p: p, b: b, run: leavable(over), over: over}
	e.ranks = freeRanks(e.clear(ctx))
	lis, address, err := core.ListenAsScheduler(ctx, p.Job)
	if err != nil {
		return []Finding{ok(nodesCheck, "%v", err).but(Fail, "Nodes call the scheduler at that address: correct the job's network block, or free the port.")}
	}
	if lis == nil && address != "" && !p.scheduled(ctx) {
		out = append(out, ok(nodesCheck, "another process has the port of network.listen (%s) at %s", p.Job.Network.Listen, place(p.Job, "network.listen")).
			but(Fail, "kale run would not start: free the port, or choose another."))
	}
	if e.meet = address; lis != nil {
		e.ours = true
		answering := make(chan struct{})
		go func() { defer close(answering); e.answer(lis) }()
		defer func() { _ = lis.Close(); <-answering }()
	}
	missing := e.missingFolders()
	defer func() { // also when ctx has ended: what was started is let go
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), letGoLimit-2*removeLimit)
		defer cancel()
		left, err := e.letGo(bounded)
		if len(left) > 0 {
			out = append(out, leftThere(left))
		}
		if err != nil {
			out = append(out, ok(nodesCheck, "the probes could not be released: %v", err).but(Warn,
				fmt.Sprintf("They end by themselves after %v; look for workloads of the role %q.", p.ProbeLimit+letGoLimit, core.RoleProbe)))
		}
		if ctx.Err() == nil {
			out = append(out, e.useless(bounded)...)
		}
		_, _ = b.Forget(bounded, p.Job.Name, core.RoleProbe) // what cannot be removed now, as beside another look, goes with the next one or with the job
		e.sweep(missing)
	}()
	working, cancel := context.WithTimeout(ctx, p.ProbeLimit)
	defer cancel()
	if err := e.send(working); err != nil {
		return []Finding{e.notPlaced(ctx, err, working.Err() != nil)}
	}
	e.gather(working)
	e.findLost(ctx)
	if ctx.Err() != nil {
		return []Finding{{Check: nodesCheck, State: Skip, Says: "interrupted"}}
	}
	return e.judge()
}

// findLost finds the probes that the cluster has given up with their nodes.
func (e *expedition) findLost(ctx context.Context) {
	inv, err := e.b.Inventory(ctx)
	if err != nil {
		return // then they are told of as they ended
	}
	for _, one := range e.probes {
		one.lost = !one.told() && !one.status.State.Live() && slices.Contains(inv.Silent, one.status.Node)
	}
}

// useless are the findings on the nodes that the room counted and that are of no use: those that the cluster has found not to answer meanwhile, for which it takes its
// time, and whether the job has room without them and those where no probe began.
func (e *expedition) useless(ctx context.Context) []Finding {
	var lost []string
	for _, one := range e.probes {
		if one.absent() && !slices.Contains(lost, one.name()) {
			lost = append(lost, one.name())
		}
	}
	inv, _ := e.b.Inventory(ctx) // of one that cannot be asked no further node is known
	late, found := silentNodes(inv, slices.Concat(e.unheard, lost))
	return append(found, e.p.roomWithout(ctx, e.b, append(lost, late...))...)
}

// aside has the backend keep what it knows of the job in a folder of its own from now on.
func (p Patient) aside(ctx context.Context, b backend.Backend) (dir string, err error) {
	clearFolders(filepath.Join(os.TempDir(), asidePrefix))
	if dir, err = os.MkdirTemp("", asidePrefix+leavable(p.over())+"-"); err != nil {
		return "", err
	}
	j := *p.Job
	j.Checkpoint.Dir = dir // beside which it notes where that folder is
	if _, err = core.ConfigureBackend(ctx, b, &j, dir); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// removeSoon removes a folder in which processes that end now may still write.
func removeSoon(ctx context.Context, dir string) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeLimit)
	defer cancel()
	for {
		err := os.RemoveAll(dir)
		if err == nil {
			return nil
		}
		select {
		case <-bounded.Done():
			return err
		case <-time.After(probeEvery):
		}
	}
}

// answer tells who calls that this is the process that sent the probes, until lis is closed.
func (e *expedition) answer(lis net.Listener) {
	for {
		conn, err := lis.Accept()
		if err != nil {
			return
		}
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(conn, e.run+"\n") // a failure shows on the other side
		_ = conn.Close()
	}
}

// missingFolders are those of the checkpoint folder's path that this machine has not, the deepest first.
func (e *expedition) missingFolders() (out folder.Made) {
	for d := e.p.Job.Checkpoint.Dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil || d == filepath.Dir(d) {
			return out
		}
		out = append(out, d)
	}
}

// sweep removes what the probes have left where this machine sees it: each removes its own, when it is let.
func (e *expedition) sweep(missing folder.Made) {
	dir := probe.Folder(e.p.Job.Checkpoint.Dir, e.run)
	if _, err := os.Stat(dir); err != nil {
		return // then whatever is above it is not the probes'
	}
	_ = os.RemoveAll(dir)
	missing.Remove()
}

// send starts one probe after the other, each on a node that has none yet. One that has a place and does not begin there is left to itself. The error: not even one
// was placed.
func (e *expedition) send(ctx context.Context) error {
	generation := uint64(e.over.UnixMilli()) // whoever comes later sees by it whether anybody awaits the probe
	most := probe.Most
	if e.p.local() {
		most = 1
	}
	var used []string
	known := e.knownNodes(ctx)
	for i := range most {
		if i > 1 && known > 0 && i >= known || i > 0 && e.only {
			return nil // every node that the backend tells of has one
		}
		w, err := core.ProbeWorkload(core.Options{Job: e.p.Job, Trainer: e.p.Trainer, Env: e.p.Env}, core.Probe{
			Run: e.run, Index: i, Rank: e.ranks + i, Generation: generation, Limit: e.p.ProbeLimit + letGoLimit, Meet: e.meet, Avoid: used,
		})
		if err != nil {
			return err
		}
		placing, half := ctx, e.p.ProbeLimit/2
		if end, bound := ctx.Deadline(); bound {
			half = time.Until(end) / 2
		}
		if i > 0 {
			bounded, cancel := context.WithTimeout(ctx, min(anotherLimit, half))
			defer cancel()
			placing = bounded
		}
		one := &probed{id: w.ID, index: i}
		e.probes = append(e.probes, one) // before it is asked for: an answer that is lost must not lose the probe
		if err := e.place(placing, one, w, half); err != nil {
			if one.late = one.status.Node != "" && (one.status.State.Live() || one.moved()) && ctx.Err() == nil; one.late {
				used = append(used, one.name())
				continue
			}
			if i == 0 {
				return err
			}
			e.unfound = err.Error()
			e.drop(ctx, one)
			return nil
		}
		if slices.Contains(used, one.status.Node) {
			e.unfound = "the backend has placed two probes on " + one.status.Node
			e.drop(ctx, one)
			return nil
		}
		used = append(used, one.status.Node)
	}
	return nil
}

// knownNodes counts the nodes that the backend tells of, 0 when it does not: there may be others, without devices.
func (e *expedition) knownNodes(ctx context.Context) int {
	inv, err := e.b.Inventory(ctx)
	if err != nil {
		return 0
	}
	e.unheard = inv.Silent
	e.only = inv.MemoryBytes > 0 && inv.MemoryBytes == inv.NodeMemoryBytes
	names := map[string]bool{}
	for _, d := range inv.Devices {
		if names[d.Node] = true; !strings.HasPrefix(d.ID, "slot-") {
			e.gpus = append(e.gpus, d.Node)
		}
	}
	return len(names)
}

// drop releases a probe that is not needed, and forgets it where that is on record.
func (e *expedition) drop(ctx context.Context, one *probed) {
	if err := e.b.Release(ctx, e.p.Job.Name, []backend.ID{one.id}, backend.Forced); err != nil {
		return // letGo tries again
	}
	e.probes = slices.DeleteFunc(e.probes, func(p *probed) bool { return p == one })
}

// place asks for a probe and waits until it has begun on a node, or has ended. Where the cluster has no place now, it waits for fullLimit, unless the patient insists;
// where it has one, and the probe does not begin there, for begins.
func (e *expedition) place(ctx context.Context, one *probed, w backend.Workload, begins time.Duration) error {
	why, began := "the cluster says nothing", time.Now()
	var placed time.Time
	for full := false; ; {
		statuses, err := e.b.Ensure(ctx, e.p.Job.Name, []backend.Workload{w})
		switch {
		case ctx.Err() != nil: // what was known before says more
		case err == nil && statuses[0].Err != nil:
			one.status, err = statuses[0], statuses[0].Err
			fallthrough
		case err != nil:
			if why = err.Error(); !passing(err) {
				return err
			}
		default:
			one.status = statuses[0]
			if one.first = cmp.Or(one.first, one.status.Node); one.moved() {
				return fmt.Errorf("it was moved off %s", one.first)
			}
			if one.status.State == backend.StateRunning && one.status.Node != "" || one.status.State != backend.StatePending && one.hasEnded() {
				return nil
			}
			why = cmp.Or(one.status.Reason, why)
		}
		switch {
		case one.status.Node == "":
			placed = time.Time{}
		case placed.IsZero():
			placed = time.Now()
		case time.Since(placed) > begins:
			return fmt.Errorf("%s (%s)", why, one.state())
		}
		if waited := time.Since(began); !e.p.Insists && placed.IsZero() && waited > fullLimit/2 {
			if !full {
				full = e.full(ctx, w)
			}
			if full && waited > fullLimit {
				return &fullError{fmt.Sprintf("%s (%s)", why, one.state())}
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s (%s)", why, one.state())
		case <-time.After(probeEvery):
		}
	}
}

// fullError is that a cluster has no place for a probe now, and why.
type fullError struct{ why string }

func (e *fullError) Error() string { return e.why }

// full says that the cluster has no place for a probe like this one, by its own word: not where it cannot tell.
func (e *expedition) full(ctx context.Context, w backend.Workload) bool {
	w.ID.Rank += probe.Most // one that waits already would be told as placed
	report, err := e.b.Plan(ctx, e.p.Job.Name, []backend.Workload{w})
	return err == nil && !report.Fits()
}

// hasEnded says that its process has ended on its node, whether it is started again there or not.
func (o *probed) hasEnded() bool {
	return !o.status.State.Live() || o.status.Node != "" && o.status.Restarts > 0
}

func (o *probed) state() string {
	if o.status.State == "" {
		return "not accepted"
	}
	return string(o.status.State)
}

// passing says that asking again may help.
func passing(err error) bool {
	switch backend.CodeOf(err) {
	case backend.NoCapacity, backend.RetryAfter, backend.Conflict, backend.Unavailable:
		return true
	}
	return false
}

// gather reads the probes' logs until they have said everything, or can say no more. One of which nothing is to be expected is waited for only where there is no other.
func (e *expedition) gather(ctx context.Context) {
	var settled time.Time // when all had written
	for {
		if list, _, err := e.b.List(ctx, e.p.Job.Name); err == nil {
			for _, one := range e.probes {
				if i := slices.IndexFunc(list, func(s backend.Status) bool { return s.ID == one.id }); i >= 0 {
					one.status = list[i]
				}
			}
		}
		for _, one := range e.probes {
			e.listen(ctx, one)
		}
		present := e.present()
		told, seen := len(present) > 0, true
		for _, one := range present {
			told = told && (one.told() && !e.awaitsCUDA(one) || !one.status.State.Live() || one.lacksTrainer())
			seen = seen && (len(one.saw()) >= len(present)-1 || !one.status.State.Live() || one.lacksTrainer())
		}
		if told && settled.IsZero() {
			settled = time.Now()
		}
		if told && (seen || time.Since(settled) > settleLimit) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(probeEvery):
		}
	}
}

// listen reads a probe's log.
func (e *expedition) listen(ctx context.Context, one *probed) {
	log, err := e.b.Logs(ctx, e.p.Job.Name, one.id, backend.LogOptions{})
	if err == nil {
		var lines []probe.Line
		var rest []string
		if lines, rest, err = probe.Read(log, e.run); err == nil && len(lines) >= len(one.lines) {
			one.lines, one.rest = lines, slices.DeleteFunc(rest, func(line string) bool { return strings.HasPrefix(line, backend.LogBoundary) }) // which is no word of it
		}
		err = errors.Join(err, log.Close())
	}
	if ctx.Err() == nil {
		one.noLog = err
	}
}

// letGo releases the probes and waits for their end: first they are asked, so that they remove what they wrote. left are those whose end their nodes do not tell.
func (e *expedition) letGo(ctx context.Context) (left []*probed, err error) {
	var ids, strange []backend.ID
	for _, one := range e.probes {
		if one.absent() {
			strange = append(strange, one.id)
		} else {
			ids = append(ids, one.id)
		}
	}
	if len(strange) > 0 {
		err = e.b.Release(ctx, e.p.Job.Name, strange, backend.Forced)
	}
	if len(ids) > 0 {
		err = errors.Join(err, e.end(ctx, ids))
	}
	if err == nil && len(strange) > 0 {
		soon, cancel := context.WithTimeout(ctx, strandedLimit)
		_ = e.gone(soon, strange) // what lives still is left
		cancel()
	}
	list, _, failed := e.b.List(context.WithoutCancel(ctx), e.p.Job.Name)
	if failed != nil {
		return nil, errors.Join(err, failed)
	}
	for _, one := range e.probes {
		i := slices.IndexFunc(list, func(st backend.Status) bool { return st.ID == one.id })
		if i >= 0 && (list[i].State.Live() && slices.Contains(strange, one.id) || list[i].Away) {
			left = append(left, one)
		}
	}
	return left, err
}

// end asks the workloads to end, and after a while makes them.
func (e *expedition) end(ctx context.Context, ids []backend.ID) error {
	err := e.b.Release(ctx, e.p.Job.Name, ids, backend.Drained)
	if err == nil {
		drained, cancel := context.WithTimeout(ctx, drainLimit)
		err = e.gone(drained, ids)
		cancel()
		if err == nil {
			return nil
		}
	}
	if err := e.b.Release(ctx, e.p.Job.Name, ids, backend.Forced); err != nil {
		return err
	}
	return e.gone(ctx, ids)
}

// gone waits until none of the workloads lives, but for those on nodes that are away.
func (e *expedition) gone(ctx context.Context, ids []backend.ID) error {
	for {
		list, complete, err := e.b.List(ctx, e.p.Job.Name)
		if err == nil && !complete {
			err = errors.New("the backend does not see everything")
		}
		for _, st := range list {
			if slices.Contains(ids, st.ID) && st.State.Live() && !st.Away {
				err = errors.Join(err, fmt.Errorf("%s is %s still", st.ID, st.State))
			}
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(probeEvery):
		}
	}
}
