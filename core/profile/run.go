package profile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kale-sched/kale/estimator"
)

// Bench is a job of its own beside the real one, of which nothing is kept. Its methods block, and are called by one goroutine.
type Bench interface {
	// Start starts it at the beginning of its records, with so many servers and workers, and returns when its processes have been asked for. It runs not, or
	// not any more.
	Start(ctx context.Context, servers, workers int) error
	// Scale asks for another number of workers.
	Scale(ctx context.Context, workers int) error
	// Look says what is there. Nothing yet is no error; one says that nothing more is to be expected.
	Look(ctx context.Context) (Look, error)
	// End releases all that Start has started and removes what it has left. It is called after each Start, also one that failed, and works when ctx has ended.
	End(ctx context.Context) error
}

// Options say what is measured, and how long is waited for it.
type Options struct {
	Workers []int // numbers of workers, ascending
	Servers []int // numbers of servers
	Extra   int   // how many more numbers of workers may be measured, where they tell most
	Most    int   // the largest of them

	Intervals int           // that must count at each point
	Interval  time.Duration // the length of one, at least
	Batch     int           // records of a step
	Global    float64       // M, the records of a step of all workers, for the forms that need it; 0: they are not tried
	Records   int64         // how many there are to train

	Every    time.Duration // between two looks
	Start    time.Duration // assumed until servers and the first worker are there, for the estimate of the time
	Join     time.Duration // assumed for a worker to join, likewise
	Patience time.Duration // at most so long until all have joined; and, in intervals that do not count, until enough do: see [Options.starved]
}

// measures is how long the intervals of a point take, the first of which does not count; each is how long it is announced to take in all.
func (o Options) measures() time.Duration { return time.Duration(o.Intervals+1) * o.Interval }
func (o Options) each() time.Duration     { return o.Join + o.measures() }

// leastIntervals is how many a point must be expected to give to be tried. [ours]
const leastIntervals = 2

// starved is how long may pass without any interval that counts once all have joined.
func (o Options) starved() time.Duration { return time.Minute + 10*o.Interval }

// Validate reports what cannot be measured.
func (o Options) Validate() error {
	check := func(name string, v []int) error {
		if len(v) == 0 || !slices.IsSorted(v) || v[0] < 1 || len(slices.Compact(slices.Clone(v))) != len(v) {
			return fmt.Errorf("profile at %v %s: want numbers of 1 or more, ascending", v, name)
		}
		return nil
	}
	if err := errors.Join(check("workers", o.Workers), check("servers", o.Servers)); err != nil {
		return err
	}
	if o.Intervals < 2 || o.Interval <= 0 || o.Every <= 0 || o.Batch < 1 || o.Patience <= 0 {
		return fmt.Errorf("profile with %d intervals of %v, looks every %v, batches of %d and a patience of %v: want at least 2 intervals, and the others above 0",
			o.Intervals, o.Interval, o.Every, o.Batch, o.Patience)
	}
	return nil
}

// Point is what was measured with one number of workers and servers.
type Point struct {
	Workers int       `json:"workers"`
	Servers int       `json:"servers"`
	Rates   []float64 `json:"rates"` // records/s of each saturated interval
	// Hungry is how many intervals did not count, since somebody waited for records.
	Hungry int `json:"hungry_intervals,omitempty"`
	// Joined is how long it took until all had joined, seconds.
	Joined float64 `json:"join_s"`
	// Why says why it was given up; "" where it was measured.
	Why string `json:"why,omitempty"`
	// Fewer says why it was measured in fewer intervals than were asked for: those that there are count, whatever came after them.
	Fewer string `json:"fewer_intervals,omitempty"`
	// Few says that either was since the topic has too few records; Unfed that it was since not all workers were ever busy at once, though there were records.
	Few   bool `json:"too_few_records,omitempty"`
	Unfed bool `json:"never_all_busy,omitempty"`
}

// Progress is how far a run has come.
type Progress struct {
	Done, Points     int // points measured or given up, and how many there are
	Extra            int // how many more may be measured, where they tell most
	Workers, Servers int // of the one under way
	Phase            Phase
	Joined           int     // workers of it
	Intervals, Of    int     // that count
	Rate             float64 // their mean, records/s
	Problems         []string
	Point            *Point // one that has just ended
}

// Run measures all points. What was measured before an error, or before ctx ended, is returned too. Nothing of the bench is left then, unless the error
// says so.
func Run(ctx context.Context, b Bench, o Options, tell func(Progress)) ([]Point, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	r := &run{b: b, o: o, tell: tell, began: time.Now(), total: len(o.Servers) * len(o.Workers), extra: len(o.Servers) * o.Extra}
	for _, p := range o.Servers {
		if err := r.servers(ctx, p); err != nil {
			return r.points, err
		}
	}
	return r.points, nil
}

