package core

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/pool"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/estimator"
)

// Keys of the state's small things.
const (
	desiredKey = "desired"
	changeKey  = "change" // the last decision that scaled, a *Record
)

// desiredVersion is the version of the desired state's form.
const desiredVersion = 2

// desired is what the scheduler wants, and the little else that must survive its restart in the middle of an action. It is saved before it is acted on.
type desired struct {
	Version int    `json:"version"`
	Token   string `json:"token"`
	// Target is the number of workers in force; 0 before the first decision.
	Target int `json:"target"`
	// Ranks are those of the wanted workers, ascending, Target of them. (In version 1 they were 0 to Target−1.)
	Ranks []int `json:"ranks,omitempty"`
	// Workers and Servers give the generation that is wanted, by rank; a rank keeps its last one when it is not wanted.
	Workers map[int]uint64 `json:"workers"`
	Servers map[int]uint64 `json:"servers"`
	// Renewals are wanted workers that the cluster will end, with their successors; LastRenewal is the last one that was done.
	Renewals    []renewal `json:"renewals,omitempty"`
	LastRenewal *Renewed  `json:"last_worker_renewal,omitempty"`
	// ServerRenewal is the one under way; LastServerRenewal the one before; ServerPauses how long servers were away for it, oldest first.
	ServerRenewal     *ServerRenewal  `json:"server_renewal,omitempty"`
	LastServerRenewal *ServerRenewal  `json:"last_server_renewal,omitempty"`
	ServerPauses      []time.Duration `json:"server_pauses,omitempty"`
	// EndedServers are those that the cluster ended before it was their turn, and whose successors are not up yet.
	EndedServers []ServerRenewal `json:"ended_servers,omitempty"`
	// ServerWaits are the last measured waits of servers' successors for their places, oldest first, the last of them at ServerWaitedAt.
	ServerWaits    []time.Duration `json:"server_waits,omitempty"`
	ServerWaitedAt time.Time       `json:"server_waited_at,omitzero"`
	// HandOvers tell of the last processes that others took over from before the cluster ended them, and of restores from an older checkpoint, oldest first.
	HandOvers []Note `json:"hand_overs,omitempty"`
	// Remarked is of when the last of a process's remarks was that was taken down as a note, by its ID.
	Remarked map[string]time.Time `json:"remarked,omitempty"`
	// Draining are the workers on their way out.
	Draining []leaving `json:"draining,omitempty"`
	// Rescale is the one under way.
	Rescale *Rescale `json:"rescale,omitempty"`
	// Restart is the target that a pause-and-restart rescale will have once everybody has left; 0: none is under way.
	Restart int `json:"restart,omitempty"`
	// PausedAt is when it was paused last; zero: that is not known, as of a pause that only the chief knew of.
	PausedAt time.Time   `json:"paused_at,omitzero"`
	Manual   plan.Manual `json:"manual"`
	// Policy is the policy's own state.
	Policy json.RawMessage `json:"policy,omitempty"`
	Gate   json.RawMessage `json:"gate,omitempty"`
	// PoolWait is how long the job has waited for more than its pool guarantees it, and its turn.
	PoolWait pool.Wait `json:"pool_wait,omitzero"`
	// PoolAsked is what the job has asked its pool for lately, needed and held.
	PoolAsked pool.Asked `json:"pool_asked,omitzero"`
	// Retraining is what is known of forecast models that were trained anew; nil: nothing.
	Retraining *retraining `json:"retraining,omitempty"`
	// Throughput is what the throughput model has learnt.
	Throughput estimator.OnlineState `json:"throughput"`
	// Taught says of which workers that was learnt; nil: an older scheduler did not say.
	Taught *taught `json:"taught,omitempty"`
	// Checkpoint is the folder that what runs was started with; empty when nothing does.
	Checkpoint string `json:"checkpoint,omitempty"`
	// Backend is the one on which it was started; empty when nothing runs.
	Backend string `json:"backend,omitempty"`
	// Started is what of the job file the processes that are wanted were started with; those that an older version started are not in it.
	Started []started `json:"started,omitempty"`
	// Policies is what the chief does with records that cannot be trained, as it said last; nil: it has not said.
	Policies *rpc.Policies `json:"policies,omitempty"`
	// LastCheckpoint is checkpoint.dir when the job stopped last.
	LastCheckpoint string `json:"last_checkpoint,omitempty"`
	// Trained: this job's chief was seen with a worker since the job was started; from then on its silence is a fault and not a beginning.
	Trained bool `json:"trained,omitempty"`
	// Standing is what partitions stand at, as the chief said last: a job that has stopped still has that before it.
	Standing []*rpc.PartitionProblem `json:"standing,omitempty"`
	// Compacted: the topic was compacted when its configuration was read last; CompactedOnce: at some time.
	Compacted     bool `json:"compacted,omitempty"`
	CompactedOnce bool `json:"compacted_once,omitempty"`
	// Partitions is how many the topic had when it was looked at last; Growth is when it last got more, nil: not that we know.
	Partitions int     `json:"partitions,omitempty"`
	Growth     *growth `json:"growth,omitempty"`
	// Totals are what was trained, as the chief said last; Processes those that were there last, or when the job was stopped.
	Totals    *Totals      `json:"totals,omitempty"`
	Processes []backend.ID `json:"processes,omitempty"`
	// Heard are the processes that have answered a scheduler, by ID.
	Heard map[string]life `json:"heard,omitempty"`
	// Unplaced says since when wanted workers wait for a place, by rank; Ceiling is what followed from it, nil: nothing.
	Unplaced map[int]time.Time `json:"unplaced,omitempty"`
	Ceiling  *Ceiling          `json:"ceiling,omitempty"`
	// Waits are the last measured waits in the cluster's queue, oldest first, the last of them at WaitedAt (zero: an older scheduler did not say). Joins are without them.
	Waits    []time.Duration `json:"waits,omitempty"`
	WaitedAt time.Time       `json:"waited_at,omitzero"`
	// Drains are the last measured times that workers took to leave, oldest first.
	Drains []time.Duration `json:"drains,omitempty"`
	// Joins and Gaps are the last measured ones, oldest first.
	Joins []time.Duration `json:"joins,omitempty"`
	Gaps  []time.Duration `json:"gaps,omitempty"`
	// LastJoin divides the last of Joins.
	LastJoin *Join `json:"last_join,omitempty"`
	// Stopping: the job is being stopped; Stopped: it has been.
	Stopping bool `json:"stopping,omitempty"`
	// Forced: the stop waits for nothing.
	Forced bool `json:"forced,omitempty"`
	// Snapshotted: the last snapshot of the stop has been written.
	Snapshotted bool `json:"snapshotted,omitempty"`
	Stopped     bool `json:"stopped,omitempty"`
	// LeftAway says what the last stop left on nodes that did not answer their cluster; empty: nothing.
	LeftAway string `json:"left_away,omitempty"`
	// Unwritten says why the last stop did without its last snapshot, and what follows; empty: it did not, or nothing was trained since the one before.
	Unwritten string `json:"unwritten,omitempty"`
	// LastStop is when the job stopped last, also after it has been taken up again.
	LastStop time.Time `json:"last_stop,omitzero"`
}

