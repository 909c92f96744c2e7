package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/forecast"
)

// contender is a forecaster that is measured.
type contender struct {
	name  string
	file  string // of a model, "": of none
	reach int    // bins that it can forecast
	// heedless: it does not know of the holidays, beside one that does.
	heedless bool
	// of are as many as threads ask, each of its own: what one has learnt lately serves the moments just after. Or one, which all of them ask.
	of []forecast.Forecaster
}

// single is a contender that all threads ask.
func single(f forecast.Forecaster) contender {
	return contender{name: f.Name(), reach: math.MaxInt, of: []forecast.Forecaster{f}}
}

// seasonalPair are the seasonal forecaster and its mean with others, which share what they learn, for so many threads.
func seasonalPair(seasons []time.Duration, threads int, others func() forecast.Forecaster) (seasonal, ensemble contender) {
	for range threads {
		s := forecast.NewSeasonal(seasons)
		seasonal.of, ensemble.of = append(seasonal.of, s), append(ensemble.of, forecast.NewEnsemble(s, others()))
	}
	seasonal.name, seasonal.reach = seasonal.of[0].Name(), math.MaxInt
	ensemble.name, ensemble.reach = ensemble.of[0].Name(), math.MaxInt
	return seasonal, ensemble
}

// contenders are those that a history alone makes; what must be learnt beforehand is learnt from the bins before first, as they would have been without events.
func (a *app) contenders(ctx context.Context, p past, first, steps, threads int, e *evaluation) ([]contender, error) {
	season := slices.Min(p.seasons)
	seasonal, ensemble := seasonalPair(p.seasons, threads, func() forecast.Forecaster { return forecast.NewSelfTaught(season) })
	out := []contender{single(forecast.NewNaive(season)), seasonal, ensemble}
	learnt := p.calendar().Plain(p.series.Until(p.series.At(first)))
	kinds := []string{forecast.NLinear, forecast.DLinear, forecast.SparseTSF}
	made, errs := make([]forecast.Forecaster, len(kinds)), make([]error, len(kinds))
	all := func() {
		bar := a.progress()
		defer bar.done()
		part := partsOf(len(kinds), func(hundredths int) { bar.step("learning the linear maps, hundredths", hundredths, 100) })
		inParallel(len(kinds), threads, func(i int) {
			if ctx.Err() != nil {
				return
			}
			made[i], errs[i] = forecast.TrainWindow(learnt, forecast.WindowOptions{Kind: kinds[i], Horizon: steps, Season: season, Progress: part(i)})
		})
	}
	if !during(ctx, all) || ctx.Err() != nil {
		return nil, errors.New("forecast eval: interrupted before anything was measured")
	}
	for i, kind := range kinds {
		if errs[i] != nil {
			e.note(kind, "left out: %v", errs[i])
			continue
		}
		out = append(out, single(made[i]))
	}
	return out, nil
}

// partsOf gives each of n pieces of work, which tells its parts, a share of one progress in hundredths: tell is called by one goroutine at a time, when that has grown.
func partsOf(n int, tell func(hundredths int)) func(i int) func(done, total int) {
	var mu sync.Mutex
	shares, told := make([]float64, n), 0
	return func(i int) func(done, total int) {
		return func(done, total int) {
			mu.Lock()
			defer mu.Unlock()
			shares[i] = float64(done) / float64(total)
			sum := 0.0
			for _, s := range shares {
				sum += s
			}
			if at := int(100*sum/float64(n) + 1e-9); at > told {
				told = at
				tell(at)
			}
		}
	}
}

// inParallel calls do(i) for each i below n, on so many threads, and waits for them.
func inParallel(n, threads int, do func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(threads, n) {
		all.Go(func() {
			for i := int(next.Add(1) - 1); i < n; i = int(next.Add(1) - 1) {
				do(i)
			}
		})
	}
	all.Wait()
}

