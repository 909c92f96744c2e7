package core

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/rpc"
)

// How long the end of a process that was released is waited for while its node does not answer its cluster, which ends it when the node is back.
const (
	// awayDrained is for a worker that has handed over all that it held, or that a stop's chief has expelled: what it does until then changes nothing.
	awayDrained = 10 * time.Second
	// shutOutAfter is how long after the servers were told to end a stop takes the places of those that are still there.
	shutOutAfter = 10 * time.Second
	// shutOutUnseenAfter is how long a stop by force waits for a cluster that does not tell what runs before it does that.
	shutOutUnseenAfter = 5 * time.Second
	// foundAfter is how long what was silent under one chief may answer the next one nothing, which it finds within a moment if it lives.
	foundAfter = 10 * time.Second
	// awayServer is for a server of a stop, whose last snapshot has been written, and whose place is taken by then.
	awayServer = 15 * time.Second
)

// lostChief is a chief that was ended since it did not answer: on which node it was, for how long it had been silent then, and when that was. While there is no chief nobody can
// tell of anything else of the job. A node that is down takes all with it that was there, and a cluster may not say so for minutes: what was on the same node has been silent for
// as long, unless it answers the next chief, or that one is there too.
type lostChief struct {
	node   string
	silent time.Duration
	at     time.Time
}

// silentBefore is for how long a process has been silent, as far as that can be told, when the next chief is heard first: it has foundAfter to answer that one, whatever it was.
func (s *Scheduler) silentBefore(si *silence, now time.Time) time.Duration {
	if !si.heard {
		return 0
	}
	next := s.silences[backend.ID{Role: backend.RoleServer}]
	if lost := s.lostChief; lost.node != "" && si.node == lost.node && next != nil && next != si && next.node != lost.node {
		return lost.silent + now.Sub(lost.at)
	}
	return si.lasts // that one asked it in vain too
}

// goneWithChief says that a process was on the chief's node, of which the backend hears nothing: nobody else can tell more of it than of the chief.
func (s *Scheduler) goneWithChief(si *silence) bool {
	chief := s.silences[backend.ID{Role: backend.RoleServer}]
	return si.away && chief != nil && chief.away && si.node != "" && si.node == chief.node
}

// chiefAway says that server 0 is on a node that does not answer its cluster: then it is not the scheduler alone that hears nothing of it.
func (s *Scheduler) chiefAway() bool {
	si := s.silences[backend.ID{Role: backend.RoleServer}]
	return si != nil && si.away
}

// outOfReach says that a process which was released is on a node that has not answered its cluster for some time, and that nothing waits for its end: another one has
// its place, or it has been given its patience. The cluster ends it when the node is back. Whatever goes on there until then is shut out by the
// generation that takes its place, now or in the next run: of a job two never train into one model (EXACTLY_ONCE.md).
func (s *Scheduler) outOfReach(st backend.Status, silent, patience time.Duration) bool {
	return st.State == backend.StateStopping && st.Away && (s.replaced(st.ID) || silent >= patience)
}

// mayLive says of a process that has ended, by its cluster's word, that the cluster has only given it up with its node, which is away still.
func mayLive(st backend.Status) bool { return st.Away && !st.State.Live() }

// noteAway takes down since when the node of a worker that was released does not answer.
func (l *leaving) noteAway(st backend.Status, now time.Time) {
	switch {
	case !l.Released || !st.Away:
		l.AwaySince = time.Time{}
	case l.AwaySince.IsZero():
		l.AwaySince = now
	}
}

// silent is for how long a worker that was released is waited for in vain while its node does not answer, and patience for how long it is: of one that has drained, since
// then; any other has as long as whatever answers nothing, from when it was to leave.
func (l *leaving) silent(now time.Time) (silent, patience time.Duration) {
	switch {
	case !l.Drained:
		return now.Sub(l.Since), awayAfter
	case l.AwaySince.IsZero():
		return 0, awayDrained
	}
	return now.Sub(l.AwaySince), awayDrained
}

// holdsNothing says that what a leaving worker does from now on changes nothing: it has handed over all that it held, or, where the job is being stopped, has been expelled.
// What it held is then the next run's; elsewhere one that was expelled may come back, and is worth waiting for.
func (s *Scheduler) holdsNothing(l leaving) bool {
	switch s.seen.member(l.Rank, l.Generation).GetState() {
	case rpc.MemberState_MEMBER_STATE_DRAINED:
		return true
	case rpc.MemberState_MEMBER_STATE_EXPELLED:
		return s.want.Stopping
	}
	return false
}