// leaving is a worker that drains.
type leaving struct {
	Rank       int       `json:"rank"`
	Generation uint64    `json:"generation"`
	Since      time.Time `json:"since"`
	// Asked is when the chief was asked to drain it; not yet, again, while the chief is away.
	Asked time.Time `json:"asked,omitzero"`
	// Released: the backend was told, and took it. Drained: before that it had handed over all that it held, or nothing that it does counts any more (holdsNothing).
	Released bool `json:"released,omitempty"`
	Drained  bool `json:"drained,omitempty"`
	// AwaySince is since when its node has not answered its cluster, as seen once it was released; zero: it does.
	AwaySince time.Time `json:"away_since,omitzero"`
	// Relief takes its place, nil: nobody does.
	Relief *relief `json:"relief,omitempty"`
}

// relief is the worker that must be ready before another one leaves, and until when that waits for it.
type relief struct {
	Rank   int       `json:"rank"`
	Latest time.Time `json:"latest"`
}

func (l leaving) id() backend.ID {
	return backend.ID{Role: backend.RoleWorker, Rank: l.Rank, Generation: l.Generation}
}

func newDesired(token string) *desired {
	return &desired{Version: desiredVersion, Token: token, Workers: map[int]uint64{}, Servers: map[int]uint64{}}
}

// open makes a saved state ready to be acted on by a new scheduler. Whoever runs a job whose stop was interrupted wants it to run; who stops it goes on, by force where
// that one was: it has begun to end what a stop in order needs.
func (d *desired) open(stop bool) {
	d.migrate()
	d.Forced = d.Forced && d.Stopping && stop
	d.Stopped, d.Stopping, d.Snapshotted = false, false, false
	if d.Workers == nil {
		d.Workers = map[int]uint64{}
	}
	if d.Servers == nil {
		d.Servers = map[int]uint64{}
	}
}

// trains notes that a worker trains or has trained in this run: what was said of the stop before, of its last snapshot and of what it left, is past.
func (d *desired) trains() {
	if !d.Trained {
		d.Trained, d.Unwritten, d.LeftAway = true, "", ""
	}
}

// measuredKept is how many measurements of a join or a gap are kept; their median counts.
const measuredKept = 5

func keepLast(v []time.Duration, d time.Duration) []time.Duration {
	v = append(v, d)
	return slices.Clone(v[max(0, len(v)-measuredKept):])
}

