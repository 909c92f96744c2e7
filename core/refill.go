package core

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/traffic"
)

// missed are arrivals that this scheduler has not observed and that are read back from the broker beside the looks: those of the days before it began, without which
// nothing is decided, and those of the time in which it was suspended, its machine slept, or the brokers did not answer.
type missed struct {
	since   time.Time // from here to the last observation they are asked for next; zero: none are missing
	failed  retry
	reading *reading // nil: nothing is asked
	// ahead are records that are dated ahead of this machine's clock, and hid what came after them when arrivals were read.
	ahead   []traffic.Ahead
	aheadAt time.Time // when that was
}

// reading is a question to the broker that is under way.
type reading struct {
	first  bool // of the scheduler's life: nothing is decided before it has ended
	since  time.Time
	cancel context.CancelFunc
	past   traffic.Past
	err    error
	done   chan struct{} // closed when past and err are there
}

// from takes down since when arrivals are missing.
func (m *missed) from(since time.Time) {
	if m.since.IsZero() || since.Before(m.since) {
		m.since = since
	}
}

// due says whether to ask now, and since when.
func (m *missed) due(now time.Time) (since time.Time, due bool) {
	return m.since, !m.since.IsZero() && m.reading == nil && !now.Before(m.failed.after)
}

// ended takes in how a question ended: after a failure it is asked again, later each time.
func (m *missed) ended(now time.Time, err error) {
	r := m.reading
	if m.reading = nil; err == nil {
		m.failed = retry{}
		return
	}
	m.from(r.since)
	m.failed.after = now.Add(min(backoffMax, backoffMin<<min(m.failed.tries, 10)))
	m.failed.tries++
}

// history is closed when the first question has been answered; nil once that was heard.
func (m *missed) history() <-chan struct{} {
	if m.reading == nil || !m.reading.first {
		return nil
	}
	return m.reading.done
}

// end gives up what is being asked.
func (m *missed) end() {
	if m.reading != nil {
		m.reading.cancel()
		<-m.reading.done
		m.reading = nil
	}
}

// readBack asks for arrivals that are missing, once the brokers answer, and puts what they said into the history. A stop needs none.
func (s *Scheduler) readBack(ctx context.Context, now time.Time) {
	m := &s.missed
	if r := m.reading; r != nil {
		select {
		case <-r.done:
		default:
			return
		}
		r.cancel()
		first := m.failed.tries == 0
		m.ended(now, r.err)
		switch {
		case r.first:
			s.tellHistory(r)
			s.tickAt = time.Time{} // what was decided by a person's order meanwhile knew none of it
		case r.err == nil:
			got := s.arrivals.Add(r.past)
			s.foresee.warm = false // the forecasters are tried on it too
			s.heedAhead(got)
			s.lg.Info("arrivals that were not observed have been read back from the broker", "since", r.since, "samples", got.Samples, "requests", got.Requests, "took", got.Elapsed.Round(time.Millisecond))
		case first:
			s.lg.Warn("arrivals that were not observed cannot be read back from the broker; trying again, and forecasts lack them until then", "since", r.since, "err", r.err)
		}
	}
	if since, due := m.due(now); due && s.seen.endsErr == nil && !s.want.Stopping {
		s.askBack(ctx, since)
	}
}

// backfillTimeout bounds a question.
const backfillTimeout = 3 * time.Minute

const readingHistory = "reading the arrival history from the broker"

// askHistory begins to ask for the arrivals of the days before the scheduler began, so that forecasts start warm.
func (s *Scheduler) askHistory(ctx context.Context, now time.Time) {
	o := traffic.BackfillOptions{Step: s.job.Forecast.Interval, From: now.Add(-s.job.Forecast.Past() - s.job.Forecast.Horizon), To: now}
	if s.opt.Progress != nil {
		o.Progress = func(done, total int) { s.opt.Progress(readingHistory, done, total) }
	}
	s.ask(ctx, o).first = true
}

// readHistory asks and waits for the answer.
func (s *Scheduler) readHistory(ctx context.Context) (traffic.Backfilled, error) {
	s.askHistory(ctx, time.Now())
	r := s.missed.reading
	<-r.done
	s.missed.end()
	return s.tellHistory(r), r.err
}

