package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/traffic"
)

const (
	// hungAfter is how long a process that the backend calls running may answer nothing before it is ended and started again, asked at least hungAsks times.
	hungAfter = 30 * time.Second
	hungAsks  = 3
	// awayAfter is the same for one of which the backend cannot tell whether it runs: its node does not answer the cluster either. Longer than a network's
	// hiccups, and about as long as Slurm gives its nodes.
	awayAfter = time.Minute
	// endedAfter is the same for one that its cluster ends, as Slurm does a job that it has preempted, for as long as its node takes: nothing more comes of it.
	endedAfter = 10 * time.Second
	// startTime is how long a process may take from its start to its first answer: a server restores its tablets meanwhile.
	startTime = 2 * time.Minute
	// hungDoublings bounds by how much the patience grows with each process of a rank that has to be replaced; a rank that has answered for hungRest has it
	// all back.
	hungDoublings = 5
	hungRest      = 10 * time.Minute
)

// silence is how a process that runs, by the backend's word, has answered: server 0, which has the chief, the scheduler's own questions; the others the chief.
type silence struct {
	id   backend.ID
	life life
	// chief is the one that was asked for it last.
	chief uint64
	// heard: it has answered in this life.
	heard bool
	// told is when it last said by itself that it lives.
	told time.Time
	// lasts is for how long it has been asked in vain, asks how often. Time in which nobody could ask does not count.
	lasts time.Duration
	asks  int
	// still is the backend's reason for one that has begun and is kept from running, as Slurm does when it suspends a job; it is not asked meanwhile.
	// stillFor is for how long; once that is autoscale.place_timeout, it is ended and started again where the cluster has room.
	still    string
	stillFor time.Duration
	// away: the backend cannot tell whether it runs; node is where it did.
	away bool
	node string
	// ending: its cluster ends it, and not by the scheduler's word.
	ending bool
	// before is how much of lasts was under the chief before: see [Scheduler.silentBefore].
	before time.Duration
}

// unasked says that it has been silent under the chief before, and that the next one has not asked it yet: it may be well.
func (si *silence) unasked() bool { return si.before > 0 && si.asks == 0 }

// life tells a process from the next one under the same ID.
type life struct {
	Restarts int       `json:"restarts"`
	PID      int       `json:"pid"`
	Started  time.Time `json:"started,omitzero"`
}

// same says that both are the same process; a backend may not tell the PID of one that its cluster keeps from running.
func (l life) same(o life) bool {
	return l.Restarts == o.Restarts && (l.PID == o.PID || l.PID == 0 || o.PID == 0) && l.Started.Equal(o.Started)
}

// replacement bounds how often a rank's process is replaced because it does not answer.
type replacement struct {
	tries int // since it hung
	lost  int // since its node was away, which says nothing of the rank
	last  time.Time
}

// doubled is the least patience with a process of the rank, doubled with each that was replaced lately for the same.
func (r replacement) doubled(least time.Duration, away bool) time.Duration {
	times := r.tries
	if away {
		times = r.lost
	}
	return least << min(times, hungDoublings)
}

