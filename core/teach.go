package core

import (
	"math"
	"time"

	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/estimator"
)

// teachEvery is how long a throughput measurement lasts: as long as the window of the members' rates.
const teachEvery = 4 * time.Second

// teachSteps is how many steps of each member an interval lasts that is not saturated, if that is longer: one step of each is not counted, since it may
// have begun before. Members that train slower than that, or nothing, end it after teachLongest.
const (
	teachSteps   = 10
	teachLongest = 10 * teachEvery
)

// steady follows the intervals from which the throughput model learns: no rescale under way, the same members ready, no record trained again.
type steady struct {
	begin map[memberID]*rpc.WorkerMetrics // of the interval under way; nil: none is
	since time.Time
	// hungry is the last look at which a member waited for records: since then all were busy with full batches.
	hungry time.Time
	fed    time.Time // when capacity was last measured
	// full is what was trained in the last teachEvery of the full load under way, records/s; 0 where capacity was measured since it began, or there
	// is none.
	full float64
	// changed is when the members became others, and strain the full load under way.
	changed time.Time
	strain  strain
}

type memberID struct {
	rank       int32
	generation uint64
}

// teach gives the throughput model what the steady interval under way shows. Where at every look for as long as the measured rates reach back all members
// were busy with full batches, that is capacity. One look in which a member waited for records shows the arrival rate instead, and begins the interval anew;
// such a rate teaches only where it is above what the model says can be trained. So does that of a full load that is too short to measure capacity often enough,
// and that of the end of one, where capacity was not just measured, as when a backlog is worked down.
func (s *Scheduler) teach(now time.Time) {
	members := s.unchanging()
	if !s.steady.follows(members) {
		s.steady.restart(now, members)
		s.steady.hungry, s.steady.full, s.steady.changed, s.steady.strain = now, 0, now, strain{}
		return
	}
	rate, saturated := 0.0, true
	for _, m := range members {
		saturated = saturated && m.GetMetrics().GetSaturated()
		rate += m.GetRecordsPerSecond()
	}
	s.strained(now, members, saturated)
	if !saturated {
		if s.steady.full > 0 { // a backlog was worked down, and that trains more than arrives
			s.learn(estimator.Sample{At: now, Workers: len(members), Rate: s.steady.full})
		}
		s.steady.hungry, s.steady.full = now, 0
	}
	if now.Sub(s.steady.hungry) >= teachEvery && now.Sub(s.steady.fed) >= teachEvery {
		s.steady.full = rate
	}
	if s.steady.full > 0 && now.Sub(s.steady.fed) >= s.job.Forecast.Interval {
		s.steady.fed, s.steady.full = now, 0
		s.learn(estimator.Sample{At: now, Workers: len(members), Rate: rate, Saturated: true})
	}
	if s.steady.over(now, members) {
		sample := estimator.Sample{At: now, Workers: len(members), Rate: s.steady.reached(members)}
		waited := !s.steady.hungry.Before(s.steady.since)
		s.steady.restart(now, members)
		if waited || !s.online.Measured(sample.Workers, s.job.Servers.Count) {
			s.learn(sample)
		}
	}
}

// learn hands a measurement to the model.
func (s *Scheduler) learn(sample estimator.Sample) {
	sample.Servers, sample.Source = s.job.Servers.Count, "live"
	if err := s.relearn(); err != nil {
		s.lg.Warn("the throughput model could not be started anew for other workers", "err", err)
	}
	before, change := s.online.Model(), s.online.LastChange()
	used, err := s.online.Observe(sample)
	if err != nil {
		s.lg.Warn("a throughput measurement was refused", "workers", sample.Workers, "rate", sample.Rate, "err", err)
		return
	}
	if !used {
		return
	}
	s.want.Throughput = s.online.State()
	if c := s.online.LastChange(); c != nil && (change == nil || *c != *change) {
		s.lg.Warn("capacity has changed; what was measured before at other numbers of workers is taken to have changed alike until it is measured anew",
			"workers", c.Workers, "from", math.Round(c.Before), "to", math.Round(c.After))
	}
	if after := s.online.Model(); !after.Equal(before) {
		s.lg.Info("throughput model refitted", "workers", sample.Workers, "measured", math.Round(sample.Rate), "saturated", sample.Saturated, "model", after.String())
	}
}

// unchanging are the members, all of them ready, when nothing is changing and all are there that should be; else nil.
func (s *Scheduler) unchanging() []*rpc.MemberStatus {
	n := s.seen
	if n.chiefErr != nil || s.want.Rescale != nil || len(s.want.Draining) > 0 || n.chief.GetRepairing() || n.chief.GetPaused() {
		return nil
	}
	var out []*rpc.MemberStatus
	for _, m := range n.chief.GetMembers() {
		switch m.GetState() {
		case rpc.MemberState_MEMBER_STATE_READY:
			out = append(out, m)
		case rpc.MemberState_MEMBER_STATE_JOINING, rpc.MemberState_MEMBER_STATE_DRAINING:
			return nil
		}
	}
	if len(out) != s.want.Target {
		return nil
	}
	return out
}

func idOf(m *rpc.MemberStatus) memberID { return memberID{m.GetRank(), m.GetGeneration()} }

// follows says whether the members are those of the interval under way, and none of their processes was started anew.
func (y *steady) follows(members []*rpc.MemberStatus) bool {
	if len(members) == 0 || len(members) != len(y.begin) {
		return false
	}
	for _, m := range members {
		a, ok := y.begin[idOf(m)]
		if b := m.GetMetrics(); !ok || b.GetRecords() < a.GetRecords() || b.GetSteps() < a.GetSteps() || b.GetWallSeconds() < a.GetWallSeconds() {
			return false
		}
	}
	return true
}

// restart begins an interval with the members as they are; without members there is none.
func (y *steady) restart(now time.Time, members []*rpc.MemberStatus) {
	y.begin, y.since = nil, now
	for _, m := range members {
		if y.begin == nil {
			y.begin = map[memberID]*rpc.WorkerMetrics{}
		}
		y.begin[idOf(m)] = m.GetMetrics()
	}
}

// over says whether the interval is long enough to count what was trained in it.
func (y *steady) over(now time.Time, members []*rpc.MemberStatus) bool {
	lasted := now.Sub(y.since)
	if lasted < teachEvery || lasted >= teachLongest {
		return lasted >= teachLongest
	}
	for _, m := range members {
		if m.GetMetrics().GetSteps()-y.begin[idOf(m)].GetSteps() < teachSteps {
			return false
		}
	}
	return true
}

// reached is a rate in records/s that the members together trained in the interval at least: by each one's own clock, and without one step of each,
// most of which may lie before it.
func (y *steady) reached(members []*rpc.MemberStatus) float64 {
	total := 0.0
	for _, m := range members {
		a, b := y.begin[idOf(m)], m.GetMetrics()
		steps, seconds := float64(b.GetSteps()-a.GetSteps()), b.GetWallSeconds()-a.GetWallSeconds()
		if steps > 1 && seconds > 0 {
			total += float64(b.GetRecords()-a.GetRecords()) * (1 - 1/steps) / seconds
		}
	}
	return finite(total)
}

// changeTold is for how long a change of capacity is told. [ours]
const changeTold = 24 * time.Hour

// basis says what the throughput model in force rests on.
func (s *Scheduler) basis(now time.Time) plan.Basis {
	b := plan.Basis{Prior: s.priorSource(), Measured: s.online.Evidence(), Strain: s.online.Strain()}
	if c := s.online.LastChange(); c != nil && now.Sub(c.At) < changeTold {
		c.At = c.At.Local()
		b.Change = c
	}
	return b
}
