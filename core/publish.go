package core

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/core/traffic"
)

// Retention of the state's logs.
const (
	keepSamples   = 14 * 24 * time.Hour
	keepDecisions = 14 * 24 * time.Hour
	trimEvery     = time.Hour
)

// publish records what was seen and replaces the view.
func (s *Scheduler) publish(now time.Time) {
	s.heedLate()
	sample := s.sample(now)
	s.lastSample = sample
	if err := s.record(now, sample); err != nil && s.unsaved == nil {
		s.unsaved = err
		s.lg.Error("what was observed cannot be recorded", "err", err)
	}
	s.view.Store(s.picture(now, sample))
}

func (s *Scheduler) record(now time.Time, sample Sample) error {
	if watch := s.job.Autoscale.Watch; s.pace(now) < watch && now.Sub(s.recorded) < watch-quickPace/2 {
		return nil // a stop and a rescale look more often than pictures need it
	}
	if err := s.store.Append(state.Samples, now, sample); err != nil {
		return err
	}
	s.recorded = now
	if now.Sub(s.trimmed) <= trimEvery {
		return nil
	}
	s.trimmed = now
	return errors.Join(s.store.Trim(state.Samples, now.Add(-keepSamples)), s.store.Trim(state.Decisions, now.Add(-keepDecisions)),
		s.store.Trim(state.Rollbacks, now.Add(-keepDecisions)), s.store.Trim(state.Losses, now.Add(-keepLosses)))
}

func (s *Scheduler) sample(now time.Time) Sample {
	n := s.seen
	w := s.workers()
	out := Sample{
		At: now, Target: s.target(), Draining: w.Draining, Forecast: s.foresee.at(now),
		Applied: n.applied(), Repairing: n.chief.GetRepairing(), Unknown: n.unknown(s.begun()),
	}
	if rate, ok := s.arrivals.Rate(now, max(s.job.Forecast.Interval, 4*s.job.Autoscale.Watch)); ok && n.endsErr == nil {
		out.Rate = &rate
	}
	lag := s.lag(now)
	if lag.ageKnown {
		seconds := lag.age.Seconds()
		out.Lag = &seconds
	}
	if lag.recordsKnown {
		out.LagRecords = &lag.records
	}
	out.LagUnknown = lag.why
	if n.unlisted() == "" {
		held := liveWorkers(n.list)
		out.Held = &held
	}
	if w.Unknown == 0 {
		out.Pending = &w.Pending
	}
	strangers := w.Unknown > 0 && n.listErr != nil && len(s.want.Ranks) == 0 // its state is lost: they train, and it is not known which they are
	if !strangers && (n.chiefErr == nil || !s.begun() || out.Held != nil && *out.Held == 0) {
		s.sampleMembers(&out, w.Running)
	}
	return out
}

// target is how many workers are wanted or, where they are only observed, would be.
func (s *Scheduler) target() int {
	if s.job.Autoscale.Mode == job.ModeObserve && s.last != nil {
		return s.last.Decision.Target
	}
	return s.want.Target
}

// sampleMembers is what the chief says of those that train: nobody, where it does not answer and none can.
func (s *Scheduler) sampleMembers(out *Sample, running int) {
	var trained, busy float64
	ready := 0
	for _, m := range s.seen.chief.GetMembers() {
		if counted(m) {
			trained = finite(trained + finite(m.GetRecordsPerSecond()))
			busy += share(m.GetBusyShare())
			ready++
		}
	}
	busy /= float64(max(ready, 1))
	capacity := finite(s.online.Model().Throughput(running, s.job.Servers.Count))
	out.Running, out.Trained, out.Busy, out.Capacity = &running, &trained, &busy, &capacity
}

// share is one of 0 to 1, of which a member's clock may make a little more.
func share(x float64) float64 { return min(max(finite(x), 0), 1) }

// counted says that the chief counts on a member: it has joined and has not left.
func counted(m *rpc.MemberStatus) bool {
	return m.GetState() == rpc.MemberState_MEMBER_STATE_READY || m.GetState() == rpc.MemberState_MEMBER_STATE_DRAINING
}