// listen takes in which of the processes that run have answered since the last look.
func (s *Scheduler) listen(now time.Time) {
	past := now.Sub(s.listened)
	// A scheduler that slept or was stopped has asked nobody meanwhile.
	past = min(max(past, 0), 2*max(s.pace(now), s.job.Autoscale.Watch)+lookTimeout)
	if s.listened.IsZero() {
		past = 0
	}
	s.listened = now
	if s.seen.listErr != nil || !s.seen.complete {
		return
	}
	running := map[backend.ID]bool{}
	for _, st := range s.seen.list {
		began := st
		ended := !st.Finished.IsZero() && !st.Finished.Before(st.Started) // and is started again: see [trouble]
		if st.State == backend.StateStarting && st.Reason != "" && !st.Started.IsZero() && !ended {
			began.State = backend.StateRunning
		}
		if !s.answerable(began) {
			continue
		}
		place := placeOf(st.ID)
		l := life{Restarts: st.Restarts, PID: st.PID, Started: st.Started}
		si := s.silences[place]
		if si != nil && si.id == st.ID && si.life.same(l) && l.PID != 0 {
			si.life = l
		}
		if si == nil || si.id != st.ID || !si.life.same(l) {
			was, heard := s.want.Heard[st.ID.String()] // by the scheduler before
			si = &silence{id: st.ID, life: l, chief: s.seen.chief.GetChief(), heard: heard && was.same(l)}
		}
		if si.still = ""; began.State != st.State {
			if !si.heard {
				continue // it has not begun yet
			}
			si.still, si.stillFor, si.lasts, si.asks = st.Reason, si.stillFor+past, 0, 0
		} else {
			si.stillFor = 0
		}
		running[place], s.silences[place] = true, si
		away := st.State == backend.StateUnknown
		if away && !si.away && !si.heard {
			si.lasts, si.asks = 0, 0 // until now it was starting
		}
		si.away, si.node, si.ending = away, st.Node, st.State == backend.StateStopping
	}
	maps.DeleteFunc(s.silences, func(place backend.ID, _ *silence) bool { return !running[place] })
	chief := s.chiefAnswer()
	for _, si := range s.silences {
		s.hear(si, chief, past, now)
	}
	if s.seen.chiefErr == nil {
		s.lostChief = lostChief{} // each has taken it in
		return
	}
	for _, si := range s.silences {
		if s.goneWithChief(si) { // that their node is away the backend may have learned later than the chief fell silent
			gone := s.silences[backend.ID{Role: backend.RoleServer}]
			si.lasts, si.asks = max(si.lasts, gone.lasts), max(si.asks, gone.asks)
		}
	}
}

// noteHeard takes down who has answered, for the next scheduler: who has no more time to begin with. It says whether there is anything new to save.
func (s *Scheduler) noteHeard() (changed bool) {
	if s.seen.unlisted() != "" {
		return false
	}
	heard := map[string]life{}
	for _, si := range s.silences {
		if si.heard {
			heard[si.id.String()] = si.life
		}
	}
	if maps.EqualFunc(heard, s.want.Heard, life.same) {
		return false
	}
	s.want.Heard = heard
	return true
}

// answerable says that a process is wanted, runs as far as anybody can tell, and is not on its way out by the scheduler's word.
func (s *Scheduler) answerable(st backend.Status) bool {
	if st.State != backend.StateRunning && st.State != backend.StateStopping && (st.State != backend.StateUnknown || st.Started.IsZero()) {
		return false
	}
	if id := st.ID; id.Role == backend.RoleServer {
		return id.Rank < s.job.Servers.Count && s.want.Servers[id.Rank] == id.Generation && !s.serverLeaves(id) && !s.want.Snapshotted
	}
	return slices.Contains(s.want.wantedRanks(), st.ID.Rank) && s.want.Workers[st.ID.Rank] == st.ID.Generation && !s.leaving(st.ID)
}

// answer is what became of a question.
type answer int

const (
	notAsked answer = iota // or nobody can tell
	noAnswer
	answered
	heardOf // it has not answered, and others can tell that it lives
)

