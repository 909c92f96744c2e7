package core

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
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
		held := 0
		for _, st := range n.list {
			if st.ID.Role == backend.RoleWorker && st.State.Live() {
				held++
			}
		}
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
	v := &View{
		Job: j.Name, State: s.stateOf(sample), Scheduler: true, Waits: s.waits(), Mode: j.Autoscale.Mode, Now: now, Started: s.started, MaxLag: j.SLO.MaxLag, Min: j.Workers.Min, Max: j.Workers.Max,
		Sample: sample, Decision: s.last, LastChange: s.lastChange, Manual: s.want.Manual, PausedSince: s.want.pausedSince(), Model: s.online.Model().String(), ModelBasis: s.basis(),
		Skips: Skips(j), DeadLetter: j.Stream.DeadLetter, Emulated: j.Workers.EmulateStep > 0,
		Join: s.joinTime(), LastJoin: s.want.LastJoin, Gap: measured(s.want.Gaps, 0), Stopping: s.want.Stopping, Stopped: s.want.Stopped, LastStop: s.want.LastStop,
		History: s.lastHistory, LastRescale: s.lastRescale, WorkerRenewal: s.want.LastRenewal, ServerRenewal: s.want.LastServerRenewal, Rollbacks: s.rollbacks, Chief: n.chief, Problems: s.problems(), Retraining: s.retrainingNow(),
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
	v.Unlisted = n.unlisted()
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

func (s *Scheduler) serverView(st backend.Status) ServerView {
	v := ServerView{ID: st.ID.String(), Index: st.ID.Rank, Backend: s.stateNow(st), Restarts: st.Restarts, PID: st.PID, Node: st.Node}
	if st.State != backend.StateRunning {
		v.Reason = st.Reason
	}
	if st.Beside {
		v.Beside, v.Reason = true, st.Reason
		return v // what the chief knows is of the one before
	}
	if st.State == backend.StateStopping && s.replaced(st.ID) {
		return v // and here of the one after
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

// How a job takes what was changed in its file: its trainers are told of policies, all else needs new ones.
const (
	thenRunAgain = "; then stop the job and run it again"
	thenTakeUp   = "; then Ctrl-C and kale run again (training goes on)"
	thenGoesOn   = "; then training goes on there by itself" // nothing of the file is changed
)

// chiefProblem is what is wrong with a partition, for people, save what retention removed of it (lostWords) and the record that it stands at (haltedWords).
func chiefProblem(p *rpc.PartitionProblem) string {
	if p.GetKind() == rpc.PartitionProblem_KIND_RECREATED || p.GetKind() == rpc.PartitionProblem_KIND_UNREACHABLE && p.GetPartition() < 0 { // a whole topic's, a whole worker's
		return p.GetDetail()
	}
	return fmt.Sprintf("partition %d: %s", p.GetPartition(), p.GetDetail())
}

// halts says that a partition stands still at a record that can neither be decoded nor set aside, or not be trained.
func halts(p *rpc.PartitionProblem) bool {
	return p.GetKind() == rpc.PartitionProblem_KIND_UNDECODABLE || p.GetKind() == rpc.PartitionProblem_KIND_DEAD_LETTER || p.GetKind() == rpc.PartitionProblem_KIND_GRADIENT
}

// How haltedWords begin.
const (
	haltsAt  = "records that cannot be decoded stop "
	absurdAt = "gradients that are not finite stop "
)

// haltedWords are the partitions that halt for the same reason, with the record of the first of them, and what helps.
func haltedWords(ps []*rpc.PartitionProblem) string {
	first := slices.MinFunc(ps, func(a, b *rpc.PartitionProblem) int { return cmp.Compare(a.GetPartition(), b.GetPartition()) })
	var names []int32
	for _, p := range ps {
		names = append(names, p.GetPartition())
	}
	begin := haltsAt
	if first.GetKind() == rpc.PartitionProblem_KIND_GRADIENT {
		begin = absurdAt
	}
	text := fmt.Sprintf(begin+"%s, and nothing of that is lost. Partition %d of %s. ", numbered("partition", names), first.GetPartition(), first.GetDetail())
	switch first.GetKind() {
	case rpc.PartitionProblem_KIND_GRADIENT:
		return text + "The model's weights have grown too far, by too high a learning rate as a rule: lower it (learning_rate in model.optimiser)" + thenRunAgain +
			", which tries that record again. Where it stands still there all the same, the weights are past mending: begin a new job (another checkpoint.dir)"
	case rpc.PartitionProblem_KIND_DEAD_LETTER:
		return text + "Create or mend that topic (stream.dead_letter)" + thenGoesOn
	}
	return text + "To do without such records, set on_undecodable = \"skip\" in the stream block" + thenTakeUp +
		". To keep them, name a topic for them in stream.dead_letter" + thenRunAgain
}

// truncatedWords say of which partitions the end was cut off, where the first of them ended and was read to, and what helps.
func truncatedWords(ps []*rpc.PartitionProblem) string {
	first := slices.MinFunc(ps, func(a, b *rpc.PartitionProblem) int { return cmp.Compare(a.GetPartition(), b.GetPartition()) })
	var names []int32
	for _, p := range ps {
		names = append(names, p.GetPartition())
	}
	text := "the brokers lost the end of the log of " + numbered("partition", names)
	if end := first.GetLogStart(); end >= 0 {
		text += fmt.Sprintf(": that of partition %d ended at offset %d, and was read up to %d", first.GetPartition(), end, first.GetNeeded())
	}
	return text + ". So it is after an unclean election, or where brokers came back with an older copy of their data. " + truncatedAdvice + thenRunAgain
}

const truncatedAdvice = "What is written there now, up to where it was read before, has offsets that are trained already, and is not trained. Training stands still, and nothing that was trained " +
	"is lost. " + truncatedWaysOut

// truncatedWaysOut are what helps where the end of a log was cut off, in the words of a job that runs and of one that is to.
const truncatedWaysOut = "Mend the brokers' data; or begin a new job (another checkpoint.dir), which trains all that the topic has; or, once more is written there than was trained (kale run refuses before), " +
	"set on_lost = \"skip\" in the stream block"

// lostWords say what stops partitions of which retention removed so many offsets.
func lostWords(offsets int64) string {
	return fmt.Sprintf("retention removed untrained offsets (%s when training stopped there, and more since); training stands still there until you accept the loss: first let the topic keep its records for "+
		"longer (retention.ms, retention.bytes), then set on_lost = \"skip\" in the stream block"+thenTakeUp, plan.Thousands(offsets))
}

// lasting parts what goes on from for how long it has, where a text ends so: "no broker has answered for 5s".
func lasting(text string) (what string, lasts time.Duration) {
	const word = " for "
	if i := strings.LastIndex(text, word); i >= 0 {
		if d, err := time.ParseDuration(text[i+len(word):]); err == nil {
			return text[:i], d
		}
	}
	return text, 0
}

// chiefProblems are the problems of a job's partitions, for people: partitions with the same one are named together, with the longest of their times, and what two
// workers met alike is told once.
func chiefProblems(ps []*rpc.PartitionProblem) []string {
	if recreated(ps) { // whatever else was wrong is of a log that is gone
		ps = slices.DeleteFunc(slices.Clone(ps), func(p *rpc.PartitionProblem) bool { return !ofAnotherLog(p) })
	}
	var out []string
	if cut := slices.DeleteFunc(slices.Clone(ps), func(p *rpc.PartitionProblem) bool { return !isTruncated(p) }); len(cut) > 0 {
		out = append(out, truncatedWords(cut))
		ps = slices.DeleteFunc(slices.Clone(ps), isTruncated)
	}
	for _, kind := range []rpc.PartitionProblem_Kind{rpc.PartitionProblem_KIND_DEAD_LETTER, rpc.PartitionProblem_KIND_UNDECODABLE,
		rpc.PartitionProblem_KIND_GRADIENT} {
		if same := slices.DeleteFunc(slices.Clone(ps), func(p *rpc.PartitionProblem) bool { return p.GetKind() != kind }); len(same) > 0 {
			out = append(out, haltedWords(same))
		}
	}
	ps = slices.DeleteFunc(slices.Clone(ps), halts)
	with := map[string][]int32{} // partitions by what is wrong with them
	longest := map[string]time.Duration{}
	lost := map[int32]int64{} // offsets, by partition
	for _, p := range ps {
		if p.GetKind() == rpc.PartitionProblem_KIND_LOST {
			lost[p.GetPartition()] = max(lost[p.GetPartition()], p.GetLogStart()-p.GetNeeded())
		}
	}
	var offsets int64
	for _, n := range lost {
		offsets += n
	}
	for _, p := range ps {
		text := chiefProblem(p)
		if p.GetKind() == rpc.PartitionProblem_KIND_LOST {
			text = fmt.Sprintf("partition %d: %s", p.GetPartition(), lostWords(offsets))
		}
		what, alone := strings.CutPrefix(text, fmt.Sprintf("partition %d: ", p.GetPartition()))
		if !alone {
			what = text
		}
		what, lasts := lasting(what)
		longest[what] = max(longest[what], lasts)
		if _, told := with[what]; !told {
			out = append(out, what)
		}
		if alone {
			with[what] = append(with[what], p.GetPartition())
		} else if _, told := with[what]; !told {
			with[what] = nil
		}
	}
	for i, what := range out {
		if len(with[what]) > 0 {
			out[i] = numbered("partition", with[what]) + ": " + what
		}
		if d := longest[what]; d > 0 {
			out[i] += " for " + job.Length(d)
		}
	}
	return out
}

// numbered is "partition 3", "partitions 0–3, 6".
func numbered(what string, p []int32) string {
	slices.Sort(p)
	p = slices.Compact(p)
	if len(p) == 1 {
		return fmt.Sprintf("%s %d", what, p[0])
	}
	var parts []string
	for i := 0; i < len(p); {
		j := i
		for j+1 < len(p) && p[j+1] == p[j]+1 {
			j++
		}
		if part := strconv.Itoa(int(p[i])); j == i {
			parts = append(parts, part)
		} else {
			parts = append(parts, fmt.Sprintf("%s–%d", part, p[j]))
		}
		i = j + 1
	}
	return what + "s " + strings.Join(parts, ", ")
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
	text += fmt.Sprintf("Put the folder back or, where it is lost, end this scheduler (Ctrl-C, kill %d) and give the same kale run again, which ", pid)
	if s.job.Backend.Name == job.BackendLocal { // what it keeps of them was there
		return text + "names the processes to end first, since their folders were there too, and starts others in their place"
	}
	return text + "takes up what runs"
}

// checkFor bounds how long a scheduler looks for damage in its state as it begins.
const checkFor = 2 * time.Second

// damagedWords say what damage to the file of a scheduler's state means, and what helps.
func damagedWords(err error) string {
	return fmt.Sprintf("decisions and orders of the past may be missing or wrong, and what is learnt now may be lost: %v. Training goes on. End this scheduler before you do (Ctrl-C), and give the same kale run again after it", err)
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
	out = append(out, s.adrift()...)
	out = append(out, s.troubled()...)
	for _, x := range s.excluded {
		out = append(out, excludedWords(x))
	}
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
