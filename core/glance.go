package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
)

// Glance is what can be told of a job while no scheduler looks after it: what the last one wrote down and, for a job that it left running, what the
// chief and the backend say. Names are those of View where both have something.
type Glance struct {
	Job       string `json:"job"`
	State     State  `json:"state"`
	Scheduler bool   `json:"scheduler"` // false, save where one runs that cannot be asked
	// Elsewhere is the scheduler that has the job, or had it last, where its state is in another folder, or in none any more: what is known in this one is older, and left out.
	Elsewhere *Keeper   `json:"elsewhere,omitempty"`
	Says      string    `json:"says"` // the state for people
	Now       time.Time `json:"now"`
	// Target is the number of workers that is wanted, Running how many the chief counts on; nil: not known.
	Target  *int `json:"target,omitempty"`
	Running *int `json:"running,omitempty"`
	// Checkpoint is the folder that what runs was started with; "" when nothing does.
	Checkpoint string      `json:"checkpoint,omitempty"`
	Manual     plan.Manual `json:"manual,omitzero"`
	// LastSample is what was observed last, Decision and LastChange are the last decision and the last that scaled; all may be nil.
	LastSample *Sample `json:"last_sample,omitempty"`
	Decision   *Record `json:"decision,omitempty"`
	LastChange *Record `json:"last_change,omitempty"`
	// Trained is how many records it has trained, Totals more of it: as the chief says or, where Past, as it said last. nil: not known.
	// Dead, Lost and AUC are of Totals, under the names that View has for them.
	Trained *uint64  `json:"trained_records,omitempty"`
	Dead    *uint64  `json:"dead_records,omitempty"`
	Lost    *uint64  `json:"lost_offsets,omitempty"`
	CutOff  *uint64  `json:"cut_off_offsets,omitempty"`
	AUC     *float64 `json:"auc,omitempty"`
	Totals  *Totals  `json:"totals,omitempty"`
	Past    bool     `json:"totals_past,omitempty"`
	// Snapshots are the records that its snapshots have, dead ones included, where they are fewer than it had trained when that was last asked; nil: they are not, or that is not known.
	Snapshots *uint64 `json:"snapshot_records,omitempty"`
	// Processes are those that there were last, whose logs a backend may still have.
	Processes []backend.ID `json:"processes,omitempty"`
	Workers   []WorkerView `json:"workers,omitempty"`
	Servers   []ServerView `json:"servers,omitempty"`
	Problems  []string     `json:"problems,omitempty"`
	// Stuck is what stands in the job's way until a person has done something about it, in a few words; "": nothing. Notes are what happened in the last day.
	Stuck string `json:"stuck,omitempty"`
	Notes []Note `json:"notes,omitempty"`
	// Rollbacks are those of the last day, the oldest first.
	Rollbacks []Rollback `json:"rollbacks,omitempty"`
	// LeftAway says what the last stop left on nodes that did not answer their cluster; empty: nothing, or the job has not stopped.
	LeftAway string `json:"left_away,omitempty"`
	// Unwritten says why the last stop did without its last snapshot, and what follows; empty: it did not, or the job has not stopped.
	Unwritten string `json:"unwritten,omitempty"`
	// written are the orders that the last scheduler wrote down, whatever the chief says.
	written plan.Manual
}

// Observed says that the last scheduler only observed (autoscale.mode = "observe").
func (g *Glance) Observed() bool { return g.Decision != nil && g.Decision.ObserveOnly }

// Holds says whether an order to scale, pause or resume is one that the next scheduler finds: written down or, a pause, kept by the chief.
func (g *Glance) Holds(o Order) bool {
	w := g.written
	switch o.Kind {
	case "scale":
		return w.Pinned && w.Target == o.Target
	case "auto":
		return !w.Pinned
	case "pause":
		return w.Paused || g.Manual.Paused
	default:
		return o.Kind == "resume" && !w.Paused && !g.Manual.Paused
	}
}

// Lister asks a backend what it has of a job; complete is false when it could not look everywhere.
type Lister func(ctx context.Context) (list []backend.Status, complete bool, err error)