// tellHistory takes in the answer. Without one the scheduler works, and says that it is cold.
func (s *Scheduler) tellHistory(r *reading) traffic.Backfilled {
	if r.err != nil {
		if s.opt.Progress != nil {
			s.opt.Progress(readingHistory, 1, 1) // no more of it
		}
		s.lg.Warn("no arrival history: forecasts start cold, until the brokers tell it", "err", r.err)
		return traffic.Backfilled{}
	}
	got := s.arrivals.Add(r.past)
	s.foresee.warm = false // the forecasters are tried on it
	s.heedAhead(got)
	s.lg.Info("arrival history read from the broker", "samples", got.Samples, "known_from", got.KnownFrom, "requests", got.Requests, "took", got.Elapsed.Round(time.Millisecond))
	return got
}

// heedAhead takes down which records are dated ahead of this machine's clock, and tells of them.
func (s *Scheduler) heedAhead(got traffic.Backfilled) {
	s.missed.aheadAt = time.Now()
	s.missed.ahead = slices.DeleteFunc(slices.Clone(got.Ahead), func(a traffic.Ahead) bool { return a.By < traffic.AheadLeast })
	for _, a := range s.missed.ahead {
		s.lg.Warn("a record is dated ahead of this machine's clock: what came after it is not in the arrival history", "partition", a.Partition, "offset", a.Offset, "dated", a.Stamp.UTC(), "ahead", a.By.Round(time.Second))
	}
	if n := len(got.Disordered); n > 0 {
		a := got.Disordered[0]
		s.lg.Warn("records of the past were dated ahead of those after them: what these hid is not in the arrival history", "records", n, "partition", a.Partition, "offset", a.Offset, "dated", a.Stamp.UTC(), "ahead", a.By.Round(time.Second))
	}
}

// AheadWords say of the first of some records, which are dated ahead of this machine's clock, what it means and what to do; "" of none.
func AheadWords(as []traffic.Ahead) string {
	if len(as) == 0 {
		return ""
	}
	a := as[0]
	more := ""
	if n := len(as) - 1; n > 0 {
		more = fmt.Sprintf(" (and others, in %s)", job.Count(n, "other partition"))
	}
	until := "Until then"
	if latest := slices.MaxFunc(as, func(a, b traffic.Ahead) int { return a.Latest.Compare(b.Latest) }).Latest; latest.After(a.Stamp) {
		until = fmt.Sprintf("Until %s, the latest of such dates,", latest.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("a record's clock is ahead of this machine's by %s: offset %d of partition %d is dated %s%s. %s the brokers cannot tell when what came after it arrived: that is missing from the arrival history, as far as this scheduler did not "+
		"observe it itself. To have it end, %s", job.Length(a.By), a.Offset, a.Partition, a.Stamp.UTC().Format(time.RFC3339), more, until, traffic.AheadAdvice)
}

// aheadNow are those that are ahead still, until the scheduler has itself observed as much as forecasts need.
func (m *missed) aheadNow(now time.Time, needed time.Duration) []traffic.Ahead {
	if now.Sub(m.aheadAt) > needed {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(m.ahead), func(a traffic.Ahead) bool { return !a.Latest.After(now) })
}

// askBack begins to ask.
func (s *Scheduler) askBack(ctx context.Context, since time.Time) {
	_, last, _ := s.arrivals.Span()
	s.missed.since = time.Time{}
	oldest := last.Add(-s.job.Forecast.Past() - s.job.Forecast.Horizon)
	if since.Before(oldest) {
		since = oldest
	}
	s.ask(ctx, traffic.BackfillOptions{Step: s.job.Forecast.Interval, From: since, To: last})
}

func (s *Scheduler) ask(ctx context.Context, o traffic.BackfillOptions) *reading {
	ctx, cancel := context.WithTimeout(ctx, backfillTimeout)
	r := &reading{since: o.From, cancel: cancel, done: make(chan struct{})}
	s.missed.reading = r
	go func() { // ends with ctx; readBack takes its answer, or end waits for it. Of the arrivals it reads the options only.
		defer close(r.done)
		r.past, r.err = traffic.ReadPast(ctx, s.kafka, s.arrivals, o)
	}()
	return r
}
