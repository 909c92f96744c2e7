package fake

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/backend"
)

// Cluster is the table of workloads. It is safe for concurrent use and, when it has a file, by several processes.
type Cluster struct {
	mu      sync.Mutex
	path    string // empty: memory only
	tab     table
	stalled atomic.Bool // a cluster with a file has another beside it instead
}

type table struct {
	Slots    int
	Beside   bool          // Workload.Beside is honoured
	Queue    time.Duration // what the inventory says of the wait for a place
	Excluded []backend.Exclusion
	Faults   []string
	NextPID  int
	Jobs     map[string]map[string]*entry // by job, then by backend.ID.String()
	Owners   map[string]backend.Owner     // by job
}

// entry is one workload, kept until it is forgotten: a released one is a tombstone.
type entry struct {
	Workload backend.Workload
	Status   backend.Status
	Starts   int
	Released bool      // asked to go; gone when its state is no longer live
	KillAt   time.Time // for one that ignores a drain: when its grace is over
	Log      string
}

// NewCluster gives an empty cluster in memory with so many slots; a workload takes Resources.GPUs of them.
func NewCluster(slots int) *Cluster {
	return &Cluster{tab: table{Slots: slots, Jobs: map[string]map[string]*entry{}}}
}

// OpenCluster gives the cluster that lives in the file at path, which is made on first use with so many slots.
func OpenCluster(path string, slots int) *Cluster {
	c := NewCluster(slots)
	c.path = path
	return c
}

// with runs f on the table, alone; what f changed is kept when it returns nil.
func (c *Cluster) with(f func(*table) error) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.path == "" {
		c.tab.sweep()
		return f(&c.tab)
	}
	lock, err := os.OpenFile(c.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return backend.Errorf(backend.Unavailable, "lock the fake cluster: %w", err)
	}
	defer lock.Close() // which unlocks
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return backend.Errorf(backend.Unavailable, "lock the fake cluster: %w", err)
	}
	tab := table{Slots: c.tab.Slots, Jobs: map[string]map[string]*entry{}}
	raw, err := os.ReadFile(c.path)
	if err == nil {
		err = json.Unmarshal(raw, &tab)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return backend.Errorf(backend.Unavailable, "read the fake cluster: %w", err)
	}
	tab.sweep()
	if err := f(&tab); err != nil {
		return err
	}
	if raw, err = json.Marshal(tab); err != nil {
		return backend.Errorf(backend.Unavailable, "write the fake cluster: %w", err)
	}
	if err := os.WriteFile(c.path+".new", raw, 0o600); err != nil {
		return backend.Errorf(backend.Unavailable, "write the fake cluster: %w", err)
	}
	return os.Rename(c.path+".new", c.path)
}

// Stall makes the cluster answer no backend until heal is called. Its own methods go on.
func (c *Cluster) Stall() (heal func() error, err error) {
	if c.path == "" {
		c.stalled.Store(true)
		return func() error { c.stalled.Store(false); return nil }, nil
	}
	return func() error { return os.Remove(c.path + ".stalled") }, os.WriteFile(c.path+".stalled", nil, 0o600)
}

// await waits until the cluster answers, or ctx is over.
func (c *Cluster) await(ctx context.Context) error {
	for {
		stalled := c.stalled.Load()
		if c.path != "" {
			_, err := os.Stat(c.path + ".stalled")
			stalled = err == nil
		}
		if !stalled || ctx.Err() != nil {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchEvery):
		}
	}
}

func (c *Cluster) setSlots(n int) error { return c.SetSlots(n) }

// SetSlots changes how many slots there are; workloads that run keep theirs.
func (c *Cluster) SetSlots(n int) error {
	return c.with(func(t *table) error { t.Slots = n; return nil })
}

// SetBeside says whether Workload.Beside is honoured. What it lets wait for a place, SetState makes pending; starting it holds one.
func (c *Cluster) SetBeside(honoured bool) error {
	return c.with(func(t *table) error { t.Beside = honoured; return nil })
}

// SetQueueWait is what the inventory says of the wait for a place.
func (c *Cluster) SetQueueWait(d time.Duration) error {
	return c.with(func(t *table) error { t.Queue = d; return nil })
}