// GlanceAt reads the state of a job's last scheduler in dir and, when the job was left running, asks its chief and, unless list is nil, the backend.
// The state is held for a moment only. state.ErrLocked: a scheduler has it.
func GlanceAt(ctx context.Context, dir, name string, list Lister) (*Glance, error) {
	g := &Glance{Job: name, Now: time.Now(), State: StateNeverStarted, Says: "no scheduler has taken it up yet", Target: new(int)}
	want, err := g.read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return g, nil
	}
	if err != nil || want == nil {
		return g, err
	}
	g.Target, g.Manual, g.written, g.Checkpoint = &want.Target, want.Manual, want.Manual, want.Checkpoint
	g.count(want.Totals)
	g.Past = g.Totals != nil && !g.Totals.Final
	g.Processes = want.Processes
	switch {
	case want.Stopped:
		j := &job.Job{Name: name}
		j.Checkpoint.Dir = want.LastCheckpoint
		model := ModelWords(want.LastCheckpoint, name)
		if has, less := snapshotsLack(j, g.Totals); less && g.Past {
			g.Snapshots = &has
		}
		diags := CheckModel(j, (*Wanted)(want))
		if diags.HasErrors() {
			g.Stuck = checkpointGone
			if diags[0].Summary == damagedCheckpoint {
				g.Stuck = "its checkpoint is damaged"
			}
			model = g.Stuck
		}
		if recreated(want.Standing) && g.Stuck == "" {
			g.Stuck = recreatedWords(want.Standing)
		}
		for _, d := range diags {
			g.Problems = append(g.Problems, d.Summary+": "+d.Detail)
		}
		released := "everything that it ran was released"
		g.Unwritten = want.Unwritten
		if g.LeftAway = want.LeftAway; g.LeftAway != "" {
			released = "released, but not all of it has been seen to end"
		}
		if want.Compacted {
			g.Stuck = cmp.Or(g.Stuck, topicCompacted)
			g.Problems = append(g.Problems, compactedLast)
		}
		g.State, g.Says, g.Checkpoint = StateStopped, released+"; "+model, ""
		g.Problems = slices.Concat(g.Problems, standingWords(want.Standing), Unrepaired(g.Rollbacks))
		for _, r := range rpc.CannotStart(want.LastCheckpoint, name, len(want.Servers)) {
			g.Problems = append(g.Problems, "when it ran last, "+cannotStart(r))
		}
		return g, nil
	case want.Target == 0 && len(want.Servers) == 0 && !want.Stopping:
		if g.Observed() {
			g.Says = "a scheduler has only observed it, and nothing of it was started"
		}
		return g, nil
	}
	s := &Scheduler{job: &job.Job{Name: name}, want: want, seen: &seen{}}
	s.job.Checkpoint.Dir, s.job.Backend.Name = want.Checkpoint, want.Backend
	s.glance(ctx, list)
	g.judge(s, list != nil)
	return g, nil
}

// count takes in what the job has trained; nil: that is not known.
func (g *Glance) count(t *Totals) {
	g.Totals, g.Trained, g.Dead, g.Lost, g.CutOff, g.AUC = t, nil, nil, nil, nil, nil
	if t != nil {
		g.Trained, g.Dead, g.Lost, g.CutOff, g.AUC = &t.Trained, &t.Dead, &t.Lost, &t.CutOff, t.AUC
	}
}

