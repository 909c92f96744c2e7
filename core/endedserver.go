package core

import (
	"context"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// A parameter server that the cluster ends before it was its turn to be renewed is replaced like one that fails. That pauses training too, and it is said for how
// long.

// dueEnd is a server that runs and that the cluster will end, as it was seen last.
type dueEnd struct {
	id          backend.ID
	deadline    time.Time
	cause       backend.EndCause
	incarnation uint64 // as the chief knew it
	node        string
	quiet       time.Time // since when it has not answered, zero: it has
}

// followEnds takes down which servers the cluster ended, and how long that paused training once their successors are up.
func (s *Scheduler) followEnds(_ context.Context, now time.Time) error {
	changed := false
	for i := range s.job.Servers.Count {
		if v := s.endedNow(i, now); v != nil { // before its successor is watched
			s.want.EndedServers = append(s.want.EndedServers, *v)
			changed = true
		}
		s.watchEnd(i, now)
	}
	for _, v := range slices.Clone(s.want.EndedServers) {
		done, back := s.isBack(&v, now)
		if !back {
			continue
		}
		s.want.EndedServers = slices.DeleteFunc(s.want.EndedServers, func(o ServerRenewal) bool { return o.Index == v.Index && o.Generation == v.Generation })
		s.want.LastServerRenewal = done
		s.want.remember(Note{At: now, Text: done.String()})
		s.lg.Info("a parameter server that the cluster ended is back", "server", v.Index, "paused", done.Paused.Round(time.Millisecond), "followed", done.Followed)
		changed = true
	}
	if !changed {
		return nil
	}
	return s.save()
}

// watchEnd notes when a server is to end.
func (s *Scheduler) watchEnd(index int, now time.Time) {
	id := serverID(index, s.want.Servers[index])
	st, found := s.seen.allocation(id)
	quiet := time.Time{}
	if si := s.silences[placeOf(id)]; si != nil && si.id == id && si.lasts > 0 {
		quiet = now.Add(-si.lasts)
	}
	if !found || st.State != backend.StateRunning {
		if was := s.ends[index]; was.id == id && !quiet.IsZero() {
			was.quiet = quiet
			s.ends[index] = was
		}
		return
	}
	d := dueEnd{id: id, deadline: st.Deadline, cause: st.EndCause, node: st.Node, quiet: quiet}
	if was := s.ends[index]; was.id == id {
		d.incarnation = was.incarnation
	}
	if info := s.serverInfo(index); info != nil {
		d.incarnation = info.GetInfo().GetIncarnation()
	}
	s.ends[index] = d
}

// endedNow is the pause that begins because the cluster ended a server which was not being renewed; nil: it did not.
func (s *Scheduler) endedNow(index int, now time.Time) *ServerRenewal {
	d, watched := s.ends[index]
	st, found := s.seen.allocation(d.id)
	if !watched || found && st.State.Live() {
		return nil
	}
	delete(s.ends, index)
	at := now
	if st.Finished.After(d.deadline) && st.Finished.Before(now) {
		at = st.Finished
	}
	if v := s.want.ServerRenewal; d.deadline.IsZero() || at.Before(d.deadline) || v != nil && v.Index == index && v.Generation == d.id.Generation {
		return nil
	}
	v := &ServerRenewal{
		Index: index, Generation: d.id.Generation, Deadline: d.deadline, Cause: d.cause, Incarnation: d.incarnation, Begun: at, Released: at, From: d.node, Ended: true,
	}
	if found && st.State == backend.StateFailed {
		v.Reason = st.Reason
	}
	return v
}
