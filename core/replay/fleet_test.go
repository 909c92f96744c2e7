package replay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// A pool serves what its parts, each on its own, cannot: jobs are over their objective for less than half of the time, and the whole costs less. Nobody holds more
// than there is, and who has priority is served.
func TestFleetOnAPool(t *testing.T) {
	t.Parallel()
	o := FleetOptions{Jobs: 8, GPUs: 60, Priority: 2, ForecastNoise: 0.05, Seed: 1}
	play := func(o FleetOptions) FleetResult {
		r, err := Fleet(t.Context(), reference(t), SyntheticWeek(1), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v: %+v", o, r)
		if r.MostHeld > o.GPUs {
			t.Errorf("%d GPUs were held of %d", r.MostHeld, o.GPUs)
		}
		return r
	}
	shared := play(o)
	few := o
	few.Jobs, few.GPUs, few.Priority = 4, 30, 1
	if once, again := play(few), play(few); !gocmp.Equal(once, again) {
		t.Errorf("another run of the same (-want +got):\n%s", gocmp.Diff(once, again))
	}
	o.Partitioned = true
	parts := play(o)
	if shared.OverPct > parts.OverPct/2 || shared.Cost > parts.Cost {
		t.Errorf("over the objective for %.2f %% of the time at a cost of %.0f, with parts of their own %.2f %% at %.0f", shared.OverPct, shared.Cost, parts.OverPct, parts.Cost)
	}
	if shared.ShortPct == 0 || shared.Preempted == 0 {
		t.Errorf("the pool was never short: this test is not worth anything")
	}
	if first := *shared.PriorityOverPct; first > shared.OverPct || first > 0.5 {
		t.Errorf("who has priority is over its objective for %.2f %% of the time, all for %.2f %%", first, shared.OverPct)
	}
}

// A pool that is far too small serves those whose records are soonest made younger: a fleet on it costs hardly more than by a rule that knows when all arrived, and
// moves workers at once: a twentieth. (With worths by how many records wait, whenever they came, it was more than an eighth.)
func TestFleetOnAPoolThatIsFarTooSmall(t *testing.T) {
	t.Parallel()
	o := FleetOptions{Jobs: 12, GPUs: 60, Policy: "follow", ForecastNoise: 0.1, Seed: 2}
	got, err := Fleet(t.Context(), reference(t), SyntheticWeek(1), o)
	if err != nil {
		t.Fatal(err)
	}
	bound := youngest(t, o)
	cost := got.Cost - got.LeftCost
	t.Logf("a cost of %.0f, by the rule %.0f: %+v", cost, bound, got)
	if got.ShortPct < 90 || cost > 1.09*bound {
		t.Errorf("a cost of %.0f, by the rule %.0f; the pool is short for %.0f %% of the time", cost, bound, got.ShortPct)
	}
	if got.LeftCost < 0.1*got.Cost {
		t.Errorf("of a pool that falls behind all day, what is left waiting counts %.0f of %.0f", got.LeftCost, got.Cost)
	}
}

// youngest is what a fleet costs where each minute the workers beyond the guarantees go first to the jobs that are half as late as they may be, and among these
// and among the others to whose waiting records came slowest; each gets so many that it catches up within ten minutes.
func youngest(t *testing.T, o FleetOptions) float64 {
	t.Helper()
	ms, err := members(reference(t), SyntheticWeek(1), o)
	if err != nil {
		t.Fatal(err)
	}
	cost, w := 24*float64(o.GPUs), DefaultWeights()
	for minute := range 1440 {
		room, slow := o.GPUs, map[*member]float64{}
		for _, m := range ms {
			m.running = m.j.Workers.Min
			room -= m.running
			slow[m] = m.part.Rates[minute]
			if lag := m.q.lag(); lag > 60 {
				slow[m] = m.q.backlog() / lag
			}
			if m.q.lag() < m.j.SLO.MaxLag.Seconds()/2 {
				slow[m] += 1e9
			}
		}
		slices.SortFunc(ms, func(a, b *member) int { return cmp.Compare(slow[a], slow[b]) })
		for _, m := range ms {
			want := smallest(m.capacity, m.part.Rates[minute]+m.q.backlog()/600, m.j.Workers.Min, m.j.Workers.Max)
			m.running += min(want-m.running, room)
			room -= m.running - m.j.Workers.Min
			m.q.advance(60*float64(minute+1), m.capacity[m.running])
			cost += w.Lag * m.q.lag() / 60
			if m.q.lag() > m.j.SLO.MaxLag.Seconds() {
				cost += w.Violation
			}
		}
	}
	return cost
}

// The page's lines are those of the first seed, and end in its figures: what is held never exceeds the pool, and what the jobs need is drawn beside it.
func TestFleetPage(t *testing.T) {
	t.Parallel()
	o := FleetOptions{Jobs: 4, GPUs: 20, Priority: 1, Seed: 1}
	r, err := CompareFleets(t.Context(), reference(t), SyntheticWeek(1), o, []string{"follow"}, 2)
	if err != nil {
		t.Fatal(err)
	}
	o.Policy = "follow"
	first, err := Fleet(t.Context(), reference(t), SyntheticWeek(1), o)
	if err != nil {
		t.Fatal(err)
	}
	r.Trace = `<script>alert("x")</script>`
	var page, again bytes.Buffer
	if err := errors.Join(r.WriteHTML(&page, "1.2.3"), r.WriteHTML(&again, "1.2.3")); err != nil {
		t.Fatal(err)
	}
	html := page.String()
	if html != again.String() || strings.Contains(html, `<script>alert`) || !strings.Contains(html, "Written by kale 1.2.3") || strings.Count(html, "<tr") != 1+2 {
		t.Errorf("two pages of one report, a name that became markup, or %d rows", strings.Count(html, "<tr"))
	}
	_, data, _ := strings.Cut(html, `id="data">`)
	data, _, _ = strings.Cut(data, "</script>")
	var p fleetPicture
	if err := json.Unmarshal([]byte(data), &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Lines) != 2 || p.Lines[0].Parts || !p.Lines[1].Parts || len(p.T) != 1441 || len(p.Need) != 1441 || p.GPUs != 20 {
		t.Fatalf("%d lines of %d points, a pool of %d", len(p.Lines), len(p.T), p.GPUs)
	}
	pool, end := p.Lines[0], 1440
	near := func(name string, got, want float64) {
		if math.Abs(got-want) > 1e-3*want {
			t.Errorf("%s ends at %g: want %g", name, got, want)
		}
	}
	near("GPU-hours", pool.GPUHours[end], first.GPUHours)
	near("cost", pool.Cost[end], first.Cost-first.LeftCost)
	near("minutes over the objective", pool.Over[end], first.OverPct/100*4*1440)
	over := 0.0
	for _, jobs := range pool.JobsOver {
		over += jobs
	}
	near("jobs over their objective, in all,", over, pool.Over[end])
	if slices.Max(pool.Held) != float64(first.MostHeld) || first.OverPct == 0 || slices.Max(p.Need) <= 20 {
		t.Errorf("at most %g GPUs are held, of %d; need %g", slices.Max(pool.Held), first.MostHeld, slices.Max(p.Need))
	}
}

func TestFleetRefuses(t *testing.T) {
	for _, tt := range []struct {
		o    FleetOptions
		want string
	}{
		{FleetOptions{}, "a fleet of 0 jobs"},
		{FleetOptions{Jobs: 3, GPUs: 5}, "5 GPUs for 3 jobs: each is guaranteed workers.min, which is 2 workers of 1 GPU, so that the least is 6 GPUs"},
		{FleetOptions{Jobs: 2, GPUs: 9, Priority: 3}, "3 jobs of a fleet of 2 have priority"},
		{FleetOptions{Jobs: 1, GPUs: 9, ForecastNoise: -1}, "between 0 and 3"},
		{FleetOptions{Jobs: 1, GPUs: 9, ForecastNoise: math.NaN()}, "between 0 and 3"},
		{FleetOptions{Jobs: 1, GPUs: 9, Policy: "nonsense"}, "nonsense"},
	} {
		if _, err := Fleet(t.Context(), reference(t), SyntheticWeek(1), tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
	j := reference(t)
	j.Workers.Min, j.Workers.GPUs = 1, 4
	want := "1 GPU for 1 job: each is guaranteed workers.min, which is 1 worker of 4 GPUs, so that the least is 4 GPUs"
	if _, err := Fleet(t.Context(), j, SyntheticWeek(1), FleetOptions{Jobs: 1, GPUs: 1}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("workers of 4 GPUs: %v, want %q", err, want)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Fleet(gone, reference(t), SyntheticWeek(1), FleetOptions{Jobs: 1, GPUs: 9}); !errors.Is(err, context.Canceled) {
		t.Errorf("a fleet that was cancelled: %v", err)
	}
}

// A day of a fleet on a pool, and in parts.
func BenchmarkFleet(b *testing.B) {
	for _, n := range []int{100, 1_000} {
		for _, parts := range []bool{false, true} {
			b.Run(fmt.Sprintf("jobs=%d/parts=%v", n, parts), func(b *testing.B) {
				for b.Loop() {
					r, err := Fleet(b.Context(), reference(b), SyntheticWeek(1), FleetOptions{Jobs: n, GPUs: 8 * n, Priority: n / 10, Partitioned: parts, ForecastNoise: 0.05, Seed: 1})
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(r.OverPct, "over_%")
					b.ReportMetric(r.Cost, "cost")
					b.ReportMetric(float64(r.Preempted), "preempted")
				}
			})
		}
	}
}

// Where workers.max is what jobs lack at their peaks, the report says that, and not that nobody needs more.
func TestFleetBeyondWorkersMax(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		max, gpus int
		says      []string
		not       string
	}{
		{8, 64, []string{"3 jobs need more than workers.max at their peak (8), on one pool and in parts."}, "their part"},
		{8, 32, []string{"3 of the jobs need more than their part, and fall behind there", "\n3 jobs need more than workers.max at their peak (8)"}, "no job"},
		{16, 64, []string{": no job needs more than its part."}, "workers.max"},
	} {
		j := reference(t)
		j.Workers.Max = tt.max
		// Of these four jobs one needs no more than 8 workers at its peak, the others do.
		o := FleetOptions{Jobs: 4, GPUs: tt.gpus, Seed: seedOf(t, 3)}
		r, err := CompareFleets(t.Context(), j, SyntheticWeek(1), o, []string{"static"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		var text, page bytes.Buffer
		if err := errors.Join(r.WriteText(&text), r.WriteHTML(&page, "")); err != nil {
			t.Fatal(err)
		}
		for _, form := range []string{text.String(), page.String()} {
			form = strings.ReplaceAll(form, "&#39;", "'")
			for _, want := range tt.says {
				if !strings.Contains(form, want) {
					t.Errorf("workers.max %d on %d GPUs: it lacks %q:\n%s", tt.max, tt.gpus, want, text.String())
				}
			}
			if strings.Contains(form, tt.not) {
				t.Errorf("workers.max %d on %d GPUs: it says %q:\n%s", tt.max, tt.gpus, tt.not, text.String())
			}
		}
	}
}

// seedOf is the first seed with which so many of four jobs need more than 8 workers at their peaks.
func seedOf(t *testing.T, large int) uint64 {
	t.Helper()
	for seed := uint64(1); seed < 100; seed++ {
		n := 0
		for i := range 4 {
			if peakWorkers((&FleetOptions{Seed: seed}).chance(i)) > 8 {
				n++
			}
		}
		if n == large {
			return seed
		}
	}
	t.Fatalf("no seed has %d of 4 jobs that need more than 8 workers", large)
	return 0
}

// In parts there is no pool that could be short.
func TestFleetPartsAreNotShort(t *testing.T) {
	r := FleetReport{Rows: []FleetRow{{Policy: "follow"}, {Policy: "follow", Partitioned: true}}}
	s := r.sheet()
	last := len(s.Head) - 1
	if s.Head[last] != "short %" || s.Rows[0].Cells[last] != "0.0" || s.Rows[1].Cells[last] != "-" {
		t.Errorf("%s: of the pool %q, of the parts %q; want 0.0 and -", s.Head[last], s.Rows[0].Cells[last], s.Rows[1].Cells[last])
	}
}

// A fleet of which no job has priority has no figure of such jobs: 0 would say that they are never late.
func TestFleetWithoutPriority(t *testing.T) {
	t.Parallel()
	for priority, has := range []bool{false, true} {
		r, err := CompareFleets(t.Context(), reference(t), SyntheticWeek(1), FleetOptions{Jobs: 2, GPUs: 12, Priority: priority, Seed: 1}, []string{"static"}, 2)
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if err := r.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		for _, row := range r.Rows {
			out, err := json.Marshal(row)
			if null := strings.Contains(string(out), `"priority_over_pct":null`); err != nil || null == has || (row.PriorityOverPct != nil) != has {
				t.Errorf("%d jobs have priority: %v, %s", priority, err, out)
			}
		}
		if has && (*r.Rows[1].PriorityOverPct > 100 || *r.Rows[1].PriorityOverPct < 0) {
			t.Errorf("with priority over the objective for %v %% of the time", *r.Rows[1].PriorityOverPct)
		}
	}
}

// An error of forecasts that is less than a hundredth is not told as none, and none is not told as one.
func TestFleetTellsTheForecastsError(t *testing.T) {
	t.Parallel()
	for noise, want := range map[float64]string{
		0:     "Forecasts know the future. In parts, each job has 8 GPUs of its own.",
		0.004: "Forecasts know the future, but for an error of less than 1 % in each half hour (a standard deviation). In parts",
		0.05:  "Forecasts know the future, but for an error of 5 % in each half hour",
	} {
		r := FleetReport{Jobs: 2, GPUs: 16, ForecastNoise: noise, SpanHours: 24}
		if got := r.facts()[0]; !strings.HasPrefix(got, want) {
			t.Errorf("with %v it says %q, want %q", noise, got, want)
		}
	}
}

// A fleet goes by minutes: a job that decides more often, or more rarely, is told that it does not here.
func TestFleetSaysThatItGoesByMinutes(t *testing.T) {
	t.Parallel()
	j := reference(t)
	for _, tt := range []struct {
		tick time.Duration
		says string
	}{{time.Minute, ""}, {time.Second, "A tick of 1s (autoscale.tick) is not followed: a fleet is decided once a minute."}, {5 * time.Minute, "A tick of 5m (autoscale.tick) is not followed"}} {
		j.Autoscale.Tick = tt.tick
		r, err := CompareFleets(t.Context(), j, minutely(flat(16_000, 60)...), FleetOptions{Jobs: 2, GPUs: 16}, []string{"static"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), tt.says) || tt.says == "" && strings.Contains(b.String(), "autoscale.tick") {
			t.Errorf("a tick of %v: %v\n%s", tt.tick, err, b.String())
		}
	}
}