func (s *Scheduler) picture(now time.Time, sample Sample) *View {
	j, n := s.job, s.seen
	s.down = s.serversDown()
	v := &View{
		Job: j.Name, State: s.stateOf(sample), Scheduler: true, Waits: s.waits(), Mode: j.Autoscale.Mode, Now: now, Started: s.started, MaxLag: j.SLO.MaxLag, Watch: j.Autoscale.Watch, Min: j.Workers.Min, Max: j.Workers.Max,
		Sample: sample, Decision: s.last, LastChange: s.lastChange, Manual: s.want.Manual, PausedSince: s.want.pausedSince(), Model: s.online.Model().String(), ModelBasis: s.basis(now),
		Skips: Skips(j), DeadLetter: j.Stream.DeadLetter, Emulated: j.Workers.EmulateStep > 0,
		Join: s.joinTime(), LastJoin: s.want.LastJoin, Gap: measured(s.want.Gaps, 0), Stopping: s.want.Stopping, Forced: s.want.Forced, Stopped: s.want.Stopped, LastStop: s.want.LastStop,
		Unwritten: s.want.Unwritten, LeftAway: s.want.LeftAway,
		History: s.lastHistory, LastRescale: s.lastRescale, WorkerRenewal: s.want.LastRenewal.shown(now), ServerRenewal: s.want.LastServerRenewal.shown(now), Rollbacks: s.rollbacks, Chief: n.chief, Problems: s.problems(), Retraining: s.retrainingNow(), Calendar: s.calendarWords(now),
	}
	if s.opt.Stop {
		v.StopProcess = os.Getpid()
	}
	if s.opt.Pool != nil {
		v.Pool = s.opt.Pool.share(j.Name)
	}
	v.Stuck, v.Notes = s.stuck(), notes(now, s.rollbacks, s.losses, s.want)
	if v.State == StateCannotStart {
		v.Cause = s.cannotStart()
	}
	if s.last != nil {
		v.Forecast = s.last.Observation.Forecast.Band()
	}
	if r := s.want.Rescale; r != nil {
		c := *r
		v.Rescale = &c
	}
	if t := totalsOf(n.chief); t != nil {
		v.Trained, v.Dead, v.Lost, v.CutOff, v.AUC = &t.Trained, &t.Dead, &t.Lost, &t.CutOff, t.AUC
	}
	v.Workers, v.Servers = s.processes()
	v.Left = s.left()
	if v.Unlisted = n.unlisted(); v.Unlisted != "" {
		v.Listed = s.listedAt
	}
	return v
}

// processes are those that the backend lists, with what the chief says of them. Where it does not answer, or not for all, the others are as they were seen last.
func (s *Scheduler) processes() (workers []WorkerView, servers []ServerView) {
	for _, st := range slices.Concat(s.seen.list, s.unseen()) {
		switch st.ID.Role {
		case backend.RoleWorker:
			workers = append(workers, s.workerView(st))
		case backend.RoleServer:
			servers = append(servers, s.serverView(st))
		}
	}
	return workers, servers
}

// left are the workers that have been, and are not now.
func (s *Scheduler) left() (out []string) {
	for _, rank := range slices.Sorted(maps.Keys(s.want.Workers)) {
		id := workerID(rank, s.want.Workers[rank])
		if id.Generation > 0 && !slices.Contains(s.want.wantedRanks(), rank) && !slices.ContainsFunc(s.seen.list, func(st backend.Status) bool { return placeOf(st.ID) == placeOf(id) }) {
			out = append(out, id.String())
		}
	}
	return out
}

// unseen are the processes that the last whole list had and that of now, which is not whole, lacks: they are unknown.
func (s *Scheduler) unseen() []backend.Status {
	if s.seen.unlisted() == "" {
		return nil
	}
	var out []backend.Status
	for _, st := range s.listed {
		if _, found := s.seen.allocation(st.ID); !found {
			st.Reason = fmt.Sprintf("not seen since %s, when it was %s", s.listedAt.Format(time.TimeOnly), st.State)
			st.State = backend.StateUnknown
			out = append(out, st)
		}
	}
	return out
}

// stateNow is a process's state for people: one that had begun and is kept from running is not starting.
func (s *Scheduler) stateNow(st backend.Status) string {
	if si := s.silences[placeOf(st.ID)]; si != nil && si.id == st.ID && si.still != "" {
		return "suspended"
	}
	return string(st.State)
}

