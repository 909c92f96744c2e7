package core

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
)

// trouble is what an operator must know of one rank of the job: its process ends again and again, or is not started. A rank that is well has one with
// nothing in it.
type trouble struct {
	id       backend.ID // the generation that was seen last
	restarts int        // of that one, when it last ended
	finished time.Time  // when that one last ended, as the backend says
	over     bool       // that one has ended for good
	awaited  bool       // it has ended, by when it finished, and the start that is to follow was not seen yet
	times    int        // how often processes of this rank have ended lately
	last     time.Time
	died     backend.ID     // the generation that ended last
	followed bool           // another process of the same ID comes after the one that ended
	reason   string         // why it ended
	hung     time.Duration  // for how long it had not answered when it was ended for that; 0: it ended by itself
	still    string         // then it had stood still by the backend's word, for this reason
	away     bool           // then it was not ended but given up: nobody could tell whether it ran
	tail     string         // the end of the log of the process that ended
	unread   int            // how many more times its log is tried to be read
	refusal  *backend.Error // why the backend does not start it; refused has it for people
	refused  string         // why the backend does not start it
	since    time.Time      // when it was refused first, where that is for what ends in its place
}

const (
	// A process that is well by the chief's word for troubleRest, or by the backend's for troubleAge and is not asked in vain, is no trouble any more.
	troubleRest = 15 * time.Second
	troubleAge  = time.Minute
	// What is refused while the one before it ends waits for that (see waits); one that does not end within endsWithin is a trouble. A cluster may take a quarter of a
	// minute to see that a node is away, as after a stop by force.
	endsWithin = 30 * time.Second
	// The end of a log: so many lines, so many characters of them, within so much time and so many tries. It is looked for in so many lines and bytes, since
	// the next process under the same ID may have written much when it is read.
	tailLines   = 3
	tailRunes   = 400
	tailTimeout = 2 * time.Second
	tailTries   = 5
	tailWithin  = 2000
	tailBytes   = 4 << 20
)

// LogEnds parts, in a problem, what happened from the end of a log. Two problems that are alike before it are one.
const LogEnds = "; its log ends: "

// TriedAgain ends a problem of a process that is not started.
const TriedAgain = "; it is tried again"

func placeOf(id backend.ID) backend.ID { return backend.ID{Role: id.Role, Rank: id.Rank} }

// heed takes note of wanted processes that ended, and reads the end of their logs while the backend still has them.
func (s *Scheduler) heed(ctx context.Context, now time.Time) {
	if s.seen.listErr != nil {
		return
	}
	var unread []*trouble
	for _, st := range s.seen.list {
		if s.leaving(st.ID) || s.replaced(st.ID) || s.want.Stopping && !s.wanted(st.ID) || st.State == backend.StateStopping || s.serverLeaves(st.ID) || succeeds(s.seen.list, st) || s.unbegun(st) {
			continue
		}
		s.compare(st, now)
	}
	for _, place := range slices.SortedFunc(maps.Keys(s.troubles), backend.ID.Compare) {
		if t := s.troubles[place]; t.unread > 0 {
			unread = append(unread, t)
		}
	}
	s.readTails(ctx, unread)
	for place, t := range s.troubles {
		switch {
		case !s.wanted(t.id):
			delete(s.troubles, place)
		case t.times > 0 && s.recovered(t, now):
			s.lg.Info("runs again", "workload", t.id.String())
			t.times, t.tail, t.unread = 0, "", 0
		}
	}
}