// hear counts the time since the last look as silence of a process, unless it has answered or could not be asked.
func (s *Scheduler) hear(si *silence, chief answer, past time.Duration, now time.Time) {
	if si.still != "" {
		return
	}
	got := s.answerOf(si, chief)
	if of := s.seen.chief.GetChief(); s.seen.chiefErr == nil && of != si.chief {
		si.before = s.silentBefore(si, now)
		si.chief, si.lasts, si.asks = of, si.before, 0 // who has not heard of it yet
	}
	switch d, told := s.meet.heard(si.id); {
	case got == answered:
		si.heard, si.lasts, si.asks, si.before = true, 0, 0, 0
		if r, ok := s.replacements[placeOf(si.id)]; ok && now.Sub(r.last) > hungRest {
			delete(s.replacements, placeOf(si.id))
		}
	case s.seen.modelGone: // the chief is not found, or has stepped back because it cannot read the folder either: it gets its time anew when that is back
		si.lasts, si.asks = 0, 0
	case !si.heard && told && d.at.After(si.told): // a sign of life will do until it answers: it may be beyond a firewall
		si.told, si.lasts, si.asks = d.at, 0, 0
	case got == heardOf:
		si.lasts, si.asks = 0, 0
	case got == noAnswer:
		// The chief had it as a member, and no process of its generation came before it: it has begun, between two looks.
		si.heard = si.heard || si.life.Restarts == 0 && s.seen.member(si.id.Rank, si.id.Generation).GetState() == rpc.MemberState_MEMBER_STATE_EXPELLED && si.id.Role == backend.RoleWorker
		if si.asks == 0 && si.heard && si.before == 0 && s.seen.chiefErr == nil && !isChief(si.id) {
			past += leaseTimeout // for which the chief has waited in vain already
		}
		si.lasts, si.asks = si.lasts+past, si.asks+1
	}
}

// isChief says that a process answers the scheduler itself.
func isChief(id backend.ID) bool { return id.Role == backend.RoleServer && id.Rank == 0 }

// answerOf says whether a process has answered at this look, by its own answer or by the chief's word; chief is the chief's.
func (s *Scheduler) answerOf(si *silence, chief answer) answer {
	n, id := s.seen, si.id
	switch {
	case n.saysWhy(id):
		return notAsked
	case isChief(id), n.chiefErr != nil && s.goneWithChief(si):
		return chief
	case n.chiefErr != nil || s.chiefIsNew():
		return notAsked
	case id.Role == backend.RoleServer:
		if s.well(id) {
			return answered
		}
		return noAnswer
	}
	switch n.member(id.Rank, id.Generation).GetState() {
	case rpc.MemberState_MEMBER_STATE_UNSPECIFIED, rpc.MemberState_MEMBER_STATE_EXPELLED:
		return noAnswer
	case rpc.MemberState_MEMBER_STATE_DRAINED:
		if si.ending {
			return noAnswer
		}
	}
	return answered
}

// memoryMark changes while the chief trains: every ten seconds it keeps beside the checkpoint what its workers and servers have reported to it since. One that
// does so is cut off from the scheduler alone, and to replace it would stop the training that goes on.
func (s *Scheduler) memoryMark() string {
	entries, err := os.ReadDir(filepath.Join(CheckpointFolder(s.job), "memory"))
	if err != nil {
		return s.memory // nobody can tell
	}
	mark := ""
	for _, e := range entries {
		if n := e.Name(); strings.HasSuffix(n, ".json") && !strings.HasPrefix(n, ".") {
			mark = max(mark, n)
		}
	}
	return mark
}

// chiefAnswer is that of server 0. Its silence means nothing while nobody else answers the scheduler either, unless its cluster does not hear its node.
func (s *Scheduler) chiefAnswer() answer {
	switch err := s.seen.chiefErr; {
	case err == nil:
		s.memory = s.memoryMark()
		return answered
	case errors.Is(err, rpc.ErrNoChief) || silent(err):
		if ends := s.seen.endsErr; ends != nil && !errors.Is(ends, traffic.ErrShrunk) && !s.chiefAway() {
			return notAsked
		}
		if mark := s.memoryMark(); mark != s.memory {
			s.memory = mark
			return heardOf
		}
		return noAnswer
	case status.Code(err) == codes.Unknown: // the checkpoint folder could not be read
		return notAsked
	}
	return answered // with a refusal
}

