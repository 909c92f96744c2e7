package core

import (
	"context"
	"fmt"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
)

// ServerRenewal is a parameter server that is replaced before the cluster ends it. Servers are not elastic yet, so training pauses from the end of the old
// process until the new one has restored its tablets.
type ServerRenewal struct {
	Index      int       `json:"index"`
	Generation uint64    `json:"generation"` // of the process that leaves
	Deadline   time.Time `json:"deadline"`
	// Cause is why it leaves.
	Cause backend.EndCause `json:"cause,omitempty"`
	// Incarnation is the old one's, as the chief knew it.
	Incarnation uint64    `json:"incarnation"`
	Begun       time.Time `json:"begun"`
	// From and To are the nodes of the two, empty where they are not known.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// NoRoom is why the cluster has no place for the successor now, so that the old one stays; "": it has one.
	NoRoom string `json:"no_room,omitempty"`
	// Lacked is when the cluster said last that it had none; zero: it never did.
	Lacked time.Time `json:"lacked,omitzero"`
	// ends says that the cluster may end it any moment.
	ends bool
	// Released is when it was asked to end, after a snapshot; Done when the chief had heard of its successor.
	Released time.Time `json:"released,omitzero"`
	Done     time.Time `json:"done,omitzero"`
	// Served is when the chief last heard from it after that, zero where it did not: until then nothing paused.
	Served time.Time `json:"served,omitzero"`
	// Back is when the chief had first heard of its successor.
	Back time.Time `json:"back,omitzero"`
	// Paused is how long training stood still: the longest time in which a partition with unread records had no applied record. Where that could not be
	// followed (the chief moves with server 0) Followed is false: Bridged, it is the longest time in which none is known, otherwise the time from Served, or
	// Released, to Done.
	Paused   time.Duration `json:"paused"`
	Followed bool          `json:"followed"`
	Bridged  bool          `json:"bridged,omitempty"`
	// Ended: the cluster ended it before it was its turn to be renewed; Reason is how, by the backend's word, which may be another end than the one that was
	// announced, as with a node that fails meanwhile. "": it has none.
	Ended  bool   `json:"ended,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Failed is why it ended by itself, before it was asked to and before the cluster was to end it; "": it did not.
	Failed string `json:"failed,omitempty"`
}

// lackedLately is for how long it counts that there was no place: the scheduler looks oftener.
const lackedLately = 30 * time.Second

// String is the renewal for people.
func (v *ServerRenewal) String() string {
	id := fmt.Sprintf("ps-%d", v.Index)
	switch {
	case v.Released.IsZero() && v.NoRoom != "":
		return fmt.Sprintf("a place for the successor of %s, which %v may end at %s at the earliest (%s); it trains on in its own until there is one%s",
			id, v.Cause, v.Deadline.Format("15:04:05"), v.NoRoom, v.atTheLatest())
	case v.Released.IsZero():
		return fmt.Sprintf("a snapshot, before %s is renewed (%v may end it at %s at the earliest)", id, v.Cause, v.Deadline.Format("15:04:05"))
	case v.Done.IsZero():
		return fmt.Sprintf("%s to be renewed before %v may end it (at %s at the earliest)", id, v.Cause, v.Deadline.Format("15:04:05"))
	}
	if v.Failed != "" {
		return fmt.Sprintf("%s%s failed before it was renewed (%s); %s", id, moved(v.From, v.To), v.Failed, v.pause())
	}
	if v.Ended && v.Reason != "" {
		return fmt.Sprintf("%s%s ended before it was its turn to be renewed (%s); %s", id, moved(v.From, v.To), v.Reason, v.pause())
	}
	if v.Ended {
		return fmt.Sprintf("%s%s was ended by %v before it was its turn to be renewed; %s", id, moved(v.From, v.To), v.Cause, v.pause())
	}
	when, why := "before", ""
	if v.Back.Sub(v.Released) > assumedServerPause {
		why = fmt.Sprintf(", ended at %s and came back at %s", v.Released.Format("15:04:05"), v.Back.Format("15:04:05"))
	}
	if v.Released.After(v.Deadline) {
		when = "after"
		if !v.Lacked.IsZero() && v.Released.Sub(v.Lacked) < lackedLately { // and not before the cluster fell silent
			why = ", when no place had come free for its successor" + why
		}
	}
	if v.Cause == backend.EndDrain && when == "before" {
		return fmt.Sprintf("%s%s, since its node is drained; %s", id, moved(v.From, v.To), v.pause())
	}
	return fmt.Sprintf("%s%s %s %v could end it (at %s at the earliest)%s; %s", id, moved(v.From, v.To), when, v.Cause, v.Deadline.Format("15:04:05"), why, v.pause())
}

// routine says that it went as it should: by turns, before the cluster could end the server, with a pause of seconds.
func (v *ServerRenewal) routine() bool {
	return v.Failed == "" && !v.Ended && !v.Released.After(v.Deadline) && v.Paused < assumedServerPause
}

// shown is like [Renewed.shown].
func (v *ServerRenewal) shown(now time.Time) *ServerRenewal {
	if v == nil || !(Note{At: v.Done, Routine: v.routine()}).shown(now) {
		return nil
	}
	return v
}

// pause says for how long training stood still. What was not followed, and seems to have taken no time, began before anybody saw it.
func (v *ServerRenewal) pause() string {
	switch {
	case v.Followed && v.Paused <= 0:
		return "training did not pause"
	case v.Followed:
		return "training paused for " + job.Length(v.Paused)
	case v.Paused < time.Second && !v.Bridged:
		return "for how long training paused is not known"
	}
	return "training paused for at most " + job.Length(v.Paused)
}

// atTheLatest says until when a server without a place for its successor stays.
func (v *ServerRenewal) atTheLatest() string {
	if v.Cause == backend.EndDrain { // which ends nobody by itself
		return ", and leaves at that time at the latest"
	}
	return ", or until it is ended"
}

// moved says from where to where, where that is known.
func moved(from, to string) string {
	if from == "" || to == "" || from == to {
		return ""
	}
	return fmt.Sprintf(" (from node %s to %s)", from, to)
}

// renewServers replaces one parameter server at a time before its walltime ends: a snapshot, an orderly end with what was trained since, a higher generation. It
// begins when the successor has a place beside it (standby.go), or the cluster has one for it: what the old one gives up goes to whoever is the next in the
// cluster's queue.
func (s *Scheduler) renewServers(ctx context.Context, now time.Time) error {
	if s.job.Autoscale.Mode == job.ModeObserve {
		return nil
	}
	v := s.want.ServerRenewal
	if v == nil {
		if v = s.dueServer(now); v == nil {
			return nil
		}
		s.lg.Info("the cluster will end a parameter server; it is renewed, and training pauses meanwhile", "server", v.Index, "by", v.Cause.String(), "deadline", v.Deadline)
		s.want.ServerRenewal = v
		return s.save()
	}
	id := serverID(v.Index, v.Generation)
	st, found := s.seen.allocation(id)
	gone := !found || !st.State.Live()
	if !v.Released.IsZero() && !gone && s.well(id) && s.serverInfo(v.Index).GetInfo().GetIncarnation() == v.Incarnation {
		v.Served = now
	}
	if v.Released.IsZero() && (gone || s.want.Servers[v.Index] > v.Generation) {
		s.endedFirst(v, st, now)
	}
	switch {
	case s.want.Servers[v.Index] > v.Generation:
		return s.serverIsBack(v, now)
	case gone:
		next := v.Generation + 1
		if st, waits := s.successor(v.Index); waits {
			next = st.ID.Generation
		}
		s.want.Servers[v.Index], v.NoRoom = next, ""
		return s.save()
	case v.Released.IsZero() && st.Deadline.IsZero() && st.State == backend.StateRunning:
		s.lg.Info("the cluster lets a parameter server go on after all", "server", v.Index, "was_to_end_by", v.Cause.String())
		s.serverSnapshot.end()
		s.want.ServerRenewal = nil
		return s.save()
	case v.Released.IsZero() && s.keepsItsPlace(v, now):
		return nil
	case v.Released.IsZero() && s.worthASnapshot(ctx, v, st, now):
		return nil
	}
	return s.askEnd(ctx, []backend.ID{id}, backend.Drained, func(err error) error {
		if err != nil {
			s.lg.Warn("the backend did not release a parameter server; trying again", "workload", id.String(), "err", err)
			return nil
		}
		if !v.Released.IsZero() {
			return nil
		}
		v.Released = now
		if quiet := s.ends[v.Index].quiet; !quiet.IsZero() && now.Sub(quiet) > leaseTimeout {
			s.endedFirst(v, st, now) // with whatever has silenced it
		}
		return s.save()
	})
}

// endedFirst takes in that a server which was to be renewed has ended before it was asked to: when, as far as that is known, and whether the cluster ended it as
// it had announced or it failed.
func (s *Scheduler) endedFirst(v *ServerRenewal, st backend.Status, now time.Time) {
	v.Released = now
	quiet := s.ends[v.Index].quiet
	switch {
	case st.Finished.After(v.Begun) && st.Finished.Before(now):
		v.Released = st.Finished
	case !quiet.IsZero() && s.ends[v.Index].id.Generation == v.Generation:
		v.Released = quiet
	}
	if !v.Released.Before(v.Deadline) {
		return
	}
	v.Failed = "it ended by itself"
	if !quiet.IsZero() {
		v.Failed = "it did not answer any more"
	}
	if st.Reason != "" && !st.State.Live() {
		v.Failed = st.Reason
	}
	s.lg.Warn("a parameter server that was to be renewed has failed before", "server", v.Index, "why", v.Failed)
}

// keepsItsPlace says that a server stays although it is due, because the cluster has no place for its successor. What a walltime or a preemption ends stays until
// then: it is asked to end in good time, and ends in order.
func (s *Scheduler) keepsItsPlace(v *ServerRenewal, now time.Time) bool {
	r := s.roomForSuccessor(v.Index)
	v.NoRoom = ""
	if r == nil || r.fits || v.Cause == backend.EndDrain && !now.Before(v.Deadline.Add(-2*s.snapshotTime(v.Index)-2*s.job.Autoscale.Watch)) {
		return false
	}
	if v.NoRoom, v.ends = r.why, !now.Before(v.Deadline); !r.unasked {
		v.Lacked = now
	}
	return true
}

// serverAway says that a parameter server is being replaced, or is about to be.
func (s *Scheduler) serverAway() bool {
	v := s.want.ServerRenewal
	return v != nil && v.NoRoom == ""
}

// dueServer is the next server that has to be renewed, nil when none has. While workers hand over it waits, for a third of its time: what it has left then is
// what it takes, without the safety. Who drains a node waits until it is empty: from there it moves as soon as there is a place elsewhere.
func (s *Scheduler) dueServer(now time.Time) *ServerRenewal {
	if s.seen.chiefErr != nil || s.seen.chief.GetInGrace() {
		return nil
	}
	terms, starts := s.walltimes(now)
	var due *term
	for _, t := range terms {
		room := s.roomForSuccessor(t.place.Rank)
		early := t.cause == backend.EndDrain && room != nil && room.fits
		if t.place.Role == backend.RoleServer && (early || !starts[t.place].After(now)) && (due == nil || starts[t.place].Before(starts[due.place])) {
			due = &t
		}
	}
	if due == nil || s.handsOver() && now.Before(starts[due.place].Add(due.lead/3)) {
		return nil
	}
	i := due.place.Rank
	return &ServerRenewal{
		Index: i, Generation: s.want.Servers[i], Deadline: due.deadline, Cause: due.cause, Incarnation: s.serverInfo(i).GetInfo().GetIncarnation(), Begun: now,
		From: s.nodeOf(serverID(i, s.want.Servers[i])),
	}
}

// handsOver says that a worker is being replaced or leaves.
func (s *Scheduler) handsOver() bool { return len(s.want.Renewals)+len(s.want.Draining) > 0 }

// serverInfo is what the chief knows of a server that is up, nil otherwise.
func (s *Scheduler) serverInfo(index int) *rpc.ServerStatus {
	if s.seen.chiefErr != nil {
		return nil
	}
	for _, sv := range s.seen.chief.GetServers() {
		if int(sv.GetInfo().GetIndex()) == index && sv.GetInfo().GetUp() {
			return sv
		}
	}
	return nil
}

// snapshotTime is how long a snapshot of a server takes.
func (s *Scheduler) snapshotTime(index int) time.Duration {
	if sec := finite(s.serverInfo(index).GetMetrics().GetSnapshotSeconds()); sec > 0 && sec < 1e6 {
		return time.Duration(sec * float64(time.Second))
	}
	return assumedSnapshot
}

// worthASnapshot asks for a snapshot before the server is asked to end, and says whether that is still worth waiting for: not when it has been written, and not
// when the time is needed for the server's own last one.
func (s *Scheduler) worthASnapshot(ctx context.Context, v *ServerRenewal, st backend.Status, now time.Time) bool {
	last := v.Deadline.Add(-2*s.snapshotTime(v.Index) - 2*s.job.Autoscale.Watch)
	if whole := v.Deadline.Sub(st.Started); !st.Started.IsZero() {
		last = laterOf(last, v.Deadline.Add(-whole/4))
	}
	if !now.Before(last) {
		s.serverSnapshot.end()
		return false
	}
	done, err := s.serverSnapshot.ask(ctx, s.chief)
	if done && err != nil {
		s.lg.Warn("no snapshot before a parameter server is renewed; trying again", "server", v.Index, "err", err)
		return true
	}
	return !done
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// serverIsBack ends the renewal once the chief hears from the successor, and measures what it cost.
func (s *Scheduler) serverIsBack(v *ServerRenewal, now time.Time) error {
	done, back := s.isBack(v, now)
	if !back {
		return nil
	}
	s.want.ServerRenewal, s.want.LastServerRenewal = nil, done
	text := done.String()
	if done.Failed == "" && !done.Ended {
		text = "renewed " + text
	}
	s.want.remember(Note{At: now, Text: text, Routine: done.routine()})
	s.lg.Info("a parameter server is renewed", "server", v.Index, "paused", done.Paused.Round(time.Millisecond), "followed", done.Followed)
	return s.save()
}

// goesOnWithin is for how long partitions are awaited to go on under a new chief.
const goesOnWithin = 5 * time.Second

// isBack says whether the chief hears from the successor of a server that left, and how long training paused for it.
func (s *Scheduler) isBack(v *ServerRenewal, now time.Time) (done *ServerRenewal, back bool) {
	if info := s.serverInfo(v.Index); info == nil || info.GetInfo().GetIncarnation() <= v.Incarnation {
		return nil, false
	}
	if v.Back.IsZero() {
		v.Back = now
	}
	end := *v
	end.Done, end.To = now, s.nodeOf(serverID(v.Index, s.want.Servers[v.Index]))
	if end.Paused, end.Followed = s.progress.gap(v.Released, now, v.Released.Add(-10*s.job.SLO.MaxLag), s.arrivals.EnteredAt); !end.Followed {
		atMost, known, yet := s.progress.bridged(v.Released, now, s.arrivals.EnteredAt)
		if !yet && now.Sub(v.Back) < goesOnWithin {
			return nil, false
		}
		if end.Paused, end.Bridged = now.Sub(laterOf(v.Released, v.Served)), known; known {
			end.Paused = atMost
		}
	}
	s.want.ServerPauses = keepLast(s.want.ServerPauses, v.Back.Sub(laterOf(v.Released, v.Served)))
	return &end, true
}

// serverLeaves says that a server's process ends because it is renewed: that is no trouble.
func (s *Scheduler) serverLeaves(id backend.ID) bool {
	v := s.want.ServerRenewal
	return v != nil && id.Role == backend.RoleServer && id.Rank == v.Index && id.Generation == v.Generation && (!v.Released.IsZero() || v.ends)
}

func serverID(index int, generation uint64) backend.ID {
	return backend.ID{Role: backend.RoleServer, Rank: index, Generation: generation}
}

// nodeOf is where a process runs, "" when that is not known.
func (s *Scheduler) nodeOf(id backend.ID) string {
	st, _ := s.seen.allocation(id)
	return st.Node
}

// drainWaits says of a server on a node that is being drained when it moves and what that costs, "" of any other.
func (s *Scheduler) drainWaits(index int) string {
	id := serverID(index, s.want.Servers[index])
	st, found := s.seen.allocation(id)
	if v := s.want.ServerRenewal; !found || !st.State.Live() || st.EndCause != backend.EndDrain || v != nil && v.Index == index {
		return ""
	}
	when := "when another node has a place for it"
	switch r := s.roomForSuccessor(index); {
	case r != nil && r.fits:
		when = "when no worker hands over"
	case r != nil:
		when += " (" + r.why + ")"
	}
	pause := "; training then pauses, for how long is not measured yet"
	if m := measured(s.want.ServerPauses, 0); m.Samples > 0 {
		pause = "; training then pauses for about " + job.Length(m.Value)
	}
	return fmt.Sprintf("%s to leave node %s, which is being drained: it moves %s, by %s at the latest%s", id, st.Node, when, st.Deadline.Format("15:04"), pause)
}