func measured(v []time.Duration, assumed time.Duration) plan.Measured {
	if len(v) == 0 {
		return plan.Measured{Value: assumed}
	}
	return plan.Measured{Value: median(v), Samples: len(v)}
}

// migrate brings a state of an older version to this one's form.
func (d *desired) migrate() {
	if d.Version != 1 {
		return
	}
	d.Version, d.Ranks = desiredVersion, prefix(d.Target)
	if r := d.Rescale; r != nil {
		r.Ranks = prefix(max(r.From, r.To))[min(r.From, r.To):]
	}
}

// setTarget makes n workers wanted. More get the lowest ranks that are free, each with a new generation, since the one before may still be draining; of fewer,
// leave says who has to go. It returns the ranks that came or went.
func (d *desired) setTarget(n int, now time.Time, leave func(n int) []int) (changed []int) {
	if n < len(d.Ranks) {
		d.endRenewals(now)
		changed = leave(len(d.Ranks) - n)
		slices.Sort(changed)
		for _, rank := range changed {
			d.leave(rank, now)
		}
		d.Ranks = slices.DeleteFunc(d.Ranks, func(rank int) bool { return slices.Contains(changed, rank) })
	}
	taken := d.wantedRanks()
	for rank := 0; len(d.Ranks) < n; rank++ {
		if !slices.Contains(taken, rank) {
			d.Workers[rank]++
			d.Ranks = append(d.Ranks, rank)
			changed = append(changed, rank)
		}
	}
	slices.Sort(d.Ranks)
	slices.Sort(changed)
	d.Target = n
	return changed
}

// all says that everybody leaves.
func (d *desired) all(int) []int { return slices.Clone(d.Ranks) }

func (d *desired) leave(rank int, now time.Time) {
	if slices.ContainsFunc(d.Draining, func(l leaving) bool { return l.Rank == rank && l.Generation == d.Workers[rank] }) {
		return
	}
	d.Draining = append(d.Draining, leaving{Rank: rank, Generation: d.Workers[rank], Since: now})
}

// adopt takes over what runs and is not known: all of it when the scheduler's own state was lost, what is newer when the state is an old one. It
// reports whether it learnt anything. What it knows and does not want, it leaves alone.
func (d *desired) adopt(list []backend.Status) (changed bool) {
	var found []backend.ID
	for _, s := range list {
		live := s.State.Live() && s.State != backend.StateStopping
		switch s.ID.Role {
		case backend.RoleServer:
			if s.ID.Generation > d.Servers[s.ID.Rank] && !succeeds(list, s) {
				d.Servers[s.ID.Rank], changed = beyond(s), true
				found = append(found, s.ID)
			}
		case backend.RoleWorker:
			if s.ID.Generation <= d.Workers[s.ID.Rank] {
				continue
			}
			d.Workers[s.ID.Rank], changed = s.ID.Generation, true
			found = append(found, s.ID)
			if live {
				d.trains()
				if !slices.Contains(d.Ranks, s.ID.Rank) {
					d.Ranks = append(d.Ranks, s.ID.Rank)
				}
			}
		}
	}
	found = slices.DeleteFunc(found, d.noted)
	if len(found) > 0 {
		d.Started = append(d.Started, started{Processes: found})
	}
	slices.Sort(d.Ranks)
	d.Target = len(d.Ranks)
	return changed
}

// beyond is the generation of a process that is taken over: of one that is on its way out, the next one.
func beyond(st backend.Status) uint64 {
	if st.State == backend.StateStopping {
		return st.ID.Generation + 1
	}
	return st.ID.Generation
}

// giveUp takes back, of an old state, the workers that somebody has let go since: where some of the wanted ones run, and others do not. It reports whether
// there are any.
func (d *desired) giveUp(list []backend.Status) (changed bool) {
	runs := func(rank int) bool {
		return slices.ContainsFunc(list, func(st backend.Status) bool {
			return st.ID == workerID(rank, d.Workers[rank]) && st.State.Live() && st.State != backend.StateStopping
		})
	}
	if !slices.ContainsFunc(d.Ranks, runs) {
		return false // nothing is known of what was wanted last
	}
	before := len(d.Ranks)
	d.Ranks = slices.DeleteFunc(d.Ranks, func(rank int) bool { return !runs(rank) })
	if len(d.Ranks) == before {
		return false
	}
	d.Target, d.Rescale = len(d.Ranks), nil
	return true
}

// pause notes whether the job is paused, and since when.
func (d *desired) pause(paused bool, now time.Time) {
	if paused && !d.Manual.Paused {
		d.PausedAt = now
	}
	d.Manual.Paused = paused
}

// pausedSince is when the job was paused; zero: it is not, or that is not known.
func (d *desired) pausedSince() time.Time {
	if !d.Manual.Paused {
		return time.Time{}
	}
	return d.PausedAt
}
