package plan

import (
	"fmt"
	"time"
)

const (
	// alwaysBusy is the busy share from which workers count as busy all the time; what is missing is what is measured between two steps.
	alwaysBusy = 0.95
	// backlogged is the time's worth of arrivals from which records that wait are what keeps workers busy, and not a batch that fills.
	backlogged = 30 * time.Second
)

// noteAlwaysBusy tells of a policy that goes by the busy share why it asks for want
// workers, no fewer than there are, where what arrives needs fewer at the share that
// it aims at: workers that are busy all the time, however many they are, look as if
// all were needed. Who goes by demand is not deceived.
func (s *sheet) noteAlwaysBusy(want int, target float64, demand bool) {
	busy, ok := s.o.busy()
	rate, known := s.lastRate()
	f := s.capacity(s.current)
	if demand || !ok || !known || busy < alwaysBusy || f <= 0 || want < s.current || s.current <= max(s.o.Limits.Min, 1) {
		return
	}
	share := rate / f
	if need := s.o.Limits.Clamp(ceilCount(share * float64(s.current) / target)); need >= s.current {
		return
	}
	why := "steps take as long whatever they hold, as emulated ones do, or F promises too much"
	if s.o.lagKnown() && float64(s.o.BacklogRecords) > rate*backlogged.Seconds() {
		why = fmt.Sprintf("a backlog of %s records keeps them so", formatNumber(float64(s.o.BacklogRecords)))
	}
	s.note("always busy", share, "", fmt.Sprintf("last rate / F(%d), and yet the workers are busy all the time: %s; while that is so, none is let go. demand = 1 goes by what arrives", s.current, why))
}
