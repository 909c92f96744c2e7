package plan

import (
	"fmt"
	"time"
)

// Hottest is the partition whose oldest untrained record waits longest, and what became of it lately. A partition is read by one worker, which hands on
// what it cannot train itself: how much of one partition is trained has limits that more workers do not move.
type Hottest struct {
	Known     bool  `json:"known,omitempty"`
	Partition int32 `json:"partition"`
	// Arriving and Trained are its rates over the last Window, records/s; Waiting is how many of its records are not trained.
	Arriving float64       `json:"arriving"`
	Trained  float64       `json:"trained"`
	Waiting  int64         `json:"waiting"`
	Window   time.Duration `json:"window"`
	// Advice says, for people, what helps where more workers do not.
	Advice string `json:"advice,omitempty"`
}

func (h Hottest) usable() bool {
	return h.Known && h.Window > 0 && h.Arriving >= 0 && h.Trained >= 0 && finite(h.Arriving) && finite(h.Trained) && h.Waiting >= 0
}

// trial is a scale-out by which the lag is to fall, and of which is still to be seen whether it is any use; or, From as many as To, a look for as long whether
// it could be any (oneIsBehind).
type trial struct {
	From int `json:"from"`
	To   int `json:"to"`
	// Hot and All are what was trained with From workers, of the hottest partition and in all, records/s.
	Hot float64 `json:"hot"`
	All float64 `json:"all"`
	// Settled is since when all of To train; zero: not yet.
	Settled time.Time `json:"settled,omitzero"`
	// Lag is the lowest lag since then, and Most what was trained at most, in all.
	Lag  time.Duration `json:"lag,omitempty"`
	Most float64       `json:"most,omitempty"`
	// Readings are what was read of the hottest partition since then, and their mean, records/s.
	Readings reading `json:"readings,omitzero"`
}

// reading is the mean of so many rates, records/s.
type reading struct {
	Mean float64 `json:"mean"`
	N    int     `json:"n"`
}

func (r *reading) add(rate float64) {
	r.N++
	r.Mean = rounded(r.Mean + (rate-r.Mean)/float64(r.N))
}

// bottleneck is what a trial has shown: that more workers train no more of one partition.
type bottleneck struct {
	Partition  int32     `json:"partition"`
	From       int       `json:"from"`
	To         int       `json:"to"`
	Arriving   float64   `json:"arriving"`
	Trained    float64   `json:"trained"`
	Partitions int       `json:"partitions,omitempty"`
	Since      time.Time `json:"since"`
	// Tries is how often this was shown in a row; each makes the time until the next trial longer. 0: it is a suspicion.
	Tries int `json:"tries"`
	// Usual is what was read of the partition from the trial on until belief may end, and Over since when each reading is above that by hotChange; zero: the
	// last one is not.
	Usual reading   `json:"usual,omitzero"`
	Over  time.Time `json:"over,omitzero"`
}

const (
	// trialGain is which part of the throughput that F promises for more workers must be seen, and trialLeast the least that tells it from chance [ours].
	trialGain, trialLeast = 0.15, 0.05
	// retryAfter is how many cooldowns pass until what was shown once is tried again, twice as many each further time; changedAfter is after how many it is
	// tried again where the traffic has changed by hotChange.
	retryAfter, changedAfter = 10, 5
	hotChange                = 1.5
	retryMost                = 24 * time.Hour
	// idleOf is the part of F below which workers train that have enough to do elsewhere, where of what waits at least hotShare is of one partition.
	idleOf, hotShare = 0.5, 0.8
	// hotWindows is how many windows in a row show what is trained of one partition: its reader goes from one of its partitions to the next, so that one window
	// has a third less of it or more than another [measured].
	hotWindows = 3
)

// cooled is so many of the longest cooldowns.
func (o *Observation) cooled(n int) time.Duration {
	return saturatingTimes(n, max(o.CooldownIn, o.CooldownOut, o.Tau, o.Interval))
}

// retryIn is how long what was shown so often in a row is believed.
func (o *Observation) retryIn(tries int) time.Duration {
	return min(saturatingTimes(1<<min(max(tries-1, 0), 16), o.cooled(retryAfter)), max(retryMost, o.cooled(retryAfter)))
}

