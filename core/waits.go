package core

import (
	"cmp"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
)

// waits says for people what a change under way, or a stop, waits for; "" when nothing is waited for, or when that is not known.
func (s *Scheduler) waits() string {
	switch {
	case s.want.Stopped:
		return ""
	case s.want.Stopping && s.seen.blind():
		return "what runs to be seen again: the problem says what helps"
	case s.want.Stopping && s.seen.listErr != nil:
		return "the backend, which does not answer" + s.whyUnlisted() + s.withoutCluster()
	case s.want.Stopping && !s.seen.complete:
		return "the backend, which" + strings.TrimPrefix(ListedInPart(s.seen.list), "the backend") + s.withoutCluster()
	case s.seen.listErr != nil || !s.seen.complete:
		return ""
	case s.want.Stopping:
		return s.stopWaits()
	case s.job.Autoscale.Mode == job.ModeObserve:
		return ""
	}
	var what []string
	for i := range s.job.Servers.Count {
		if w := cmp.Or(s.serverWaits(i), s.drainWaits(i)); w != "" {
			what = append(what, w)
		}
	}
	for _, rank := range s.want.Ranks {
		if w := s.workerWaits(rank); w != "" {
			what = append(what, w)
		}
	}
	for _, v := range s.want.Renewals {
		what = append(what, s.renewalWaits(v))
	}
	if v := s.want.ServerRenewal; v != nil {
		what = append(what, v.String())
	}
	for _, l := range s.want.Draining {
		what = append(what, s.leavingWaits(l))
	}
	if r := s.want.Rescale; len(what) == 0 && r != nil && s.seen.chiefErr == nil {
		return s.unsettled(r)
	}
	return fewOf(what, "; ")
}

// whyUnlisted says why the backend does not answer, where no problem does.
func (s *Scheduler) whyUnlisted() string {
	if s.seen.unknown(s.begun()) == s.seen.unlisted() {
		return " (the problem says why)"
	}
	return ": " + s.seen.listErr.Error()
}

// withoutCluster says what ends, or would end, of a job that is being stopped while its cluster does not tell what runs.
func (s *Scheduler) withoutCluster() string {
	switch {
	case !s.want.Forced:
		return "; kale stop -force " + s.job.Name + " ends without it what can read the checkpoint folder"
	case s.shutOut:
		return "; " + toldToEnd
	}
	return ""
}

// toldToEnd says what a stop by force has done where the cluster could not be told.
const toldToEnd = "what can read the checkpoint folder has been told there to end"

// few names the first of several things.
func few(what []string) string { return fewOf(what, ", ") }

// fewOf is few with what parts them: "; " where they may have commas themselves.
func fewOf(what []string, parted string) string {
	const most = 2
	if more := len(what) - most; more > 0 {
		return fmt.Sprintf("%s%sand %d more", strings.Join(what[:most], parted), parted, more)
	}
	return strings.Join(what, parted)
}

func (s *Scheduler) stopWaits() string {
	var workers, servers []string
	for _, st := range s.seen.list {
		switch {
		case !st.State.Live() || s.leftBehind(st):
		case st.ID.Role == backend.RoleWorker:
			drains := " to drain"
			if s.want.Forced || st.State == backend.StateStopping {
				drains = " to end"
			}
			workers = append(workers, st.ID.String()+drains+onAway(st))
		default:
			servers = append(servers, st.ID.String()+" to end"+onAway(st))
		}
	}
	switch {
	case s.want.Forced:
		return fewOf(append(workers, servers...), "; ")
	case len(workers) > 0:
		return s.keptStill() + s.unstartable() + fewOf(workers, "; ") + s.unanswered()
	case len(servers) > 0 && !s.want.Snapshotted && s.unplacedChief() != nil:
		st := s.unplacedChief()
		return fmt.Sprintf("a place for %s (%s), which the last snapshot needs; %s after it was asked for it is done without: what its process before wrote stays", st.ID, st.Reason, job.Length(chiefPlace))
	case len(servers) > 0 && !s.want.Snapshotted:
		return s.keptStill() + s.unstartable() + "the last snapshot" + s.writers() + s.snapshotTrouble() + s.unanswered()
	}
	return fewOf(servers, "; ")
}