// compare holds what is seen of one process against what was seen of its rank before.
func (s *Scheduler) compare(st backend.Status, now time.Time) *trouble {
	t := s.troubles[placeOf(st.ID)]
	if t == nil {
		t = &trouble{id: st.ID, restarts: st.Restarts, finished: st.Finished}
		s.troubles[placeOf(st.ID)] = t
		if st.State == backend.StateStarting && (st.Restarts > 0 || !st.Finished.IsZero()) { // it was in trouble before this scheduler looked
			t.restarts, t.finished = max(0, st.Restarts-1), time.Time{}
		}
	}
	if t.id != st.ID {
		t.id, t.restarts, t.finished, t.over, t.awaited = st.ID, 0, time.Time{}, false, false
	}
	if st.State.Live() {
		t.refusal, t.refused, t.since = nil, "", time.Time{}
	}
	over, finished := !st.State.Live(), st.Finished.After(t.finished)
	if t.awaited && !finished && st.Restarts > t.restarts { // as where a cluster starts it in another place
		t.awaited = false
		t.restarts++
	}
	again := finished || st.Finished.IsZero() && st.Restarts > t.restarts
	if over && !t.over || !over && again {
		if s.shutOutBefore(st) {
			t.over, t.restarts, t.finished, t.awaited = over, st.Restarts, st.Finished, finished && !over && st.Restarts == t.restarts
			s.lg.Info("a process of the run before has ended, as the stop has had it do", "workload", st.ID.String(), "reason", st.Reason)
			return t
		}
		t.times, t.last = t.times+max(1, st.Restarts-t.restarts), now
		t.awaited = finished && !over && st.Restarts == t.restarts
		t.died, t.followed, t.tail, t.unread = st.ID, !over, "", tailTries
		if endedByOthers(st) {
			t.unread = 0
		}
		t.over, t.restarts, t.finished, t.hung, t.still = over, st.Restarts, st.Finished, 0, ""
		t.reason, _, _ = strings.Cut(st.Reason, "; it starts again") // when is no news for long
		if t.reason == "" || st.State == backend.StateUnknown {      // of what is unknown the reason is no end's
			t.reason = "it ended with " + backend.EndWords(st.ExitCode)
		}
		s.warn("a process that is wanted has ended", "workload", st.ID.String(), "times", t.times, "state", string(st.State), "exit", st.ExitCode, "reason", st.Reason)
	}
	return t
}

// shutOutBefore says that a process of the run before has ended because the stop by force after it took its place in the checkpoint folder, where the cluster could not
// end it: that is what was wanted of it.
func (s *Scheduler) shutOutBefore(st backend.Status) bool {
	if st.ExitCode != rpc.ExitFenced || st.Started.IsZero() {
		return false
	}
	if s.cutShort {
		return st.Started.Before(s.started)
	}
	return st.Started.Before(s.want.LastStop)
}

// endedByOthers says that the cluster tells why it has ended a process, or who has: one that did well, or was asked or made to end. Then its log has nothing to do with it.
func endedByOthers(st backend.Status) bool {
	const killed, asked = 137, 143
	return st.State == backend.StateFailed && st.Reason != "" && (st.ExitCode == 0 || st.ExitCode == killed || st.ExitCode == asked)
}

// readTails reads the ends of several logs at the same time.
func (s *Scheduler) readTails(ctx context.Context, ts []*trouble) {
	ctx, cancel := context.WithTimeout(ctx, tailTimeout)
	defer cancel()
	var wg sync.WaitGroup // each touches its own trouble; they end with ctx
	for _, t := range ts[:min(len(ts), 4)] {
		wg.Go(func() {
			text, err := s.logOf(ctx, t.died)
			if t.unread--; err != nil {
				return // tried again: the log of a process that ended stays as it is
			}
			t.tail, t.unread = lastWords(lastLife(text, t.followed)), 0
		})
	}
	wg.Wait()
}

// logOf is the end of what all processes of an ID wrote.
func (s *Scheduler) logOf(ctx context.Context, id backend.ID) (string, error) {
	r, err := s.opt.Backend.Logs(ctx, s.job.Name, id, backend.LogOptions{Tail: tailWithin})
	if err != nil {
		return "", err
	}
	defer r.Close()
	defer context.AfterFunc(ctx, func() { r.Close() })()
	raw, err := io.ReadAll(io.LimitReader(r, tailBytes))
	return string(raw), err
}