func (s *Scheduler) workerView(st backend.Status) WorkerView {
	w := WorkerView{
		ID: st.ID.String(), Rank: st.ID.Rank, Generation: st.ID.Generation, Backend: s.stateNow(st), Node: st.Node, Devices: st.Devices,
		Restarts: st.Restarts, PID: st.PID, Reason: st.Reason, Since: sane(st.Started), Deadline: sane(st.Deadline), EndCause: st.EndCause, Member: "unknown",
	}
	if s.seen.chiefErr != nil {
		if h, ok := s.meet.heard(st.ID); ok && h.phase != rpc.Phase_PHASE_JOINED {
			w.Member, w.Reason = s.unjoined(st)
		}
		return w
	}
	m := s.seen.member(st.ID.Rank, st.ID.Generation)
	if m == nil {
		w.Member, w.Reason = s.unjoined(st)
		return w
	}
	w.Member, w.Partitions = rpc.MemberStateName(m.GetState()), append([]int32{}, m.GetPartitions()...)
	if counted(m) {
		w.Rate, w.Busy, w.Queue = new(finite(m.GetRecordsPerSecond())), new(share(m.GetBusyShare())), new(m.GetMetrics().GetQueueRecords())
	}
	return w
}

// unjoined says what is known of a worker that the chief does not know: what it told the scheduler itself, and why it does not get on.
func (s *Scheduler) unjoined(st backend.Status) (member, reason string) {
	h, ok := s.meet.heard(st.ID)
	member, reason = rpc.MemberStateName(0), st.Reason
	switch {
	case !ok || !st.State.Live():
		return member, reason
	case h.phase == rpc.Phase_PHASE_STARTING:
		member = "started"
	case h.phase == rpc.Phase_PHASE_DIALLING:
		member = "started, dialling chief"
	}
	if reason == "" {
		reason = h.trouble
	}
	return member, reason
}

var upOrDown = map[bool]string{true: "up", false: "down"}

// lastSaid adds to a reason what the chief said when it was heard last, while it is not.
func (s *Scheduler) lastSaid(reason, what string) string {
	if s.seen.chiefErr == nil || s.said == nil || what == "" || s.want.Stopping {
		return reason
	}
	text := "by the chief " + what + " at " + s.saidAt.Format(time.TimeOnly) + ", and not heard of since"
	if reason == "" {
		return text
	}
	return reason + "; " + text
}

func (s *Scheduler) serverView(st backend.Status) ServerView {
	v := ServerView{ID: st.ID.String(), Index: st.ID.Rank, Backend: s.stateNow(st), Restarts: st.Restarts, PID: st.PID, Node: st.Node}
	if st.State != backend.StateRunning {
		v.Reason = st.Reason
	}
	if st.Beside {
		v.Beside, v.Reason = true, st.Reason
		return v // what the chief knows is of the one before
	}
	if s.replaced(st.ID) { // and here of the one after
		v.Replaced, v.Reason = true, serverID(st.ID.Rank, s.want.Servers[st.ID.Rank]).String()+" replaces it"
		if st.Reason != "" {
			v.Reason += "; " + st.Reason
		}
		return v
	}
	for _, sv := range s.said.GetServers() {
		if int(sv.GetInfo().GetIndex()) == st.ID.Rank && st.State == backend.StateUnknown {
			v.Reason = s.lastSaid(v.Reason, upOrDown[sv.GetInfo().GetUp()])
		}
	}
	for _, sv := range s.seen.chief.GetServers() {
		if int(sv.GetInfo().GetIndex()) != st.ID.Rank {
			continue
		}
		v.Up, v.Incarnation = new(sv.GetInfo().GetUp()), sv.GetInfo().GetIncarnation()
		if m := sv.GetMetrics(); m != nil {
			v.Known, v.Rows, v.MemoryBytes, v.Error = true, new(m.GetRows()), new(m.GetMemoryBytes()), m.GetSnapshotError()
			if ms := m.GetLastSnapshotUnixMs(); ms > 0 {
				v.LastSnapshot = moment(ms)
			}
		}
	}
	return v
}

// unsavedWords say why the scheduler holds all that is, what helps, and what that means: not which of its writes failed, which changes from look to look.
func unsavedWords(dir string, err error, means string) string {
	why := err.Error()
	for _, known := range []struct {
		err    error
		advice string
	}{
		{syscall.ENOSPC, "free some space there"}, {syscall.EDQUOT, "free some space there, or raise the quota"},
		{syscall.EFBIG, "raise the limit on the size of files (ulimit -f)"},
	} {
		if strings.Contains(why, known.err.Error()) { // the database passes on words alone
			why = fmt.Sprintf("%v; %s", known.err, known.advice)
			break
		}
	}
	return fmt.Sprintf("nothing is decided or changed, because the scheduler's state in %s cannot be saved: %s. %s", dir, why, means)
}