// read takes what the last scheduler wrote; want is nil when there is nothing.
func (g *Glance) read(dir string) (want *desired, err error) {
	st, err := state.OpenReader(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return g.readFrom(st)
}

func (g *Glance) readFrom(st *state.Store) (want *desired, err error) {
	d, err := savedDesired(st)
	if err != nil || d == nil {
		return nil, err
	}
	samples, err := state.Last[*Sample](st, state.Samples, 1)
	if err != nil {
		return nil, err
	}
	if len(samples) > 0 {
		g.LastSample = samples[0]
	}
	if g.Rollbacks, err = RecentRollbacks(st, g.Now); err != nil {
		return nil, err
	}
	losses, err := Losses(st, time.Time{})
	if err != nil {
		return nil, err
	}
	g.Notes = notes(g.Now, g.Rollbacks, losses, d)
	g.Decision, g.LastChange, err = lastRecords(st)
	return d, err
}

// glance asks the chief and the backend once, at the same time.
func (s *Scheduler) glance(ctx context.Context, list Lister) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	asked := make(chan struct{})
	go func() { // waited for below; ends with ctx
		defer close(asked)
		if list != nil {
			s.seen.list, s.seen.complete, s.seen.listErr = list(ctx)
		}
	}()
	token, err := readToken(s.job)
	if err != nil || token == "" {
		token = s.want.Token
	}
	link := &chiefLink{dir: s.job.Checkpoint.Dir, job: s.job.Name, token: token}
	s.seen.chief, s.seen.chiefErr = link.status(ctx)
	link.close()
	s.job.Servers.Count = len(s.want.Servers)
	s.seen.cannotStart = s.seen.servers(s.job)
	s.seen.modelGone = s.want.hasModel() && modelGone(s.job)
	<-asked
}

// judge says what becomes of a job that was not stopped.
func (g *Glance) judge(s *Scheduler, listed bool) {
	n := s.seen
	g.Workers, g.Servers = s.processes()
	alive := n.alive()
	if n.chiefErr == nil {
		g.Manual.Paused = n.chief.GetPaused()
		t := totalsOf(n.chief)
		if w := s.want.Totals; t != nil && w != nil {
			t.Skips, t.DeadLetter = w.Skips, w.DeadLetter
		}
		g.count(t)
		g.Past = false
		ready := n.ready(listed && n.listErr == nil && n.complete)
		g.Running = &ready
		g.Problems = append(g.Problems, chiefProblems(n.chief.GetProblems())...)
	} else {
		g.Problems = append(g.Problems, standingWords(s.want.Standing)...)
	}
	if n.modelGone {
		g.Problems = append(g.Problems, goneWords(s.job))
	}
	if s.want.Compacted {
		g.Problems = append(g.Problems, compactedLast)
	}
	for _, r := range n.cannotStart {
		g.Problems = append(g.Problems, cannotStart(r))
	}
	stuck := n.stuck()
	switch {
	case s.want.Stopping && !(listed && n.listErr == nil && n.complete && alive == 0):
		g.State, g.Says = StateStopping, s.want.ended()+", and no scheduler goes on with it"
		if n.chiefErr == nil && *g.Running > 0 && n.idle() == 0 {
			trains := "train"
			if *g.Running == 1 {
				trains = "trains"
			}
			g.Says += fmt.Sprintf("; %s still %s", job.Count(*g.Running, "worker"), trains)
		} else if left := n.aliveAs(backend.RoleWorker); n.chiefErr != nil && left > 0 {
			g.Says += fmt.Sprintf("; there still: %s", job.Count(left, "worker"))
		}
	case n.chiefErr == nil && g.Manual.Paused:
		g.State, g.Says = StatePaused, "it stays paused, and no scheduler looks after it"
	case stuck != "" && !(listed && n.listErr == nil && n.complete && alive == 0):
		g.Stuck, g.State, g.Says = stuck, StateStuck, stuck+", and no scheduler looks after it"
	case n.chiefErr == nil && *g.Running > 0 && n.idle() > 0:
		are := "are"
		if *g.Running == 1 {
			are = "is"
		}
		g.State, g.Says = StateUnknown, fmt.Sprintf("%d of %s %s there, nothing has been trained for %s, and no scheduler looks after it", *g.Running, job.Count(*g.Target, "worker"), are, job.Length(n.idle()))
	case n.chiefErr == nil && *g.Running > 0:
		g.State, g.Says = StateRunning, fmt.Sprintf("it trains on without a scheduler, with %d of %s", *g.Running, job.Count(*g.Target, "worker"))
	case n.chiefErr == nil && listed && n.listErr == nil && n.complete && n.aliveAs(backend.RoleWorker) == 0:
		g.Stuck = "no worker runs"
		g.State, g.Says = StateStuck, g.Stuck+", and no scheduler looks after it, which would start one"
	case n.chiefErr == nil:
		g.State, g.Says = StateUnknown, "its chief answers, no worker trains, and no scheduler looks after it"
	case !listed:
		g.State, g.Says = StateUnknown, "it was not stopped, and its chief does not answer"
	case n.listErr != nil || !n.complete:
		g.State, g.Says = StateUnknown, "it was not stopped, its chief does not answer, and neither does the backend"
	case alive > 0:
		g.State, g.Says = StateUnknown, fmt.Sprintf("%d of its processes live, its chief does not answer, and no scheduler looks after it", alive)
	default:
		g.State, g.Says = StateGone, s.want.ended()+", and nothing of it runs any more; "+ModelWords(s.want.Checkpoint, g.Job)
	}
	if n.chiefErr != nil && !silent(n.chiefErr) {
		g.Problems = append(g.Problems, "the chief: "+n.chiefErr.Error())
	}
	if n.listErr != nil {
		g.Problems = append(g.Problems, n.unlisted())
	}
}