// lastLife is what the process wrote that ended last, out of what all processes of its ID wrote. What was written by one that followed it is
// never taken for it, so without a boundary between the two there is nothing to show.
func lastLife(text string, followed bool) string {
	lives := []string{""}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, backend.LogBoundary) {
			lives = append(lives, "")
			continue
		}
		lives[len(lives)-1] += line
	}
	last := len(lives) - 1
	if !followed && strings.TrimSpace(lives[last]) != "" {
		return lives[last]
	}
	if last == 0 {
		return ""
	}
	return lives[last-1]
}

// lastWords are the last lines of a text on one line, without the time at the start of a log's line, each told once, and as few as a person reads. What a log
// says at level INFO or DEBUG is no cause of an end: of a process that was killed it is all that there is.
func lastWords(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		words := strings.Fields(tame(line))
		if len(words) > 1 && strings.HasPrefix(words[0], "time=") {
			words = words[1:]
		}
		if len(words) > 0 {
			lines = append(lines, strings.Join(words, " "))
		}
	}
	var words []string
	room, routine := tailRunes, 0
	for i := len(lines) - 1; i >= 0 && len(words)+routine < tailLines; i-- {
		line := []rune(lines[i])
		if slices.Contains(words, lines[i]) {
			continue // a process that crashes again and again says the same
		}
		if strings.HasPrefix(lines[i], "level=INFO ") || strings.HasPrefix(lines[i], "level=DEBUG ") {
			routine++
			continue
		}
		if len(line) > room && len(words) > 0 {
			break
		}
		if len(line) > room {
			line = append(line[:room-1:room-1], '…')
		}
		words, room = append(words, string(line)), room-len(line)
	}
	slices.Reverse(words)
	return strings.Join(words, " | ")
}

// tame is a line of a log without what commands a terminal, such as its colours, of which a part would be left when the line is cut.
func tame(line string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, ansi.Strip(strings.ToValidUTF8(line, "?")))
}

// recovered says whether a process that had ended runs and can be counted on again.
func (s *Scheduler) recovered(t *trouble, now time.Time) bool {
	quiet := now.Sub(t.last)
	st, found := s.seen.allocation(t.id)
	if si := s.silences[placeOf(t.id)]; si != nil && si.asks > 0 {
		return false // it is asked in vain
	}
	return found && st.State == backend.StateRunning && quiet >= troubleRest && (quiet > troubleAge || s.well(t.id))
}

// replaced says that a newer generation of a process is wanted, and that its end is known.
func (s *Scheduler) replaced(id backend.ID) bool {
	gens := s.want.Workers
	if id.Role == backend.RoleServer {
		gens = s.want.Servers
	}
	return id.Generation < gens[id.Rank]
}

// wanted says whether a process has a rank that shall run.
func (s *Scheduler) wanted(id backend.ID) bool {
	switch w := s.want; {
	case w.Stopped:
		return false
	case id.Role == backend.RoleServer: // a stop needs them until they have written the last snapshot
		return id.Rank < s.job.Servers.Count && (!w.Stopping || !w.Snapshotted && !w.Forced)
	case w.Stopping:
		return false
	}
	return slices.Contains(s.want.wantedRanks(), id.Rank)
}

// well says whether the chief counts on a process.
func (s *Scheduler) well(id backend.ID) bool {
	if id.Role == backend.RoleWorker {
		return s.seen.member(id.Rank, id.Generation).GetState() == rpc.MemberState_MEMBER_STATE_READY
	}
	return s.seen.chiefErr == nil && slices.ContainsFunc(s.seen.chief.GetServers(), func(sv *rpc.ServerStatus) bool {
		return int(sv.GetInfo().GetIndex()) == id.Rank && sv.GetInfo().GetUp()
	})
}

// downLate is for how long a parameter server is down before that is a problem: one that is renewed, or started again, is back within seconds.
const downLate = 10 * time.Second