// leftBehind says that a stop does not wait for a process on a node that is away.
func (s *Scheduler) leftBehind(st backend.Status) bool {
	if mayLive(st) {
		return true
	}
	if st.ID.Role == backend.RoleServer && !s.serversTold.IsZero() {
		return s.outOfReach(st, s.stopLasts-s.serversTold.Sub(s.stopSince), awayServer)
	}
	return s.outOfReach(st, s.stopLasts, awayAfter)
}

// shutServersOut takes the places of the servers that a stop has told to end and that are still there some time later, as where the daemon that should end them is dead:
// they find that out by themselves, and end without writing. What they had is in the last snapshot.
func (s *Scheduler) shutServersOut(ctx context.Context, now time.Time) error {
	if s.serversTold.IsZero() || now.Sub(s.serversTold) < shutOutAfter {
		return nil
	}
	return s.takePlaces(ctx, now, "servers have not ended")
}

// shutOutUnseen does for a stop by force what can be done while the cluster does not tell what runs. What it has of the job's processes is released when it answers.
func (s *Scheduler) shutOutUnseen(ctx context.Context, now time.Time) error {
	if !s.want.Stopping || !s.want.Forced || now.Sub(s.stopSince) < shutOutUnseenAfter {
		return nil
	}
	return s.takePlaces(ctx, now, "the cluster does not tell what is to end")
}

// takePlaces takes the places of the job's processes in the checkpoint folder once, by which whoever can read it ends; where that fails it is tried again later.
func (s *Scheduler) takePlaces(ctx context.Context, now time.Time, why string) error {
	if s.shutOut || s.opt.ShutOut == nil || now.Before(s.shutOutNext) {
		return nil
	}
	var err error
	return s.change(ctx, "take the places of the job's processes in the checkpoint folder", backendTimeout, func(context.Context) { err = s.opt.ShutOut(s.job.Servers.Count) }, func() error {
		if err != nil {
			s.shutOutNext = now.Add(shutOutAfter)
			s.warn(why+", and cannot be told so through the checkpoint folder; trying again", "err", err)
			return nil
		}
		s.shutOut = true
		s.lg.Info(why+"; the places of the job's processes in the checkpoint folder are taken, by which they end", "after", now.Sub(s.stopSince).Round(time.Second))
		return nil
	})
}

// shutOutLeft takes the places of what a stop has left where its cluster cannot end it, where it has not done so before.
func (s *Scheduler) shutOutLeft(left []backend.Status) {
	if len(left) == 0 || s.shutOut || s.opt.ShutOut == nil {
		return
	}
	if err := s.opt.ShutOut(s.job.Servers.Count); err != nil {
		s.warn("what runs on nodes that are away cannot be told to end through the checkpoint folder", "err", err)
		return
	}
	s.shutOut = true
}

// noteLeft takes down, for people, which processes a stop has left on nodes that are away, once: a later stop that finds the same again has nothing new to say.
func (s *Scheduler) noteLeft(now time.Time, left []backend.Status) {
	if len(left) == 0 {
		s.want.LeftAway = ""
		return
	}
	text := leftWords(left)
	if !strings.HasSuffix(s.want.LeftAway, text) {
		s.want.LeftAway = "at " + now.Local().Format(time.DateTime) + " " + text
		s.want.remember(Note{At: now, Text: text})
	}
	s.warn("the job has stopped without the end of what is on nodes that are away", "left", s.want.LeftAway)
}

// leftWords say what may still have run on nodes that did not answer their cluster, and what becomes of it.
func leftWords(left []backend.Status) string {
	var who, nodes []string
	for _, st := range left {
		who = append(who, st.ID.String())
		if st.Node != "" && !slices.Contains(nodes, st.Node) {
			nodes = append(nodes, st.Node)
		}
	}
	slices.Sort(nodes)
	where := "its node"
	switch len(nodes) {
	case 0:
	case 1:
		where = "node " + nodes[0]
	default:
		where = "nodes " + strings.Join(nodes, ", ")
	}
	return fmt.Sprintf("%s may still have run: %s did not answer the cluster, which ends what is left there when it is back; what can read the checkpoint folder there ends by itself", strings.Join(who, ", "), where)
}