// silentNow says for people who does not answer, and what becomes of it. That the chief does not is a problem by itself, and may be so for one look.
func (s *Scheduler) silentNow() []string {
	if s.want.Stopping {
		return nil // it says for whom it waits
	}
	var out, with []string // with the chief on a node that is away
	for _, place := range slices.SortedFunc(maps.Keys(s.silences), backend.ID.Compare) {
		si := s.silences[place]
		if si.still != "" {
			out = append(out, fmt.Sprintf("%s stands still: %s%s", si.id, si.still, s.fate(si)))
			continue
		}
		if !si.heard || si.lasts < time.Second || isChief(si.id) && si.asks < 2 || si.unasked() {
			continue
		}
		if s.seen.chiefErr != nil && !isChief(si.id) && s.goneWithChief(si) {
			with = append(with, si.id.String())
			continue
		}
		out = append(out, fmt.Sprintf("%s has not answered for %s%s", si.id, job.Length(si.lasts.Round(time.Second)), s.fate(si)))
	}
	if chief := s.silences[backend.ID{Role: backend.RoleServer}]; len(with) > 0 {
		fate := s.fate(chief)
		if fate != "" {
			fate += ", and with it what is there"
		}
		out = append(out, fmt.Sprintf("nobody can tell of %s while the chief, which is on the same node %s, does not answer; nothing is known to be trained%s", strings.Join(with, ", "), chief.node, fate))
	}
	return out
}

// dark says for people who else does not answer while the backend does not tell all that runs, which is the one problem that is told of all that is unknown: Kafka, the
// chief and, by its word, servers. What of the job is dead is not started again before the backend is back.
func (s *Scheduler) dark() (out []string) {
	n := s.seen
	if n.unlisted() == "" || s.want.Stopping || !s.begun() || n.modelGone || n.leaseErr != nil {
		return nil
	}
	fate := "; it is started again once the backend tells what became of it"
	if s.job.Autoscale.Mode == job.ModeObserve {
		fate = ""
	}
	if n.endsErr != nil {
		out = append(out, n.noEnds())
	}
	if silent(n.chiefErr) && n.moving == "" {
		return append(out, chiefMute+n.chiefErr.Error()+". Nobody can tell whether anything is trained"+fate)
	}
	for _, sv := range n.chief.GetServers() {
		rank := int(sv.GetInfo().GetIndex())
		id := serverID(rank, s.want.Servers[rank])
		if st, found := n.allocation(id); sv.GetInfo().GetUp() || s.chiefIsNew() || found && st.State != backend.StateUnknown {
			continue
		}
		since := ""
		if beat := sv.GetLastBeatUnixMs(); beat > 0 {
			since = " for " + job.Length(time.Duration(max(0, n.chief.GetNowUnixMs()-beat)*int64(time.Millisecond)).Round(time.Second))
		}
		out = append(out, fmt.Sprintf("%s has not answered%s, and training waits for it%s", id, since, fate))
	}
	return out
}

// goesOn says that a process answers of which the backend cannot tell whether it runs.
func (s *Scheduler) goesOn(st backend.Status) bool {
	si := s.silences[placeOf(st.ID)]
	return st.State == backend.StateUnknown && si != nil && si.id == st.ID && si.heard && si.asks == 0 && s.seen.chiefErr == nil && s.answerOf(si, answered) == answered
}

// adrift says for people what answers though the backend cannot tell whether it runs, since its node is away, for each reason that the backend gives.
func (s *Scheduler) adrift() (out []string) {
	if s.seen.unlisted() != "" { // which is said
		return nil
	}
	var reasons []string
	who := map[string][]string{}
	for _, st := range slices.SortedFunc(slices.Values(s.seen.list), func(a, b backend.Status) int { return a.ID.Compare(b.ID) }) {
		if !s.goesOn(st) {
			continue
		}
		if who[st.Reason] == nil {
			reasons = append(reasons, st.Reason)
		}
		who[st.Reason] = append(who[st.Reason], st.ID.String())
	}
	for _, reason := range reasons {
		answer, them, fate := "answer", "them", ". What ends or falls silent there is started again"
		if len(who[reason]) == 1 {
			answer, them = "answers", "it"
		}
		if s.want.Stopping || s.job.Autoscale.Mode == job.ModeObserve {
			fate = ""
		}
		out = append(out, fmt.Sprintf("%s %s, though backend %q does not see %s run (%s)%s", strings.Join(who[reason], ", "), answer, s.job.Backend.Name, them, reason, fate))
	}
	return out
}