// ended says what became of a job that has not stopped and has no scheduler.
func (d *desired) ended() string {
	switch {
	case d.Stopping && d.Forced:
		return "its stop by force was interrupted"
	case d.Stopping:
		return "its stop was interrupted"
	}
	return "it was not stopped"
}

// ready counts the members that train: whom the chief counts on and has heard lately, and, where everything is listed, who lives.
func (n *seen) ready(listed bool) int {
	now := n.chief.GetNowUnixMs()
	count := 0
	for _, m := range n.chief.GetMembers() {
		if !counted(m) {
			continue
		}
		if beat := m.GetLastBeatUnixMs(); beat > 0 && now-beat > silentMember.Milliseconds() {
			continue
		}
		id := backend.ID{Role: backend.RoleWorker, Rank: int(m.GetRank()), Generation: m.GetGeneration()}
		if st, found := n.allocation(id); listed && !(found && st.State.Live()) {
			continue
		}
		count++
	}
	return count
}

const (
	// silentMember is how long a member may be silent and be counted on: some beats.
	silentMember = 3 * time.Second
	// idleTroubled and idleBehind are how long nothing may be trained, with a problem and with records that wait, before a job counts as one that
	// does not train.
	idleTroubled = 5 * time.Second
	idleBehind   = 15 * time.Second
)

// idle is for how long a job that has something to train, or a problem, has trained nothing; 0: it trains, or there is nothing to train.
func (n *seen) idle() time.Duration {
	last, behind := n.chief.GetStartedUnixMs(), false
	for _, p := range n.chief.GetPartitions() {
		last = max(last, p.GetLastAdvanceUnixMs())
		behind = behind || p.GetEnd() > p.GetApplied()
	}
	if last == 0 || n.chief.GetNowUnixMs() == 0 || n.chief.GetRepairing() {
		return 0
	}
	quiet := time.Duration(n.chief.GetNowUnixMs()-last) * time.Millisecond
	if quiet > idleBehind && behind || quiet > idleTroubled && len(n.chief.GetProblems()) > 0 {
		return quiet.Round(time.Second)
	}
	return 0
}

// ModelWords says whether the checkpoint of a job holds a model, by looking for snapshots. dir is checkpoint.dir; "" where it is not known.
func ModelWords(dir, name string) string {
	if dir == "" {
		return "what it trained is in its checkpoint"
	}
	folder := filepath.Join(dir, name)
	if _, err := os.ReadDir(folder); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return fmt.Sprintf("whether %s holds its model cannot be seen: %v", folder, err)
	}
	if hasSnapshot(folder) {
		return "its model is in " + folder
	}
	return fmt.Sprintf("there is no model of it: no snapshot is in %s", folder)
}

// hasSnapshot says that a job's checkpoint folder has a snapshot of a tablet.
func hasSnapshot(folder string) bool {
	found, _ := filepath.Glob(filepath.Join(literal(folder), "tablets", "*", "[^.]*.snap")) // the pattern is a good one
	return len(found) > 0
}

// literal is a path as a pattern that matches it alone.
func literal(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}
