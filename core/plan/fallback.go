package plan

import (
	"fmt"
	"math"
	"time"
)

// lagFallback adds workers while the lag is over its threshold (Kale §3.4.3). Where a
// rescale stops training, the lag that its own outage leaves is no sign that the
// forecast is wrong, so that the threshold is higher by so much: else a rescale would
// be answered by one to catch up, that one's end by another, and so on without end.
//
// The workers must carry the expected load and work the backlog off within
// CatchUp: need = load + backlog/CatchUp, w = smallest with F(w) > need, of the backlog
// that is not for workers on their way to work off (onway.go). If the
// lag has not fallen since the last decision although the model says that the
// workers in force suffice, the model is too hopeful (a slow GPU, a hot
// partition) and one worker is added beyond it, while F still rises. What the lag was
// before, or just after, it could not be known says nothing about that, nor what it was
// before all of them trained.
//
// Whether workers that were added for the lag are any use is judged by what is trained
// (bottleneck.go): where it was none no more are added for it, and where those before
// trained less than F says, these are kept for a while after the lag has fallen.
func (s *sheet) lagFallback(p *proposal, expect float64) {
	o := s.o
	threshold := o.unforeseenLag()
	if !o.lagKnown() || o.Lag <= threshold {
		return
	}
	if recent, ok := s.recentRate(max(o.Tau, o.lead())); ok {
		expect = math.Max(expect, recent)
	}
	s.noteDuration("lag", o.Lag, "over the fallback threshold of "+formatDuration(threshold)+o.beyondLagOver(threshold))
	s.noteBacklog()
	backlog := s.counted(expect)
	s.backlog = backlog
	drain := backlog / o.catchUp().Seconds()
	need := s.withHeadroom(expect) + drain
	w, saturated := s.curve.Smallest(need)
	s.note("catch-up", drain, "records/s", "backlog / "+formatDuration(o.catchUp()))
	s.note("load with backlog", need, "records/s", "max(forecast, recent rate) × (1 + headroom) + catch-up")
	s.noteNeeded("needed for lag", w, need, "load with backlog")

	over := fmt.Sprintf("the lag of %s is over the fallback threshold of %s", formatDuration(o.Lag), formatDuration(threshold))
	reason := fmt.Sprintf("%s; %s must be trained to catch up %s records within %s",
		over, formatRate(need), formatNumber(backlog), formatDuration(o.catchUp()))
	stuck := s.standsStill() && s.next.Trial == nil
	if more := s.current + 1; stuck && w <= s.current && p.want <= s.current && s.rises(more) {
		w = more
		s.note("lag does not fall", float64(w), "workers", "one more than in force, beyond what F says")
		suffice := "suffice"
		if s.current == 1 {
			suffice = "suffices"
		}
		reason = fmt.Sprintf("%s and does not fall, though F says that %s %s", over, workers(s.current), suffice)
	}
	if b := s.bottleneck(); b != nil {
		reason, w = over+", but "+b.words(o)+"; "+b.again(o), min(w, max(p.want, s.current))
		if p.want <= s.current {
			p.want, p.source, p.reason, s.noHelp = s.current, "lag", reason, true
			p.hold = append(p.hold, b.words(o))
			return
		}
	}
	if p.want < s.current && w <= s.current {
		p.hold = append(p.hold, over+", so no worker is let go")
	}
	if w > p.want || p.want < s.current {
		p.want, p.load, p.source, p.reason = max(w, s.current, p.want), need, "lag", reason
		p.saturated = saturated
	}
}

// rises tells whether w workers are allowed and train more than one fewer.
func (s *sheet) rises(w int) bool {
	return w <= s.o.Limits.Max && s.capacity(w) > s.capacity(w-1)
}