// fate is what becomes of a process that goes on not to answer, as the end of a sentence.
func (s *Scheduler) fate(si *silence) string {
	if s.job.Autoscale.Mode == job.ModeObserve {
		return ""
	}
	if s.unsaved != nil {
		return "; nothing comes of that until the scheduler's state can be saved"
	}
	if si.still != "" {
		if r := s.roomElsewhere(si); r != nil && !r.fits {
			return "; it is ended and started again as soon as there is room elsewhere: " + r.why
		}
		return fmt.Sprintf("; after %s of that it is ended and started again, if there is room elsewhere", job.FormatDuration(s.job.Autoscale.PlaceTimeout))
	}
	return fmt.Sprintf("; after %s it is %s and started again", job.Length(s.limit(si, s.listened).Round(time.Second)), endOf(si.away))
}

// endOf is what happens to a process that does not answer: what is away is ended when its node is back.
func endOf(away bool) string {
	if away {
		return "given up"
	}
	return "ended by force"
}

// chiefSilent says for people that the chief does not answer: which process that is, where, and what becomes of it.
func (s *Scheduler) chiefSilent(err error) error {
	place := backend.ID{Role: backend.RoleServer}
	if s.seen == nil {
		return fmt.Errorf("the chief does not answer: %w", err)
	}
	if s.seen.moving != "" {
		return fmt.Errorf("the chief does not answer: %s: %w", s.seen.moving, err)
	}
	who := fmt.Sprintf("parameter server %d", place.Rank)
	for _, st := range s.listed {
		if placeOf(st.ID) != place || st.ID.Generation != s.want.Servers[place.Rank] {
			continue
		}
		who += ", " + st.ID.String()
		if st.PID > 0 {
			who += fmt.Sprintf(", process %d", st.PID)
		}
		if st.Node != "" {
			who += " on " + st.Node
		}
	}
	fate := ""
	if si := s.silences[place]; si != nil {
		fate = s.fate(si)
	}
	return fmt.Errorf("the chief (%s) does not answer: %w%s", who, err, fate)
}

// patience is for how long a process may answer nothing.
func (s *Scheduler) patience(si *silence) time.Duration {
	least := hungAfter
	switch {
	case si.away:
		least = awayAfter
	case si.ending:
		least = endedAfter
	}
	return s.replacements[placeOf(si.id)].doubled(least, si.away)
}

// limit is how much silence there is until a process is ended: one that has not answered yet, in this life, has its time to start besides, unless its node is away.
func (s *Scheduler) limit(si *silence, now time.Time) time.Duration {
	patience := s.patience(si)
	if si.before > 0 {
		patience = max(patience, si.before+foundAfter)
	}
	if si.heard || si.away || si.ending {
		return patience
	}
	start := s.replacements[placeOf(si.id)].doubled(startTime, false)
	if si.life.Started.IsZero() {
		return patience + start
	}
	return max(patience, si.lasts+si.life.Started.Add(patience+start).Sub(now))
}

// hangs says that a process must be ended, which it cannot do itself.
func (s *Scheduler) hangs(si *silence, now time.Time) bool {
	return si.asks >= hungAsks && si.lasts >= s.limit(si, now)
}

// overdue says that a process has stood still for so long that a place elsewhere is looked for.
func (s *Scheduler) overdue(si *silence) bool {
	return si.still != "" && si.stillFor >= s.job.Autoscale.PlaceTimeout
}

// roomElsewhere says whether the cluster has a place for the successor of a process that has stood still for too long; nil: it has not, or that is not known.
func (s *Scheduler) roomElsewhere(si *silence) *room {
	switch {
	case !s.overdue(si):
		return nil
	case si.id.Role == backend.RoleServer:
		return s.seen.serverRoom
	}
	return s.seen.workerRoom
}