// onAway says of a process whose node does not answer its cluster that it does not.
func onAway(st backend.Status) string {
	switch {
	case !st.Away:
		return ""
	case st.Node == "":
		return " (its node does not answer the cluster)"
	}
	return " (node " + st.Node + " does not answer the cluster)"
}

// keptStill names what its cluster keeps from running, for which everything else waits, as the beginning of a sentence.
func (s *Scheduler) keptStill() string {
	var still []string
	for _, st := range s.seen.list {
		if st.State == backend.StateStarting && !st.Started.IsZero() && st.Reason != "" {
			still = append(still, fmt.Sprintf("%s, which stands still (%s)", st.ID, st.Reason))
		}
	}
	if len(still) == 0 {
		return ""
	}
	return fewOf(still, "; ") + "; then for "
}

// unstartable names the servers that cannot start, without which nothing drains and nothing is written, as the beginning of a sentence. Why is among the problems.
func (s *Scheduler) unstartable() string {
	var servers []int32
	for _, r := range s.seen.cannotStart {
		servers = append(servers, int32(r.Server))
	}
	if len(servers) == 0 {
		return ""
	}
	return numbered("parameter server", servers) + ", which cannot start: the problem says how to mend it, and kale stop -force " + s.job.Name + " ends the job without it; then for "
}

// chiefPlace is how long a stop waits for a place for server 0, without which there is no last snapshot.
const chiefPlace = 30 * time.Second

// unplacedChief is server 0 where it waits in its cluster's queue, nil where it does not. Nothing is trained then that its process before has not kept.
func (s *Scheduler) unplacedChief() *backend.Status {
	st, found := s.seen.allocation(serverID(0, s.want.Servers[0]))
	if !found || st.State != backend.StatePending || s.seen.chiefErr == nil {
		return nil
	}
	return &st
}

// unanswered says which servers a stop needs and does not hear, and what becomes of them.
func (s *Scheduler) unanswered() string {
	var mute []string
	for i := range s.job.Servers.Count {
		id := backend.ID{Role: backend.RoleServer, Rank: i, Generation: s.want.Servers[i]}
		if si := s.silences[placeOf(id)]; si != nil && si.id == id && si.asks > 1 {
			fate := fmt.Sprintf("after %s it is %s and started again", job.Length(s.limit(si, s.listened).Round(time.Second)), endOf(si.away))
			if s.unsaved != nil {
				fate = "nothing comes of that until the scheduler's state can be saved"
			}
			mute = append(mute, fmt.Sprintf("%s, which has not answered for %s (%s)", id, job.Length(si.lasts.Truncate(time.Second)), fate))
		}
	}
	if len(mute) == 0 {
		return ""
	}
	return "; and for " + fewOf(mute, "; ")
}

// writers names the servers that have yet to write the last snapshot, where that is known and not all of them.
func (s *Scheduler) writers() string {
	if s.seen.chiefErr != nil || s.snapshotFrom == nil {
		return ""
	}
	var names []string
	for _, sv := range s.seen.chief.GetServers() {
		if i := sv.GetInfo().GetIndex(); sv.GetMetrics().GetLastSnapshotUnixMs() <= s.snapshotFrom[i] {
			names = append(names, fmt.Sprintf("ps-%d", i))
		}
	}
	if len(names) == 0 || len(names) == s.job.Servers.Count {
		return ""
	}
	return ", which " + few(names) + " has yet to write"
}