type run struct {
	b       Bench
	o       Options
	tell    func(Progress)
	points  []Point
	total   int // points that are measured
	extra   int // how many more may be: which, and whether any, is known when those before are
	began   time.Time
	due     time.Duration // after began: when the point under way was announced to be over
	workers int           // of the bench; 0: it does not run
	short   int           // the fewest workers that trained all records, from the first one on, before they were measured; 0: none did
}

// servers measures all points with so many servers.
func (r *run) servers(ctx context.Context, p int) (err error) {
	defer func() { err = errors.Join(err, r.end(ctx, p)) }()
	r.due += r.o.Start
	for _, w := range r.o.Workers {
		if err := r.measure(ctx, p, w); err != nil {
			return err
		}
	}
	for range r.o.Extra {
		w := next(r.samples(), r.o.Global, r.o.Most, p, r.o.Intervals)
		if r.extra--; w == 0 || len(r.measured()) == 0 {
			continue
		}
		r.total++
		if err := r.measure(ctx, p, w); err != nil {
			return err
		}
	}
	return nil
}

// samples are those of all points.
func (r *run) samples() []estimator.Sample { return samples(r.points) }

// measured are the points that were not given up.
func (r *run) measured() []Point {
	return slices.DeleteFunc(slices.Clone(r.points), func(p Point) bool { return p.Why != "" })
}

// end ends the bench if it runs.
func (r *run) end(ctx context.Context, p int) error {
	if r.workers == 0 {
		return nil
	}
	r.show(Progress{Servers: p, Workers: r.workers, Phase: Ending})
	r.workers = 0
	return r.b.End(context.WithoutCancel(ctx))
}

// show adds what is known of the run.
func (r *run) show(p Progress) {
	if p.Done, p.Points, p.Extra, p.Of = len(r.points), r.total, r.extra, r.o.Intervals; r.tell != nil {
		r.tell(p)
	}
}

// measure measures one point. What is wrong with the point alone is in it; an error ends the run.
func (r *run) measure(ctx context.Context, p, w int) error {
	pt := Point{Workers: w, Servers: p}
	r.due += r.o.each()
	if pt.Why = r.hopeless(w); pt.Why != "" {
		pt.Few = true
	} else {
		again, err := r.attempt(ctx, &pt)
		if err == nil && again {
			// What was there to read is used up: from its beginning once more, with nothing trained by fewer workers before, for the intervals that are lacking.
			if err = r.end(ctx, p); err == nil {
				pt = Point{Workers: w, Servers: p, Rates: pt.Rates, Hungry: pt.Hungry}
				_, err = r.attempt(ctx, &pt)
			}
		}
		if err != nil {
			return err
		}
		if len(pt.Rates) > 0 {
			pt.Fewer, pt.Why = pt.Why, ""
		}
	}
	r.points = append(r.points, pt)
	r.show(Progress{Servers: p, Workers: w, Point: &pt})
	return nil
}

// hopeless says why w workers cannot be measured on the records that there are, by what fewer trained; "" where they may.
func (r *run) hopeless(w int) string {
	if r.short > 0 && w >= r.short {
		return fmt.Sprintf("the topic has too few records: as many workers or fewer used up all %d too soon", r.o.Records)
	}
	known := r.measured()
	if len(known) == 0 || r.o.Records <= 0 {
		return ""
	}
	last := known[len(known)-1]
	rate := mean(last.Rates) * float64(w) / float64(last.Workers)
	// Fewer intervals than were asked for tell something too, and how many there will be is not certain.
	if rate*((1+leastIntervals)*r.o.Interval).Seconds() <= float64(r.o.Records) {
		return ""
	}
	return fmt.Sprintf("the topic has too few records: %d, and %d workers train about %.0f in the %v of a measurement", r.o.Records, w, rate*r.o.measures().Seconds(), r.o.measures())
}