// during does work that cannot be told to end, such as solving large equations, and says whether it was done before ctx ended: then nobody waits for it, and
// what it makes is not to be looked at. It goes on until it is done or the process ends, so it may touch nothing that is there after the command.
func during(ctx context.Context, work func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		work()
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// sweepParts is into how many stretches of neighbouring moments a sweep divides them for each thread.
const sweepParts = 4

// sweep calls do(i, thread) for each i below n once, in stretches of neighbours, each by one thread at a time, and says how many were done when all
// were, or ctx ended. It waits for its threads.
func (a *app) sweep(ctx context.Context, what string, n, threads int, do func(i, thread int)) int {
	bar := a.progress()
	defer bar.done()
	stretch := max(1, (n+threads*sweepParts-1)/(threads*sweepParts))
	var next atomic.Int64
	var mu sync.Mutex // guards done and bar
	done := 0
	var all sync.WaitGroup
	for thread := range min(threads, n) {
		all.Go(func() {
			for {
				from := int(next.Add(1)-1) * stretch
				if from >= n {
					return
				}
				for i := from; i < min(from+stretch, n); i++ {
					if ctx.Err() != nil {
						return
					}
					do(i, thread)
					mu.Lock()
					done++
					bar.step(what, done, n)
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return done
}

// recorded answers with the forecasts that were made before, by the bins of history that they saw.
type recorded struct {
	contender
	made map[int]forecast.Forecast
	// every has those, too, that are left out because another has no answer at that moment.
	every map[int]forecast.Forecast
	asks  int
	why   error             // the first failure
	notes map[string]int    // what forecasts say of themselves, and how many of them do
	whys  map[string]string // why, at the last of these moments
	took  time.Duration     // to forecast, of all threads together
	// cut: it was to be asked, and was not, as that was interrupted before.
	cut bool
}

// alone is which members an ensemble's forecast was without, and why, by its note; "": none.
func alone(note string) (without, why string) {
	if without, why, ok := strings.Cut(note, ": "); ok && strings.HasPrefix(without, "without ") {
		return without + ", which gave no forecast", why
	}
	return "", ""
}

func (r *recorded) Name() string { return r.name }

func (r *recorded) Forecast(history forecast.Series, _ int) (forecast.Forecast, error) {
	if f, ok := r.made[len(history.Values)]; ok {
		return f, nil
	}
	return forecast.Forecast{}, errors.New("not every forecaster has an answer here")
}

// asking is what contenders are asked.
type asking struct {
	series   forecast.Series
	calendar forecast.Calendar
	origins  []int // bins before each of the moments
	steps    int   // bins ahead, as far as a contender reaches
	threads  int
	lean     bool   // of the answers the point forecasts count
	doing    string // what for, for people; "": measuring
}

// answer is what a contender said at a moment.
type answer struct {
	f    forecast.Forecast
	err  error
	took time.Duration
}

// record asks every contender, which heeds the job's events as it does in kale run, at every moment, and says at how many all were asked: fewer where it was interrupted. Model files, which may
// take long, come last, and are asked after the others: interrupted before one moment of theirs is done they are cut, and what is recorded is of the others.
func (a *app) record(ctx context.Context, contenders []contender, q asking) (all []*recorded, asked int) {
	answers := make([][]answer, len(q.origins)) // at each moment of the first contenders, as many as were asked there
	quick := slices.IndexFunc(contenders, func(c contender) bool { return c.file != "" })
	if quick < 0 {
		quick = len(contenders)
	}
	known := quick
	doing := cmp.Or(q.doing, "measuring")
	asked = a.ask(ctx, doing+" "+job.Count(quick, "forecaster"), contenders[:quick], q, answers)
	if files := contenders[quick:]; len(files) > 0 && ctx.Err() == nil {
		what := doing + " " + files[0].file
		if len(files) > 1 {
			what = doing + " " + job.Count(len(files), "model file")
		}
		if n := a.ask(ctx, what, files, q, answers); n > 0 {
			asked, known = n, len(contenders)
		}
	}
	for k, c := range contenders {
		r := &recorded{contender: c, made: map[int]forecast.Forecast{}, notes: map[string]int{}, whys: map[string]string{}, cut: k >= known}
		for i, row := range answers {
			if len(row) < known || r.cut {
				continue
			}
			r.asks++
			r.took += row[k].took
			if row[k].err == nil {
				r.made[q.origins[i]] = row[k].f
				if short, why := alone(row[k].f.Note); short != "" {
					r.notes[short]++
					r.whys[short] = why
				}
			} else if r.why == nil {
				r.why = row[k].err
			}
		}
		all = append(all, r)
	}
	return all, asked
}

// ask adds to the answers those of contenders, and says at how many moments they gave them. A model that is asked something when ctx ends is closed, which ends it.
func (a *app) ask(ctx context.Context, what string, contenders []contender, q asking, answers [][]answer) int {
	for _, c := range contenders {
		if m, ok := c.of[0].(*forecast.ONNXModel); ok {
			defer context.AfterFunc(ctx, func() { _ = m.Close() })() // who has opened it closes it too, and so waits for that
		}
	}
	var asked atomic.Int64
	a.sweep(ctx, what+", moments", len(q.origins), q.threads, func(i, thread int) {
		past := q.series.Until(q.series.At(q.origins[i]))
		row := make([]answer, len(contenders))
		for k, c := range contenders {
			began := time.Now()
			f, err := c.heeded(q.calendar).With(c.of[thread%len(c.of)]).Forecast(past, min(q.steps, c.reach))
			if errors.Is(err, forecast.ErrClosed) {
				return // it was interrupted
			}
			f.Scenarios = nil // only memory here
			if q.lean {
				f = forecast.Forecast{At: f.At, Step: f.Step, Mean: f.Mean, Lower: f.Mean, Upper: f.Mean, Source: f.Source}
			}
			row[k] = answer{f, err, time.Since(began)}
		}
		answers[i] = append(answers[i], row...)
		asked.Add(1)
	})
	return int(asked.Load())
}

// evalAll adds the rows of all contenders that have an answer at nearly all moments, measured at those at which every one of these has one; of the others a note says how
// they are. One that has none at all is left out, and an error is what
// becomes of that where a person has named its file; it is one, too, that it was interrupted. There may be rows beside it.
func (a *app) evalAll(ctx context.Context, contenders []contender, p past, first int, horizons []int, f evalFlags, e *evaluation) error {
	origins, season := f.origins, int(slices.Min(p.seasons)/p.series.Step)
	if origins == 0 {
		origins = evalOrigins
	}
	every, skip := strideOf(len(p.series.Values)-first, origins, season)
	first += skip
	q := asking{series: p.series, calendar: p.calendar(), steps: slices.Max(horizons), threads: f.workers}
	if f.out != "" {
		q.doing = "first of two passes: measuring"
	}
	for o := first; o < len(p.series.Values); o += every {
		came := func(h int) bool { return o+h <= len(p.series.Values) && !math.IsNaN(p.series.Values[o+h-1]) }
		if slices.ContainsFunc(horizons, came) { // else nothing is measured there
			q.origins = append(q.origins, o)
		}
	}
	if len(q.origins) == 0 {
		return fmt.Errorf("forecast eval: none of the bins that would be forecast, from %s on, was measured: take a history that has its last 30 %%, as with -history", p.series.At(first).UTC().Format(time.RFC3339))
	}
	asked, n := a.record(ctx, contenders, q)
	var cut []string
	for _, r := range asked {
		if r.cut {
			cut = append(cut, r.file)
		}
	}
	e.Planned, e.Partial = len(q.origins), n < len(q.origins) || len(cut) > 0
	if n == 0 {
		return errors.New("forecast eval: interrupted before anything was measured")
	}
	all, err := e.together(asked)
	if err != nil {
		return err
	}
	o := forecast.BacktestOptions{First: first, Every: every, Season: season}
	for _, r := range all {
		if err := e.score(r, p, horizons, o); err != nil {
			return err
		}
	}
	e.compare()
	if err := e.aside(asked, all, p, horizons, o); err != nil {
		return err
	}
	e.OnHolidays = onHolidays(all, p, first, horizons)
	var silent []string
	for _, r := range asked {
		if r.file != "" && len(r.made) == 0 && !slices.Contains(all, r) {
			silent = append(silent, fmt.Sprintf("model %s has no answer at any moment: %v", r.file, r.why))
		}
	}
	switch {
	case len(cut) > 0:
		return fmt.Errorf("forecast eval: interrupted: what is printed is of %d of %d moments, and without %s", n, len(q.origins), strings.Join(cut, ", "))
	case e.Partial:
		return fmt.Errorf("forecast eval: interrupted: what is printed is of %d of %d moments", n, len(q.origins))
	case len(silent) > 0:
		return errors.New(strings.Join(silent, "\n"))
	}
	return nil
}

// besideShare is at what share of the moments one that is measured beside the others has an answer: each takes from all of them those at which it has none.
const besideShare = 0.9

// beside says whether it answers as often as it must for that, where the seasonal forecaster, which kale run falls back to, answers so often.
func (r *recorded) beside(usual *recorded) bool {
	return float64(len(r.made)) >= besideShare*float64(len(usual.made))
}

// together leaves out those that have no answer at all, and those that have one too seldom, and of the others the moments at which not every one has one.
func (e *evaluation) together(asked []*recorded) (all []*recorded, err error) {
	usual := asked[slices.IndexFunc(asked, func(r *recorded) bool { return r.name == "seasonal" })]
	for _, r := range asked {
		switch {
		case r.cut:
			e.note(r.name, "left out: it was interrupted before %s had answered", r.file)
			continue
		case len(r.made) == 0 && r == usual:
			return nil, r.why
		case len(r.made) == 0:
			e.note(r.name, "left out, it has no answer at any moment: %v", r.why)
			continue
		case !r.beside(usual):
			continue
		}
		all = append(all, r)
		for _, note := range slices.Sorted(maps.Keys(r.notes)) {
			e.note(r.name, "at %d of %d moments %s; at the last of them: %s", r.notes[note], len(r.made), note, r.whys[note])
		}
		if failed := r.asks - len(r.made); failed > 0 {
			e.note(r.name, "no answer at %d of %d moments, at which none is measured: %v", failed, r.asks, r.why)
		}
	}
	var fewest *recorded
	for _, r := range all {
		if fewest == nil || len(r.made) < len(fewest.made) {
			fewest = r
		}
	}
	for _, r := range all {
		r.every = maps.Clone(r.made)
	}
	for _, r := range all {
		for at := range r.made {
			if slices.ContainsFunc(all, func(other *recorded) bool { _, ok := other.every[at]; return !ok }) {
				delete(r.made, at)
			}
		}
		e.Moments = len(r.made)
	}
	if e.Moments == 0 {
		return nil, fmt.Errorf("forecast eval: there is no moment at which every forecaster has an answer; %s has one least often: %w", fewest.name, fewest.why)
	}
	return all, nil
}

// aside notes how those that have an answer too seldom to be measured beside the others do at the moments at which they have one, and the seasonal forecaster there.
func (e *evaluation) aside(asked, all []*recorded, p past, horizons []int, o forecast.BacktestOptions) error {
	usual := *asked[slices.IndexFunc(asked, func(r *recorded) bool { return r.name == "seasonal" })]
	answers := usual.every
	for _, r := range asked {
		if len(r.made) == 0 || slices.Contains(all, r) {
			continue
		}
		mine := *r
		mine.made, usual.made = maps.Clone(r.made), maps.Clone(answers)
		maps.DeleteFunc(usual.made, func(at int, _ forecast.Forecast) bool { _, ok := r.made[at]; return !ok })
		maps.DeleteFunc(mine.made, func(at int, _ forecast.Forecast) bool { _, ok := answers[at]; return !ok })
		var own, theirs evaluation
		if len(mine.made) > 0 {
			if err := errors.Join(own.score(&mine, p, horizons, o), theirs.score(&usual, p, horizons, o)); err != nil {
				return err
			}
		}
		var figures []string
		for i, row := range own.Rows {
			if row.Pinball != nil {
				figures = append(figures, fmt.Sprintf("%s %s (seasonal %s)", horizonWords(row.HorizonMin), short(row.Pinball), short(theirs.Rows[i].Pinball)))
			}
		}
		e.note(r.name, "not measured beside the others: it has an answer at only %d of %d moments. At these its pinball loss is %s. Elsewhere: %v",
			len(r.made), r.asks, cmp.Or(strings.Join(figures, ", "), unknownFigure), r.why)
	}
	return nil
}

// compare marks, of each horizon, the least pinball loss and those that differ from it by no more than chance.
func (e *evaluation) compare() {
	best := map[float64]*evalRow{}
	for i := range e.Rows {
		r := &e.Rows[i]
		if b := best[r.HorizonMin]; r.Pinball != nil && (b == nil || *r.Pinball < *b.Pinball) {
			best[r.HorizonMin] = r
		}
	}
	for i := range e.Rows {
		r := &e.Rows[i]
		if b := best[r.HorizonMin]; r.Pinball != nil {
			r.Best = *r.Pinball == *b.Pinball
			r.Level = !r.Best && forecast.Level(r.losses, b.losses, r.block)
		}
	}
}

// score adds the rows of a contender.
func (e *evaluation) score(r *recorded, p past, horizons []int, o forecast.BacktestOptions) error {
	reached := slices.DeleteFunc(slices.Clone(horizons), func(h int) bool { return h > r.reach })
	if len(reached) < len(horizons) {
		e.note(r.name, "forecasts no further than %s", job.FormatDuration(time.Duration(r.reach)*p.series.Step))
	}
	o.Steps, o.Losses = slices.Max(reached), true
	b, err := forecast.Backtest(r, p.series, o)
	if err != nil {
		return err
	}
	for _, h := range reached {
		m := b.PerHorizon[h-1]
		e.Rows = append(e.Rows, evalRow{
			Model: r.name, File: r.file, HorizonMin: (time.Duration(h) * p.series.Step).Minutes(), Bins: m.Bins, MAE: figure(m.MAE), RMSE: figure(m.RMSE), WAPE: figure(m.WAPE),
			MASE: figure(m.MASE), Pinball: figure(m.Pinball), Coverage80: figure(m.Coverage), Coverage90: figure(m.Coverage90), Coverage90SD: figure(m.Coverage90SD),
			losses: b.Losses[h-1], block: b.Block,
		})
	}
	return nil
}