// SetExcluded says which nodes jobs are kept off; nothing follows from it.
func (c *Cluster) SetExcluded(nodes ...backend.Exclusion) error {
	return c.with(func(t *table) error { t.Excluded = nodes; return nil })
}

// SetFaults says what a person has to mend in the cluster; nothing follows from it.
func (c *Cluster) SetFaults(faults ...string) error {
	return c.with(func(t *table) error { t.Faults = faults; return nil })
}

// SetTimes says when a workload was handed to the cluster and when its process started.
func (c *Cluster) SetTimes(job string, id backend.ID, submitted, started time.Time) error {
	return c.change(job, id, func(e *entry) { e.Status.Submitted, e.Status.Started = submitted, started })
}

// SetFinished says when a workload's process ended last.
func (c *Cluster) SetFinished(job string, id backend.ID, at time.Time) error {
	return c.change(job, id, func(e *entry) { e.Status.Finished = at })
}

// change runs f on one workload.
func (c *Cluster) change(job string, id backend.ID, f func(*entry)) error {
	return c.with(func(t *table) error {
		e := t.Jobs[job][id.String()]
		if e == nil {
			return backend.Errorf(backend.Gone, "the fake cluster has no %s of job %q", id, job)
		}
		f(e)
		return nil
	})
}

// Exit ends a workload by itself with the code.
func (c *Cluster) Exit(job string, id backend.ID, code int) error {
	return c.change(job, id, func(e *entry) { e.finish(code, "ended with "+backend.EndWords(code)) })
}

// Crash makes a workload die and be started again under its ID.
func (c *Cluster) Crash(job string, id backend.ID) error {
	return c.with(func(t *table) error {
		e := t.Jobs[job][id.String()]
		if e == nil || !e.Status.State.Live() {
			return backend.Errorf(backend.Gone, "the fake cluster has no live %s of job %q", id, job)
		}
		t.restart(e)
		return nil
	})
}

// SetState forces a workload's state, as when a node is lost. One that is pending holds no slots, and of one that only starts no process is known.
func (c *Cluster) SetState(job string, id backend.ID, s backend.State, reason string) error {
	return c.change(job, id, func(e *entry) {
		if e.Status.State, e.Status.Reason = s, reason; s == backend.StatePending {
			e.Status.Devices = nil
		}
		if s == backend.StateStarting {
			e.Status.PID = 0
		}
		if !s.Live() {
			e.Status.Away = false
		}
	})
}

// SetBehind says whether others are before a workload in the cluster's queue.
func (c *Cluster) SetBehind(job string, id backend.ID, behind bool) error {
	return c.change(job, id, func(e *entry) { e.Status.Behind = behind })
}

// SetAway says whether a workload's node answers the cluster. While it does not, whether the workload runs is not known, and to release it ends it when the
// node is back.
func (c *Cluster) SetAway(job string, id backend.ID, away bool) error {
	return c.change(job, id, func(e *entry) {
		if !e.Status.State.Live() || e.Status.Away == away {
			return
		}
		switch e.Status.Away = away; {
		case away:
			e.Status.State, e.Status.Reason = backend.StateUnknown, "its node is away"
		case e.Released:
			e.finish(137, "ended when its node was back")
		default:
			e.Status.State, e.Status.Reason = backend.StateRunning, ""
		}
	})
}

// SetDeadline gives a workload a walltime.
func (c *Cluster) SetDeadline(job string, id backend.ID, at time.Time) error {
	return c.SetEnd(job, id, at, backend.EndWalltime)
}

// SetEnd gives a workload a deadline with its cause. Zero takes it away.
func (c *Cluster) SetEnd(job string, id backend.ID, at time.Time, cause backend.EndCause) error {
	return c.change(job, id, func(e *entry) {
		if e.Status.Deadline, e.Status.EndCause = at, cause; at.IsZero() {
			e.Status.EndCause = ""
		}
	})
}

// SetAsks says that the cluster asks a workload to end, at its deadline or later, before it ends it.
func (c *Cluster) SetAsks(job string, id backend.ID) error {
	return c.change(job, id, func(e *entry) { e.Status.Asks = true })
}

// SetRemarks gives a workload what others did to it.
func (c *Cluster) SetRemarks(job string, id backend.ID, remarks ...backend.Remark) error {
	return c.change(job, id, func(e *entry) { e.Status.Remarks = remarks })
}