// snapshotTrouble says that the last snapshot fails, as far as that is known, and what does without it. Why it does is among the problems.
func (s *Scheduler) snapshotTrouble() string {
	if s.snapshotErr == nil && len(s.snapshotFailures()) == 0 {
		return ""
	}
	return ", which fails (it is tried again; kale stop -force does without it)"
}

// snapshotFailures are what keeps servers from writing snapshots, by their own word; while the chief does not answer, by their last. What several
// fail at for one cause, such as a disk that is full, is told once, in the words of the first.
func (s *Scheduler) snapshotFailures() (out []string) {
	if s.seen.chiefErr != nil {
		return s.failing
	}
	var causes []string
	first, servers := map[string]string{}, map[string][]int32{}
	for _, sv := range s.seen.chief.GetServers() {
		e := sv.GetMetrics().GetSnapshotError()
		if e == "" {
			continue
		}
		cause := e[strings.LastIndex(e, ": ")+1:]
		if first[cause] == "" {
			causes, first[cause] = append(causes, cause), e
		}
		servers[cause] = append(servers[cause], sv.GetInfo().GetIndex())
	}
	for _, c := range causes {
		out = append(out, numbered("parameter server", servers[c])+": snapshots fail: "+first[c])
	}
	return out
}

// lacksFolder says that a snapshot fails because the checkpoint folder is not there, and not for what else a node may have.
func lacksFolder(failure string) bool {
	return strings.Contains(failure, syscall.ENOENT.Error()) || strings.Contains(failure, "the checkpoint is gone")
}

// serverWaits says what a wanted server lacks.
func (s *Scheduler) serverWaits(index int) string {
	id := backend.ID{Role: backend.RoleServer, Rank: index, Generation: s.want.Servers[index]}
	if w := s.allocationWaits(id); w != "" {
		return w
	}
	if err := s.seen.chiefErr; err == nil && !s.well(id) || err != nil && silent(err) && index == 0 && !s.seen.modelGone { // the chief is in server 0
		return id.String() + " to be up"
	}
	return ""
}

// workerWaits says what a wanted worker lacks.
func (s *Scheduler) workerWaits(rank int) string {
	if s.departing(rank) {
		return "" // said of the one that leaves
	}
	id := backend.ID{Role: backend.RoleWorker, Rank: rank, Generation: s.want.Workers[rank]}
	if w := s.allocationWaits(id); w != "" {
		if _, found := s.seen.allocation(id); !found && s.withholds() {
			server, _ := s.unplacedServer()
			return fmt.Sprintf("%s (once %s has a place)", w, server.ID)
		}
		return w
	}
	if s.seen.chiefErr != nil {
		return ""
	}
	switch m := s.seen.member(id.Rank, id.Generation); m.GetState() {
	case rpc.MemberState_MEMBER_STATE_READY:
		return ""
	case rpc.MemberState_MEMBER_STATE_JOINING:
		return id.String() + " to be ready"
	}
	return id.String() + " to join"
}

// allocationWaits says what the backend has yet to do for a process.
func (s *Scheduler) allocationWaits(id backend.ID) string {
	st, found := s.seen.allocation(id)
	if found && (st.State == backend.StateRunning || s.goesOn(st)) {
		return ""
	}
	text := id.String() + " to start"
	if found && st.State == backend.StateStopping { // another generation starts then
		text = id.String() + " to end"
	}
	switch si := s.silences[placeOf(id)]; {
	case si == nil || si.id != id:
	case si.still != "":
		text = id.String() + " to go on"
	case si.heard && !si.ending:
		text = id.String() + " to answer"
	}
	if t := s.troubles[placeOf(id)]; t != nil && t.refused != "" {
		return text + " (" + t.refused + ")"
	}
	if found && st.State.Live() && st.Reason != "" {
		return text + " (" + st.Reason + ")"
	}
	return text
}

func (s *Scheduler) leavingWaits(l leaving) string {
	if l.Released {
		return l.id().String() + " to end"
	}
	return l.id().String() + " to drain"
}