// utilisationFallback corrects the model by how busy the accelerators are (Kale
// §3.4.3); it needs thresholds in the job file and measured utilisation.
//
// Too busy (over the upper threshold): so many workers that utilisation falls to
// the threshold, at least one more. A scale-in may not lead there either. Too
// idle (under the lower one) while the plan keeps or adds workers: one fewer, as
// long as the projection, utilisation × workers/(workers − 1) × expected
// growth of the load, stays below the upper threshold. That cap is kept until
// utilisation, lag or the projection speak against it, and then not tried
// again for ten cooldowns, so that it cannot oscillate.
//
// Where a rescale stops training, being busy is a sign of too little capacity only if
// nothing else explains it: neither a backlog, which an outage leaves and on which
// workers are busy however many they are, nor how much was trained.
func (s *sheet) utilisationFallback(p *proposal, trusted bool, expect float64) {
	o := s.o
	over, under := o.Fallback.UtilisationOver, o.Fallback.UtilisationUnder
	if !o.utilKnown() || s.current < 1 || (!(over > 0) && !(under > 0)) {
		s.next.Cap = 0
		return
	}
	if !(over > 0) {
		over = 0.9
	}
	s.note("utilisation", o.Utilisation, "", fmt.Sprintf("mean share of time busy; thresholds %g and %g", under, over))
	if why := s.busyAnyway(over); why != "" {
		s.note("busy anyway", o.Utilisation, "", "not counted as too little capacity: "+why)
		if s.prev.Cap > 0 {
			s.dropCap()
		}
		return
	}
	busyNeed := int(min(math.Ceil(float64(s.current)*o.Utilisation/over-1e-9), float64(o.Limits.Max)))
	switch {
	case o.Utilisation > over && s.rises(s.current+1):
		if w := max(s.current+1, busyNeed); w > p.want {
			p.want, p.source = w, "utilisation"
			p.reason = fmt.Sprintf("the accelerators are %.0f %% busy, over %.0f %%", 100*o.Utilisation, 100*over)
		}
	case p.want < s.current && busyNeed > p.want:
		p.want, p.source = min(busyNeed, s.current), "utilisation"
		p.reason = fmt.Sprintf("with fewer than %s the accelerators would be over %.0f %% busy", workers(p.want), 100*over)
		if p.want == s.current {
			p.hold = append(p.hold, p.reason)
		}
	}
	s.capIdle(p, trusted, expect, over, under)
}

// busyExplained is how much busier than what was trained explains members may be.
const busyExplained = 0.05

// busyAnyway says what else than too little capacity explains how busy the
// accelerators are over the threshold, where a rescale stops training; "" for nothing.
func (s *sheet) busyAnyway(over float64) string {
	o := s.o
	if o.outage() == 0 {
		return ""
	}
	if !o.lagKnown() || o.Lag > o.Interval {
		return "a backlog is being worked off"
	}
	rate, ok := s.lastRate()
	if o.flowKnown() {
		rate, ok = o.Flow.Trained, true
	}
	if ok && o.Utilisation > over && o.Utilisation <= rate/s.capacity(s.current)+busyExplained {
		return "it is what F makes of the records that were trained"
	}
	return ""
}

// dropCap gives the cap up, for some time.
func (s *sheet) dropCap() {
	s.next.Cap = 0
	s.next.NoCapUntil = s.o.Now.Add(saturatingTimes(10, max(s.o.CooldownIn, s.o.Tau, s.o.Interval)))
}

// capIdle keeps, drops or sets the cap that idle accelerators justify. None is set where
// a rescale stops training: the backlog of its own outage would end it.
func (s *sheet) capIdle(p *proposal, trusted bool, expect, over, under float64) {
	o := s.o
	growth := 1.0
	if rate, ok := s.lastRate(); ok && rate > 0 {
		growth = math.Max(1, expect/rate)
	}
	projected := func(w int) float64 { return o.Utilisation * float64(s.current) / float64(w) * growth }
	safe := trusted && under > 0 && o.lagKnown() && o.Lag <= o.lagOver()
	if limit := s.prev.Cap; limit > 0 {
		if !safe || o.Utilisation > over || projected(limit) > over {
			s.dropCap()
			return
		}
	} else if safe && o.outage() == 0 && o.Utilisation < under && p.want >= s.current && s.current-1 >= max(o.Limits.Min, 1) &&
		projected(s.current-1) <= over && !o.Now.Before(s.prev.NoCapUntil) {
		s.next.Cap = s.current - 1
	}
	if limit := s.next.Cap; limit > 0 && p.want > limit {
		s.note("idle cap", float64(limit), "workers", fmt.Sprintf("projected utilisation %.2f, at most %g", projected(limit), over))
		p.want, p.source = limit, "utilisation"
		p.reason = fmt.Sprintf("the accelerators are only %.0f %% busy; %s are enough for the forecast", 100*o.Utilisation, workers(limit))
	}
}

func saturatingTimes(n int, d time.Duration) time.Duration { return min(lasts(n, d), 24*365*time.Hour) }