// judge follows the trial under way. Where all its workers have trained for a window, the lag was over its threshold all the time, and neither the hottest
// partition nor the job was trained faster than before, more workers do not help.
func (s *sheet) judge() {
	s.readOn()
	t, o, h := s.prev.Trial, s.o, s.o.Hottest
	if t == nil {
		return
	}
	next := *t
	s.next.Trial = &next
	switch {
	case s.current < t.To:
		s.next.Trial = nil
		return
	case s.current > t.To: // others were added meanwhile
		next.To, next.Settled = s.current, time.Time{}
	}
	if s.settling() || o.Hold.Unknown || !h.usable() || !o.flowKnown() || !o.lagKnown() {
		next.Settled = time.Time{}
		return
	}
	if next.Settled.IsZero() || next.Settled.After(o.Now) {
		next.Settled, next.Lag, next.Most, next.Readings = o.Now, o.Lag, o.Flow.Trained, reading{}
		return
	}
	next.Readings.add(h.Trained)
	next.Lag, next.Most = min(next.Lag, o.Lag), max(next.Most, rounded(o.Flow.Trained))
	watched := next.From == next.To
	switch {
	case watched && !s.oneIsBehind():
		s.next.Trial = nil
	case o.Now.Sub(next.Settled) < h.Window, watched && o.Now.Sub(next.Settled) < hotWindows*h.Window:
	case watched:
		s.next.Trial = nil
		s.found(&bottleneck{From: next.From, To: next.To, Tries: 1, Usual: next.Readings})
	default:
		s.tried(next)
	}
}

// oneIsBehind says that the lag is one partition's, which gets more than is trained of it, while the workers train far less than F says they can.
func (s *sheet) oneIsBehind() bool {
	o, h := s.o, s.o.Hottest
	return h.usable() && o.flowKnown() && o.lagKnown() && o.Lag > o.unforeseenLag() && !s.settling() && !o.Hold.Unknown && s.current > 1 &&
		h.Trained < h.Arriving && float64(h.Waiting) >= hotShare*float64(o.BacklogRecords) && o.Flow.Trained < idleOf*s.capacity(s.current)
}

// readOn follows what is trained of the partition by which more workers do not help: until belief may end it is learnt what is usual.
func (s *sheet) readOn() {
	b, o, h := s.prev.Bottleneck, s.o, s.o.Hottest
	if b == nil {
		return
	}
	next := *b
	s.next.Bottleneck = &next
	switch {
	case !h.usable() || o.Now.Before(next.Since):
		next.Over = time.Time{}
	case h.Partition == next.Partition && o.Now.Sub(next.Since) < o.cooled(changedAfter):
		next.Usual.add(h.Trained)
	case h.Trained <= max(next.Trained, next.Usual.Mean)*hotChange:
		next.Over = time.Time{}
	case next.Over.IsZero() || next.Over.After(o.Now):
		next.Over = o.Now
	}
}

// faster says that for some windows in a row far more was trained of the partition than is usual.
func (b *bottleneck) faster(o *Observation) bool {
	return !b.Over.IsZero() && o.Now.Sub(b.Over) >= (hotWindows-1)*o.Hottest.Window
}

// found takes down what was shown, of the partition that is furthest behind now.
func (s *sheet) found(b *bottleneck) {
	o, h, was := s.o, s.o.Hottest, s.prev.Bottleneck
	b.Partition, b.Arriving, b.Trained, b.Partitions, b.Since = h.Partition, rounded(h.Arriving), b.Usual.Mean, o.Partitions, o.Now
	if was != nil && was.Partitions == b.Partitions && !was.changed(b.Arriving) && o.Now.Sub(was.Since) < 2*o.retryIn(was.Tries) {
		b.Tries = was.Tries + 1
	}
	s.next.Bottleneck, s.next.Short = b, nil
}