// attempt measures a point, or those intervals of it that are lacking yet; again says that the records were used up before it was measured, and that there may be
// enough for it alone. What was measured before it was given up is in the point too.
func (r *run) attempt(ctx context.Context, pt *Point) (again bool, err error) {
	fresh := r.workers == 0
	r.show(Progress{Servers: pt.Servers, Workers: pt.Workers, Phase: Starting, Intervals: len(pt.Rates)})
	if fresh {
		r.workers = pt.Workers // End is due, also where it fails
		err = r.b.Start(ctx, pt.Servers, pt.Workers)
	} else if r.workers != pt.Workers {
		r.workers = pt.Workers
		err = r.b.Scale(ctx, pt.Workers)
	}
	if err != nil {
		return false, err
	}
	m := &meter{workers: pt.Workers, batch: r.o.Batch, interval: r.o.Interval, phase: Starting, rates: pt.Rates, hungry: pt.Hungry}
	at := attempt{fresh: fresh, began: time.Now(), gained: time.Now()}
	t := time.NewTicker(r.o.Every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-t.C:
		}
		l, err := r.b.Look(ctx)
		if err != nil {
			return false, err
		}
		before, phase := len(m.rates), m.observe(l)
		if phase != Joining && phase != Starting && at.joined.IsZero() {
			at.joined, at.gained = time.Now(), time.Now()
			pt.Joined = at.joined.Sub(at.began).Seconds()
		}
		if len(m.rates) > before {
			at.gained = time.Now()
		}
		pt.Rates, pt.Hungry = m.rates, m.hungry
		r.show(Progress{Servers: pt.Servers, Workers: pt.Workers, Phase: phase, Joined: m.joined, Intervals: len(m.rates), Rate: mean(m.rates), Problems: l.Problems})
		if len(m.rates) >= r.o.Intervals {
			return false, nil
		}
		if r.giveUp(pt, m, l, at); pt.Why != "" {
			return pt.Few && !fresh, nil
		}
	}
}

// attempt is when one began, when all had joined, and when that was or an interval counted last; and whether it began with all records.
type attempt struct {
	fresh                 bool
	began, joined, gained time.Time
}

// giveUp says in the point why it is given up, if it is.
func (r *run) giveUp(pt *Point, m *meter, l Look, at attempt) {
	switch {
	case m.phase == Filling && r.unfed(m, l, at.joined):
		pt.Unfed, pt.Why = true, r.because(m.lacks(), l)
	case m.phase == Filling && m.usedUp(l):
		pt.Few, pt.Why = true, r.tooFew(pt, at)
	case at.joined.IsZero() && time.Since(at.began) > r.o.Patience:
		pt.Why = r.because(fmt.Sprintf("%d of %d workers had joined after %v", m.joined, pt.Workers, r.o.Patience), l)
	case !at.joined.IsZero() && time.Since(at.gained) > r.o.starved()+r.patienceLeft(m.phase):
		pt.Why = r.because(m.lacks(), l)
	}
}

// tooFew says that the records were used up, and how many a measurement takes where that can be told.
func (r *run) tooFew(pt *Point, at attempt) string {
	if !at.fresh {
		return fmt.Sprintf("the topic has too few records: what was left of %d was trained after %d of %d intervals", r.o.Records, len(pt.Rates), r.o.Intervals)
	}
	why := fmt.Sprintf("the topic has too few records: all %d were trained before %d intervals were measured", r.o.Records, r.o.Intervals)
	if len(pt.Rates) == 0 {
		r.short = pt.Workers
	}
	trained := max(time.Since(at.began).Seconds()-pt.Joined, r.o.Every.Seconds())
	takes := float64(r.o.Records) / trained * r.o.measures().Seconds()
	if len(pt.Rates) == 0 { // of what was trained before all had joined nothing is known
		takes = max(takes, 2*float64(r.o.Records))
	}
	return why + fmt.Sprintf("; it takes about %.0f or more", takes)
}

// unfed says whether workers, who had all joined at that time, were never all busy for an interval though they had what a measurement takes: all records, or the
// time that was announced for it. Workers who are slow, but wait for nothing, are not meant.
func (r *run) unfed(m *meter, l Look, joined time.Time) bool {
	switch {
	case m.busy || m.hungry <= r.o.Intervals || l.At.Sub(m.since) >= r.o.Interval: // all have been busy for an interval, though their steps are so long that it is not closed yet
		return false
	case m.usedUp(l):
		return time.Since(joined) > r.o.measures()
	}
	return time.Since(joined) > r.o.each() && time.Since(r.began) > r.due
}

// patienceLeft is for a worker that was lost and has to join again.
func (r *run) patienceLeft(phase Phase) time.Duration {
	if phase == Joining {
		return r.o.Patience
	}
	return 0
}

// because adds the problems that are known.
func (r *run) because(what string, l Look) string {
	if len(l.Problems) == 0 {
		return what
	}
	return what + ": " + strings.Join(l.Problems, "; ")
}