// endsStill picks of those that have stood still for too long one of each role that is to be started elsewhere: where there is room for one there may not be for two.
func (s *Scheduler) endsStill() []*silence {
	var out []*silence
	roles := map[string]bool{}
	for _, place := range slices.SortedFunc(maps.Keys(s.silences), backend.ID.Compare) {
		si := s.silences[place]
		if r := s.roomElsewhere(si); r != nil && r.fits && !roles[si.id.Role] {
			roles[si.id.Role] = true
			out = append(out, si)
		}
	}
	return out
}

// replaceHung ends by force what hangs, or stands still and has room elsewhere, gives up what is away, and makes a higher generation of it wanted. That the backend was told is not saved: after a crash of the scheduler
// in between it refuses the generation that it ended, and the next one is taken. Nothing is ended whose successor could not be saved.
func (s *Scheduler) replaceHung(ctx context.Context, now time.Time) error {
	hung := s.endsStill()
	for _, place := range slices.SortedFunc(maps.Keys(s.silences), backend.ID.Compare) {
		if si := s.silences[place]; s.hangs(si, now) {
			hung = append(hung, si)
		}
	}
	var ids []backend.ID
	for _, si := range hung {
		ids = append(ids, si.id)
	}
	if len(ids) == 0 {
		return nil
	}
	if !s.want.Stopping { // which is how a full disk is left
		if err := s.store.Room(); err != nil {
			return err
		}
	}
	return s.askEnd(ctx, ids, backend.Forced, func(err error) error {
		if err != nil {
			s.lg.Warn("the backend did not end what hangs; trying again", "workloads", len(ids), "err", err)
			return nil
		}
		return s.endedHung(hung, now)
	})
}

// endedHung takes in that what hung was ended.
func (s *Scheduler) endedHung(hung []*silence, now time.Time) error {
	for _, si := range hung {
		place, gens := placeOf(si.id), s.want.Workers
		if si.id.Role == backend.RoleServer {
			gens = s.want.Servers
		}
		gens[si.id.Rank] = max(gens[si.id.Rank], si.id.Generation+1)
		r := s.replacements[place]
		if r.last = now; si.away {
			r.lost++
		} else {
			r.tries++
		}
		s.replacements[place] = r
		delete(s.silences, place)
		if isChief(si.id) {
			s.lostChief = lostChief{node: si.node, silent: si.lasts, at: now}
		}
		if si.still != "" {
			s.warn("a process stood still; it is ended and started again where there is room", "workload", si.id.String(), "still", si.stillFor.Round(time.Second), "reason", si.still)
		} else {
			s.warn("a process has not answered; it is "+endOf(si.away)+" and started again", "workload", si.id.String(), "silent", si.lasts.Round(time.Second), "had_answered", si.heard)
		}
		s.noteHung(si, now)
	}
	return s.save()
}

// noteHung takes note of a process that was ended because it hung.
func (s *Scheduler) noteHung(si *silence, now time.Time) {
	t := s.troubles[placeOf(si.id)]
	if t == nil {
		t = &trouble{id: si.id}
		s.troubles[placeOf(si.id)] = t
	}
	t.times, t.last, t.over = t.times+1, now, true
	t.died, t.hung, t.away, t.still, t.followed, t.tail, t.unread = si.id, si.lasts.Round(time.Second), si.away, si.still, false, "", 0
	if si.still != "" {
		t.hung = si.stillFor.Round(time.Second)
	}
}

// hungWords say for what a process that was ended has not answered, or stood still.
func hungWords(id backend.ID, lasted time.Duration, away bool, still string, times int) string {
	text := fmt.Sprintf("%s has not answered for %s; it was %s and started again", id, job.Length(lasted), endOf(away))
	if still != "" {
		text = fmt.Sprintf("%s stood still for %s (%s); it was ended and started again where there was room", id, job.Length(lasted), still)
	}
	if times > 1 {
		text += fmt.Sprintf(" (%d ends lately)", times)
	}
	return text
}
