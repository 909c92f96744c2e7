package plan

import (
	"fmt"
	"time"
)

// backlogAsked is the backlog that the workers in force were last asked for, records, and when that was.
type backlogAsked struct {
	Records float64   `json:"records"`
	Since   time.Time `json:"since"`
}

const (
	// seeFor is how many decisions in a row, at the least, must find that all workers in force train before the lag is compared from one to the next: the first may
	// find some that have only just begun, and only from the second on has each trained for a whole interval. seeMost is the most that are waited for. [ours]
	seeFor, seeMost = 2, 60
	// onWayFor is for how many leads workers that were asked for are waited for: those that take longer are stuck, and what they leave waiting counts. [ours]
	onWayFor = 3
)

// seeFor is how many decisions it takes to see what workers do that have begun to train: as long as what is trained is measured over.
func (o *Observation) seeFor() int {
	return max(seeFor, int(min((o.Hottest.Window+o.Interval-1)/o.Interval, seeMost)))
}

// unseen is for how many decisions more the lag says nothing of the workers in force: some do not train yet, or have only just begun.
func (s *sheet) unseen() int {
	if s.settling() || s.o.Workers.Running < s.current {
		return s.o.seeFor()
	}
	return max(s.prev.Unseen-1, 0)
}

// standsStill says that the lag has not fallen from the last decision to this one, though all workers in force have trained for long enough.
func (s *sheet) standsStill() bool {
	return s.prev.LagOver && !s.prev.Blind && !s.prev.LagNew && s.prev.Unseen == 0 && s.next.Unseen == 0 && s.o.Lag >= s.prev.Lag
}

// counted is how many of the records that wait need more workers than those in force, of a load.
//
// The first time, all. Where a rescale is live, what has come since workers were asked for, while they were starting, is no reason for more of them: F of all in
// force is judged by the load and by what they were asked for. Once all train, what is beyond that counts as far as they leave it, by F and by what is seen,
// until another one would train; and where the lag stands still then, F is wrong and all counts.
func (s *sheet) counted(load float64) float64 {
	o, asked := s.o, s.prev.Asked
	all := float64(max(o.BacklogRecords, 0))
	if asked == nil || o.outage() > 0 || all <= asked.Records || s.standsStill() {
		return all
	}
	left, why := asked.Records, "as many as when workers were last asked for: what has come since waits for those that start"
	if age := o.Now.Sub(asked.Since); s.next.Unseen == 0 || age < 0 || age >= saturatingTimes(onWayFor, o.lead()) {
		if s.next.Unseen > 0 { // they do not come
			return all
		}
		trains := s.capacity(s.current)
		if o.flowKnown() { // there is enough to do, so that it is what they can do
			trains = min(trains, o.Flow.Trained)
		}
		left = max(left, all-max(trains-load, 0)*o.lead().Seconds())
		why = "what the workers in force leave until another one would train"
	}
	if left < all {
		s.note("backlog counted", left, "records", fmt.Sprintf("of %s, %s", formatNumber(all), why))
	}
	return min(left, all)
}

// noteAsked remembers for which backlog more workers were asked for, until the lag is no longer over its threshold.
func (s *sheet) noteAsked(d *Decision) {
	switch o := s.o; {
	case !o.lagKnown():
	case o.Lag <= o.unforeseenLag():
		s.next.Asked = nil
	case d.Kind == KindOut && s.backlog > 0:
		s.next.Asked = &backlogAsked{Records: rounded(s.backlog), Since: o.Now}
	}
	if d.Target != d.Current {
		s.next.Unseen = s.o.seeFor()
	}
}
