package core

import (
	"math"
	"time"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/estimator"
)

// A full load shows in seconds that no more can be trained than was: all members are busy, and what waits becomes more. Capacity is measured by whole intervals,
// of which it takes several; until then that is a bound (estimator.Strain).

// strainEvery is how long a look at a full load lasts, and strainSteps how many steps of each member, if that is longer. Two of them in a row must agree, so that
// one stall is none, and new members have strainAfter to warm up.
const (
	strainEvery = 2 * time.Second
	strainSteps = 4
	strainAfter = 10 * time.Second
)

// strainNews is how much later the same bound is news.
const strainNews = time.Minute

// strain follows a full load.
type strain struct {
	begin   map[memberID]*rpc.WorkerMetrics // of the look under way; nil: none is
	since   time.Time
	waiting int64 // records, when it began
	// last is the most that could be trained by the look before, records/s, and most by all; 0: none.
	last, most float64
}

// strained lowers the throughput model where the members, all of them busy or not, are clearly slower than it says.
func (s *Scheduler) strained(now time.Time, members []*rpc.MemberStatus, busy bool) {
	x, behind := &s.steady.strain, s.lag(now)
	if !busy || !behind.recordsKnown || s.serverAway() || now.Sub(s.steady.changed) < strainAfter {
		*x = strain{}
		return
	}
	if x.begin == nil {
		x.restart(now, members, behind.records)
		return
	}
	least, most := x.rates(members)
	if now.Sub(x.since) < strainEvery || most == 0 {
		return
	}
	rises, before := behind.records > x.waiting, x.last
	x.restart(now, members, behind.records)
	if !rises {
		x.last, x.most = 0, 0
		return
	}
	if x.last = most; before == 0 {
		return
	}
	// What a look counts may be off by a step of each member, so that the least of all holds until one surely exceeds it.
	if most = max(most, before); x.most == 0 || most < x.most || least > x.most {
		x.most = most
	}
	if old := s.online.Strain(); old != nil && old.Workers == len(members) && old.Rate == x.most && now.Sub(old.At) < strainNews {
		return
	}
	sample := estimator.Sample{At: now, Workers: len(members), Servers: s.job.Servers.Count, Rate: x.most}
	believed := s.online.Model().Throughput(sample.Workers, sample.Servers)
	switch used, err := s.online.Strained(sample); {
	case err != nil:
		s.lg.Warn("a full load was refused", "workers", sample.Workers, "rate", sample.Rate, "err", err)
	case used:
		s.want.Throughput = s.online.State()
		s.lg.Info("a full load trains less than the throughput model says, which is lowered to it until whole intervals were measured",
			"workers", sample.Workers, "from", math.Round(believed), "to", math.Round(sample.Rate))
	}
}

func (x *strain) restart(now time.Time, members []*rpc.MemberStatus, waiting int64) {
	x.begin, x.since, x.waiting = map[memberID]*rpc.WorkerMetrics{}, now, waiting
	for _, m := range members {
		x.begin[idOf(m)] = m.GetMetrics()
	}
}

// rates are what the members trained together since the look began, records/s, by each one's own clock, with a step of each less or more; 0 while one has taken too
// few steps to tell.
func (x *strain) rates(members []*rpc.MemberStatus) (least, most float64) {
	for _, m := range members {
		a, b := x.begin[idOf(m)], m.GetMetrics()
		steps, seconds := float64(b.GetSteps()-a.GetSteps()), b.GetWallSeconds()-a.GetWallSeconds()
		if steps < strainSteps || seconds <= 0 {
			return 0, 0
		}
		rate := float64(b.GetRecords()-a.GetRecords()) / seconds
		least, most = least+rate*(1-1/steps), most+rate*(1+1/steps)
	}
	return finite(least), finite(most)
}