// unsavedMeans says what it means for the job that the scheduler's state cannot be saved.
func (s *Scheduler) unsavedMeans() string {
	switch down := s.unstarted(); {
	case s.want.Stopping:
		return "The stop gets no further than what can be done without"
	case len(down) > 0:
		return fmt.Sprintf("Until it can, %s, without which nothing is trained, cannot be started again", few(down))
	case s.trains():
		return "What runs trains on"
	}
	return "What runs is left as it is"
}

// trains says that the job's servers are up and workers train, or would if there were anything to train.
func (s *Scheduler) trains() bool {
	n := s.seen
	if n.chiefErr != nil || n.chief.GetPaused() || s.halted() || n.ready(n.unlisted() == "") == 0 || n.idle() > 0 {
		return false
	}
	for i := range s.job.Servers.Count {
		id := backend.ID{Role: backend.RoleServer, Rank: i, Generation: s.want.Servers[i]}
		if si := s.silences[placeOf(id)]; !s.well(id) || si != nil && si.id == id && si.asks > 0 {
			return false
		}
	}
	return true
}

// movedWords say what it means that the scheduler's state is not where it was, and what helps.
func (s *Scheduler) movedWords() string {
	pid, dir := os.Getpid(), s.opt.StateDir
	text := fmt.Sprintf("the state of this scheduler (process %d) is not in %s any more, since it was moved or removed: commands do not reach the scheduler there, and what it learns is lost when it ends. Training goes on. ", pid, dir)
	if now := s.store.Folder(); now != "" {
		return text + backend.PutBack(now, dir) + " puts it back"
	}
	return text + fmt.Sprintf("Put the folder back or, where it is lost, end this scheduler (Ctrl-C, kill %d) and give the same kale run again, which ", pid) + AnewWithoutState
}

// AnewWithoutState is what kale run does with what runs of a job whose scheduler has lost its state folder.
const AnewWithoutState = "takes up what runs or, where the processes of backend \"local\" had their folders there too, names those to end first, in whose place it starts others"

// checkFor bounds how long a scheduler looks for damage in its state as it begins.
const checkFor = 2 * time.Second

// damagedWords say what damage to the file of a scheduler's state means, and what helps.
func damagedWords(err error) string {
	return fmt.Sprintf("%s, and what is learnt now may be lost: %v. Training goes on. End this scheduler before you do (Ctrl-C), and give the same kale run again after it", damagedMeans, err)
}

const damagedMeans = "decisions and orders of the past may be missing or wrong"

// damagedRest is damagedWords where no scheduler runs.
func damagedRest(err error) string { return fmt.Sprintf("%s: %v", damagedMeans, err) }

// DamagedState says what is wrong with the state that the last scheduler of a job left in a folder, and what helps; "": nothing was found, there is none, or a
// scheduler has it, which tells. opens is false where kale run could not take it up. Nothing is written.
func DamagedState(dir string) (says string, opens bool) {
	st, err := state.OpenReader(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, state.ErrLocked):
		return "", true
	case err != nil:
		return err.Error(), false
	}
	defer func() { _ = st.Close() }() // it was only read
	damaged := st.Check(checkFor)
	if _, err := savedDesired(st); err != nil {
		return err.Error(), false
	}
	if damaged != nil {
		return damagedRest(damaged), true
	}
	return "", true
}