// Reap lets a workload that drains come to its end.
func (c *Cluster) Reap(job string, id backend.ID) error {
	return c.change(job, id, func(e *entry) {
		if e.Released {
			e.finish(0, "drained")
		}
	})
}

// Print adds text to a workload's log.
func (c *Cluster) Print(job string, id backend.ID, text string) error {
	return c.change(job, id, func(e *entry) { e.Log += text })
}

// Starts says how often a process of this workload was started.
func (c *Cluster) Starts(job string, id backend.ID) int {
	n := 0
	_ = c.change(job, id, func(e *entry) { n = e.Starts }) // an ID that is not there was never started
	return n
}

func (e *entry) finish(code int, reason string) {
	if !e.Status.State.Live() {
		return
	}
	if e.Status.Away && e.Released {
		e.Status.State = backend.StateStopping
		return
	}
	e.Status.State, e.Status.ExitCode, e.Status.Reason = backend.StateExited, code, reason
	if code != 0 {
		e.Status.State = backend.StateFailed
	}
	e.Status.PID, e.Status.Finished = 0, time.Now().UTC()
}

// sweep ends what has outstayed its grace.
func (t *table) sweep() {
	now := time.Now()
	for _, entries := range t.Jobs {
		for _, e := range entries {
			if !e.KillAt.IsZero() && now.After(e.KillAt) {
				e.finish(137, "killed after its grace")
			}
		}
		for _, e := range entries {
			if e.Status.Beside && (e.Released || !e.Status.State.Live()) {
				e.Status.Beside = false
			}
			if e.Status.Beside && e.Status.State == backend.StateStarting && !olderLives(entries, e) {
				e.Status.Beside, e.Status.Reason = false, ""
				e.Log = "started\n"
				t.start(e)
			}
		}
	}
}

// olderLives says that a lower generation of e's role and rank lives.
func olderLives(entries map[string]*entry, e *entry) bool {
	for _, o := range entries {
		if a, b := o.Workload.ID, e.Workload.ID; a.Role == b.Role && a.Rank == b.Rank && a.Generation < b.Generation && o.Status.State.Live() {
			return true
		}
	}
	return false
}

func (e *entry) gone() bool { return e.Released && !e.Status.State.Live() }

func (t *table) start(e *entry) {
	t.NextPID++
	e.Starts++
	e.Status.State, e.Status.PID, e.Status.Started = backend.StateRunning, 1000+t.NextPID, time.Now().UTC()
}

func (t *table) restart(e *entry) {
	e.Log += backend.LogBoundary + "crashed with code 1\nstarted\n"
	t.start(e)
	e.Status.Restarts++
	e.Status.ExitCode, e.Status.Reason = 1, "crashed and was started again"
}

// held gives the holder of each slot.
func (t *table) held() []string {
	holders := make([]string, t.Slots)
	for job, entries := range t.Jobs {
		for _, e := range entries {
			if !e.Status.State.Live() {
				continue
			}
			for _, d := range e.Status.Devices {
				if i, err := strconv.Atoi(strings.TrimPrefix(d, "slot-")); err == nil && i < len(holders) {
					holders[i] = job + "/" + e.Workload.ID.String()
				}
			}
		}
	}
	return holders
}

// newest gives the workload of the same role and rank with the highest generation.
func (t *table) newest(job string, id backend.ID) *entry {
	var best *entry
	for _, e := range t.Jobs[job] {
		if e.Workload.ID.Role == id.Role && e.Workload.ID.Rank == id.Rank &&
			(best == nil || e.Workload.ID.Generation > best.Workload.ID.Generation) {
			best = e
		}
	}
	return best
}

// owned refuses a job whose name is another's, and notes whose it is when it takes it.
func (t *table) owned(job string, owner backend.Owner, take bool) error {
	if refusal := owner.Refuse(job, t.Owners[job]); refusal != nil {
		for _, e := range t.Jobs[job] {
			if !e.gone() {
				return refusal
			}
		}
	}
	if take && owner.ID != "" {
		if t.Owners == nil {
			t.Owners = map[string]backend.Owner{}
		}
		t.Owners[job] = owner
	}
	return nil
}