// serversDown says for people which parameter servers the chief has not heard for longer than their start takes, and what the backend has of them: nothing is trained
// meanwhile, however many workers there are. Those of which something else is said, such as that they have no place, are left out.
func (s *Scheduler) serversDown() (out []string) {
	n := s.seen
	if !s.begun() || n.chiefErr != nil || s.want.Stopping || n.modelGone || n.unlisted() != "" || s.chiefIsNew() || s.withoutPlace() != "" {
		return nil
	}
	for rank := range s.job.Servers.Count {
		id := serverID(rank, s.want.Servers[rank])
		since := n.chief.GetStartedUnixMs() // of one that it has never heard
		for _, sv := range n.chief.GetServers() {
			if int(sv.GetInfo().GetIndex()) == rank {
				since = max(since, sv.GetLastBeatUnixMs())
			}
		}
		lasts := time.Duration(n.chief.GetNowUnixMs()-since) * time.Millisecond
		si := s.silences[placeOf(id)]
		if s.well(id) || lasts < downLate || si != nil && si.heard && si.lasts >= time.Second {
			continue
		}
		what, least := id.String(), ""
		if since == n.chief.GetStartedUnixMs() { // it was down under the chief before, too
			least = "at least "
		}
		if st, found := n.allocation(id); found {
			what += " is " + string(st.State) + because(st.Reason)
		} else {
			what += " is not there yet"
		}
		out = append(out, fmt.Sprintf("parameter server %d has been down for %s%s, and nothing is trained until it is back: %s", rank, least, job.Length(lasts.Round(time.Second)), what))
	}
	return out
}

// serverSilent says that a parameter server which is there, by the backend's word, has not answered for so long that nothing is trained: see [Scheduler.serversDown].
func (s *Scheduler) serverSilent() bool {
	if s.seen.chiefErr != nil || s.want.Stopping {
		return false
	}
	for place, si := range s.silences {
		if place.Role == backend.RoleServer && si.heard && !si.unasked() && si.lasts >= downLate {
			return true
		}
	}
	return false
}

// deny takes note of why the backend did not start a process.
func (s *Scheduler) deny(id backend.ID, err *backend.Error, now time.Time) {
	t := s.troubles[placeOf(id)]
	if t == nil {
		t = &trouble{id: id}
		s.troubles[placeOf(id)] = t
	}
	if t.id != id {
		t.id, t.restarts, t.finished, t.over = id, 0, time.Time{}, false
	}
	switch t.refusal, t.refused = err, err.Error(); {
	case err.Code != backend.Conflict:
		t.since = time.Time{}
	case t.since.IsZero():
		t.since = now
	}
}

// ends says that a process is refused only until the one before it has ended.
func (t *trouble) ends(now time.Time) bool {
	return t.refused != "" && !t.since.IsZero() && now.Sub(t.since) < endsWithin
}

// denied says that the backend refused to start a process under this very ID: it has used nothing up.
func (s *Scheduler) denied(id backend.ID) bool {
	t := s.troubles[placeOf(id)]
	return t != nil && t.id == id && t.refusal != nil
}

// troubled says for people what does not run as it should, servers first.
func (s *Scheduler) troubled() []string {
	var out []string
	for _, t := range s.troubles {
		if !s.wanted(t.id) {
			continue // since the last look
		}
		if t.refused != "" && !t.ends(s.seen.at) {
			out = append(out, fmt.Sprintf("%s is not started: %s", t.id, t.refused)+TriedAgain)
		} else if t.times > 0 {
			out = append(out, t.String())
		}
	}
	slices.SortFunc(out, strings.Compare) // "ps-…" before "worker-…"
	return out
}

// hungLately says for people what was ended lately because it did not answer.
func (s *Scheduler) hungLately() []string {
	var out []string
	for _, t := range s.troubles {
		if t.hung > 0 && t.times > 0 {
			out = append(out, t.String())
		}
	}
	slices.Sort(out)
	return out
}

// String keeps to one wording however often it has happened, so that who follows problems sees one that goes on.
func (t *trouble) String() string {
	if t.hung > 0 {
		return hungWords(t.died, t.hung, t.away, t.still, t.times)
	}
	text := fmt.Sprintf("%s has ended %d×: %s", t.died, t.times, t.reason)
	if t.tail != "" {
		text += LogEnds + t.tail
	}
	return text
}