// tried ends a trial: with more trained, in vain or, where the lag has fallen without more being trained, with a suspicion, which another such one confirms.
func (s *sheet) tried(t trial) {
	o, h := s.o, s.o.Hottest
	s.next.Trial = nil
	least := 1 + max(trialLeast, trialGain*(s.capacity(t.To)/s.capacity(t.From)-1))
	s.note("trained before", t.All, "records/s", fmt.Sprintf("with %s, %s of them of the partition that was furthest behind", workers(t.From), formatRate(t.Hot)))
	s.note("trained since", t.Most, "records/s", fmt.Sprintf("at most, with %s, and of partition %d %s; %.2f times as much shows that more help", workers(t.To), h.Partition, formatRate(t.Readings.Mean), least))
	if t.Readings.Mean >= t.Hot*least || t.Most >= t.All*least {
		s.next.Bottleneck = nil
		s.proven(t.From)
		return
	}
	b := &bottleneck{From: t.From, To: t.To, Usual: t.Readings}
	if t.Lag > o.lagOver() {
		b.Tries = 1
	}
	s.found(b)
}

// changed says that a rate is another one than that at which it was shown.
func (b *bottleneck) changed(arriving float64) bool {
	return arriving > b.Arriving*hotChange || arriving*hotChange < b.Arriving
}

// bottleneck is what was shown, where it is still believed: until its time has come or, after half of the least time, the traffic is another one; and while
// the partitions are as many, and the one that is behind is not trained faster than is usual.
func (s *sheet) bottleneck() *bottleneck {
	b, o, h := s.next.Bottleneck, s.o, s.o.Hottest
	if b == nil || b.Tries < 1 {
		return nil
	}
	age := o.Now.Sub(b.Since)
	switch {
	case age < 0, age >= o.retryIn(b.Tries), o.Partitions != b.Partitions && o.Partitions > 0:
		return nil
	case h.usable() && age >= o.cooled(changedAfter) && (b.changed(h.Arriving) || b.faster(o)):
		return nil
	}
	return b
}

// believed is what is to be said of it: also while it is looked at anew whether it still holds, and nothing else has changed.
func (s *sheet) believed() *bottleneck {
	b, t, h := s.next.Bottleneck, s.next.Trial, s.o.Hottest
	if b == nil || t == nil || t.From != t.To || b.Tries < 1 || !h.usable() || h.Partition != b.Partition || s.o.Partitions != b.Partitions || b.changed(h.Arriving) || b.faster(s.o) {
		return s.bottleneck()
	}
	return b
}

// words say that more workers do not help, and what does. They stay the same for as long as it does.
func (b *bottleneck) words(o *Observation) string {
	text := fmt.Sprintf("more workers do not help: partition %d alone gets %s, of which %d workers train no more than %d did (%s)",
		b.Partition, formatRate(b.Arriving), b.To, b.From, formatRate(b.Trained))
	if b.From == b.To {
		text = fmt.Sprintf("more workers do not help: partition %d alone gets %s, of which %s are trained, while %d workers could train more",
			b.Partition, formatRate(b.Arriving), formatRate(b.Trained), b.To)
	}
	if o.Hottest.Advice != "" {
		text += "; " + o.Hottest.Advice
	}
	return text
}

// again says when more workers are tried again.
func (b *bottleneck) again(o *Observation) string {
	return fmt.Sprintf("more are tried again in %s, or when partitions or traffic have changed", formatDuration(b.Since.Add(o.retryIn(b.Tries)).Sub(o.Now)))
}

// begin opens a trial where workers are added for the lag, or where it is to be seen whether more would help.
func (s *sheet) begin(d *Decision) {
	o := s.o
	if d.Target == d.Current && s.next.Trial == nil && s.bottleneck() == nil && s.oneIsBehind() {
		s.next.Trial = &trial{From: d.Current, To: d.Current, Hot: rounded(o.Hottest.Trained), All: rounded(o.Flow.Trained)}
		return
	}
	if d.Kind != KindOut || d.Source != "lag" || d.Current < 1 || s.next.Trial != nil || s.settling() || !o.flowKnown() || !o.Hottest.usable() {
		return
	}
	s.next.Trial = &trial{From: d.Current, To: d.Target, Hot: rounded(o.Hottest.Trained), All: rounded(o.Flow.Trained)}
}