// problems are what an operator should read, the gravest first.
func (s *Scheduler) problems() []string {
	n := s.seen
	var out []string
	if s.store.Moved() {
		out = append(out, s.movedWords())
	}
	if s.damaged != nil {
		out = append(out, damagedWords(s.damaged))
	}
	if s.unsaved != nil {
		out = append(out, unsavedWords(s.opt.StateDir, s.unsaved, s.unsavedMeans()))
	}
	if n.modelGone {
		out = append(out, goneWords(s.job))
	}
	if n.blind() {
		out = append(out, n.unlisted())
	}
	for _, r := range n.cannotStart {
		if !n.modelGone { // it waits for that
			out = append(out, cannotStart(r))
		}
	}
	if s.want.Compacted {
		out = append(out, compactedWords)
	}
	if why := s.withoutPlace(); why != "" && s.unplacedLate {
		out = append(out, why)
	}
	if s.last != nil && s.last.Decision.NoHelp != "" {
		out = append(out, s.last.Decision.NoHelp)
	}
	near := s.retentionNear(n.at)
	told := near != "" || slices.ContainsFunc(s.losses, func(l Loss) bool { return l.Kind == LossRetention && l.Open })
	out = append(out, chiefProblems(slices.DeleteFunc(slices.Clone(n.chief.GetProblems()), func(p *rpc.PartitionProblem) bool {
		switch p.GetKind() { // what shows in two ways
		case rpc.PartitionProblem_KIND_RETENTION_NEAR:
			return p.GetLogStart() <= p.GetNeeded() && told
		case rpc.PartitionProblem_KIND_UNREACHABLE:
			return s.outages.away(n.at)
		}
		return false
	}))...)
	var failures []string
	if !s.want.Stopped {
		failures = s.snapshotFailures()
	}
	for _, f := range failures {
		if !n.modelGone || !lacksFolder(f) { // of which the folder that is gone is the cause
			out = append(out, f)
		}
	}
	out = append(out, s.repairs()...)
	if why := n.misdated(); why != "" {
		out = append(out, why)
	}
	if why := AheadWords(s.missed.aheadNow(n.at, s.job.Forecast.Past())); why != "" {
		out = append(out, why)
	}
	if near != "" {
		out = append(out, near)
	}
	out = append(out, s.untoldNow()...)
	out = append(out, s.losing()...)
	if h := s.want.Ceiling; h != nil && h.Max > 0 {
		waiting := 0
		for _, rank := range s.want.Ranks {
			if _, waits := s.waitsForPlace(rank); waits {
				waiting++
			}
		}
		out = append(out, h.words(len(s.want.Ranks), waiting))
	}
	out = append(out, s.silentNow()...)
	out = append(out, s.down...)
	out = append(out, s.adrift()...)
	out = append(out, s.troubled()...)
	for _, x := range s.excluded {
		out = append(out, excludedWords(x))
	}
	out = append(out, s.faults...)
	out = append(out, s.absence.lacking...)
	if slow := s.slowly(); slow != "" {
		out = append(out, slow)
	}
	if s.ensureErr != nil {
		out = append(out, "the backend starts nothing: "+s.ensureErr.Error())
	}
	if s.releaseErr != nil {
		out = append(out, "the backend ends nothing: "+s.releaseErr.Error())
	}
	if s.snapshotErr != nil && s.want.Stopping && len(failures) == 0 {
		out = append(out, "the last snapshot is not written yet: "+s.snapshotErr.Error()+"; kale stop -force does without")
	}
	switch why := n.unknown(s.begun()); {
	case why == "" || why == leaseGone || why == chiefGone || why == unseen:
	case why == n.noEnds() && recreated(n.chief.GetProblems()) && (errors.Is(n.endsErr, traffic.ErrRecreated) || errors.Is(n.endsErr, traffic.ErrShrunk)): // they say so
	case errors.Is(n.endsErr, traffic.ErrNoTopic) && why == n.noEnds() && !recreated(n.chief.GetProblems()): // which say what helps too
		out = append(out, why+noTopic)
	default:
		out = append(out, why)
	}
	out = append(out, s.dark()...)
	if own := s.opt.Problems; own != nil {
		out = append(out, own()...)
	}
	return out
}

// AUC is the area under the ROC curve of predictions counted in bins by label: the chance that a positive is ranked above a negative, ties
// (one bin) counted half. ok is false without both labels.
func AUC(v *rpc.Validation) (auc float64, ok bool) {
	pos, neg := v.GetPositive(), v.GetNegative()
	var below, wins, positives float64
	for i := range max(len(pos), len(neg)) {
		p, q := count(pos, i), count(neg, i)
		wins += p * (below + q/2)
		below += q
		positives += p
	}
	if positives == 0 || below == 0 {
		return math.NaN(), false
	}
	return wins / (positives * below), true
}

func count(v []uint64, i int) float64 {
	if i >= len(v) {
		return 0
	}
	return float64(v[i])
}
