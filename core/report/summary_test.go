package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/state"
)

func TestAhead(t *testing.T) {
	rates := func(values ...float64) []core.Sample {
		out := lags(make([]float64, len(values))...)
		for i, v := range values {
			if v >= 0 {
				out[i].Rate = number(v)
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		change  func(*core.Rescale)
		samples []core.Sample
		horizon time.Duration
		want    *time.Duration
	}{
		"ahead":                      {nil, rates(1, 1, 1, 1, 1, 11), 10 * time.Second, spanOf(2 * time.Second)},
		"late":                       {nil, rates(1, 11, 1, 1, 1, 11), 10 * time.Second, spanOf(-2 * time.Second)},
		"was there at the decision":  {nil, rates(11, 11, 1, 1, 1, 11), 10 * time.Second, spanOf(-3 * time.Second)},
		"at the capacity is not yet": {nil, rates(1, 10, 1, 1, 1, 11), 10 * time.Second, spanOf(2 * time.Second)},
		"before the decision":        {nil, rates(11, 1, 1, 1, 1, 1), 10 * time.Second, nil},
		"never":                      {nil, rates(1, 1, 1, 1, 1, 1), 10 * time.Second, nil},
		"not within the horizon":     {nil, rates(1, 1, 1, 1, 1, 11), 4 * time.Second, nil},
		"unknown rates":              {nil, rates(1, -1, -1, -1, 11), 10 * time.Second, spanOf(time.Second)},
		"a scale-in":                 {func(r *core.Rescale) { r.Kind = plan.KindIn }, rates(1, 11), time.Minute, nil},
		"the first start":            {func(r *core.Rescale) { r.From = 0 }, rates(1, 11), time.Minute, nil},
		"no new worker trained":      {func(r *core.Rescale) { r.FirstTrained = time.Time{} }, rates(1, 11), time.Minute, nil},
		"no configured capacity":     {func(r *core.Rescale) { r.ConfiguredCapacity = 0 }, rates(1, 11), time.Minute, nil},
	} {
		r := core.Rescale{Kind: plan.KindOut, From: 1, To: 2, Decided: at(0.5), FirstTrained: at(3), ConfiguredCapacity: 10, OldCapacity: 99}
		if c.change != nil {
			c.change(&r)
		}
		if diff := cmp.Diff(c.want, Ahead(r, c.samples, c.horizon)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func spanOf(d time.Duration) *time.Duration { return &d }

// The figures agree with a count of milliseconds, one by one.
func TestFiguresAgreeWithACount(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	in := Input{Meta: Meta{MaxLag: 2 * time.Second, Max: 9}}
	now := midnight
	for range 300 {
		s := core.Sample{At: now}
		if r.IntN(10) > 0 {
			s.Held = new(r.IntN(9))
		}
		if r.IntN(10) > 0 {
			s.Running, s.Busy = new(1+r.IntN(4)), new(r.Float64())
		}
		if r.IntN(10) > 0 {
			s.Lag = number(math.Round(r.ExpFloat64()*100) / 100)
		}
		in.Samples = append(in.Samples, s)
		now = now.Add(time.Duration(100+r.IntN(200)) * time.Millisecond)
	}
	var seen []float64
	var over, held, busy, running float64
	workers := 0 // held by the last count
	for i := range len(in.Samples) - 1 {
		s := in.Samples[i]
		if s.Held != nil {
			workers = *s.Held
		}
		for range in.Samples[i+1].At.Sub(s.At) / time.Millisecond {
			held += float64(workers)
			if s.Running != nil {
				busy += *s.Busy * float64(*s.Running)
				running += float64(*s.Running)
			}
			if s.Lag != nil {
				seen = append(seen, *s.Lag)
				if *s.Lag > 2 {
					over++
				}
			}
		}
	}
	slices.Sort(seen)
	f := in.figures()
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 1e-6*math.Abs(want) {
			t.Errorf("%s is %v, counted %v", what, got, want)
		}
	}
	near("time over", float64(f.over.Milliseconds()), over)
	near("time known", float64(f.known.Milliseconds()), float64(len(seen)))
	near("held", f.held.Seconds()*1000, held)
	near("busy", f.busy.Seconds()*1000, busy)
	near("running", f.busyOf.Seconds()*1000, running)
	for _, q := range []float64{0.5, 0.9, 0.99, 1} {
		near("quantile", quantile(slices.Clone(f.lags), q), seen[int(math.Ceil(q*float64(len(seen))))-1])
	}
}

func TestSummaryOfTheDemo(t *testing.T) {
	in := demoDay().run(t)
	got := map[string]string{}
	for _, tile := range Summarise(in) {
		got[tile.Name] = strings.ReplaceAll(tile.Value+"; "+tile.Note, nbsp, " ")
	}
	want := map[string]string{
		"Within the objective":       "100 %; of the time, lag was at most 2s",
		"Lag, 99th percentile":       "107ms; median 71ms, highest 114ms",
		"Scale-outs":                 "5; 5 ahead of the load that needed them",
		"Scale-ins":                  "3; between 1 and 5 workers ran",
		"Longest gap of a rescale":   "120ms; without a record applied, beyond the usual",
		"Emulated GPU-hours":         "0.0951; 48 % of the 0.2 of 6 workers throughout",
		"Emulated accelerators busy": "69.5 %; of the time of running workers",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if tiles := Summarise(Input{}); tiles != nil {
		t.Errorf("of nothing: %v", tiles)
	}
	for _, tile := range Summarise(workday().run(t)) {
		if tile.Name == "Within the objective" && tile.Verdict != Bad {
			t.Errorf("a day with a long violation: %+v", tile)
		}
	}
}

func TestWords(t *testing.T) {
	for want, v := range map[string]float64{"100 %": 100, "99.99 %": 99.9999, "99.5 %": 99.5, "0 %": 0, "42.1 %": 42.14} {
		if got := strings.ReplaceAll(percent(v), nbsp, " "); got != want && !(v == 99.5 && got == "99.50 %") {
			t.Errorf("percent(%v) = %q, want %q", v, got, want)
		}
	}
	for want, s := range map[string]float64{"unknown": math.NaN(), "over 285 years": math.Inf(1), "1.5s": 1.5} {
		if got := strings.ReplaceAll(seconds(s), nbsp, " "); got != want {
			t.Errorf("seconds(%v) = %q, want %q", s, got, want)
		}
	}
	if got := moment(at(1), at(0)) + ", " + moment(at(90000), at(0)); got != "00:00:01, 3 Mar 2026 01:00:00" {
		t.Errorf("moments %q", got)
	}
}

// What was put into a store comes out: within the bounds of time, without what only the scheduler needs, and with a bounded number of decisions.
func TestFromStore(t *testing.T) {
	st, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	spec := demoDay()
	spec.step = time.Second // each sample costs a sync of the disk
	day := spec.run(t)
	fill(t, st, day)
	from, to := day.Samples[10].At, day.Samples[100].At
	m := day.Meta
	m.From, m.To, m.Outlook = from, to, true
	got, err := FromStore(st, m)
	if err != nil {
		t.Fatal(err)
	}
	want := day
	want.From, want.To = from, to
	want.Meta.Outlook = true
	want.Samples = day.Samples[10:101]
	want.Rescales = nil
	for _, r := range day.Rescales {
		if !r.Done.Before(from) && !r.Done.After(to) {
			r.Ahead = Ahead(r.Rescale, want.Samples, m.Horizon)
			want.Rescales = append(want.Rescales, r)
		}
	}
	want.Decisions = nil
	for _, d := range day.Decisions {
		if !d.Decision.At.Before(from) && !d.Decision.At.After(to) {
			want.Decisions = append(want.Decisions, d)
		}
	}
	want.Outlook = want.Decisions[len(want.Decisions)-1].Observation.Forecast
	want = trimmed(want)
	slices.SortStableFunc(want.Decisions, func(a, b core.Record) int { return a.Decision.At.Compare(b.Decision.At) })
	want.Summary = Summarise(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(got.Rescales) == 0 || len(got.Decisions) <= shownOthers {
		t.Errorf("%d rescales and %d decisions are in these bounds: the test shows little", len(got.Rescales), len(got.Decisions))
	}

	m.From, m.To = midnight.AddDate(1, 0, 0), time.Time{}
	empty, err := FromStore(st, m)
	if err != nil || len(empty.Samples)+len(empty.Rescales)+len(empty.Decisions) > 0 {
		t.Errorf("a year later: %d samples, %v", len(empty.Samples), err)
	}
	if err := Write(fullDisk{}, empty); err == nil || !strings.Contains(err.Error(), "no samples") {
		t.Errorf("written: %v", err)
	}
}

func fill(t *testing.T, st *state.Store, in Input) {
	t.Helper()
	for i, s := range in.Samples {
		s.Applied = map[int32]int64{0: int64(i)}
		if err := st.Append(state.Samples, s.At, s); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range in.Rescales {
		if err := st.Append(state.Rescales, r.Done, r.Rescale); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range in.Decisions {
		if err := st.Append(state.Decisions, d.Decision.At, d); err != nil {
			t.Fatal(err)
		}
	}
}

// What was not trained in the time of the report is a figure and a sentence of it; what was not is neither.
func TestLossesAreInTheReport(t *testing.T) {
	st, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, s := range lags(1, 1, 1) {
		if err := st.Append(state.Samples, s.At, s); err != nil {
			t.Fatal(err)
		}
	}
	names := func() (out []string) {
		t.Helper()
		in, err := FromStore(st, Meta{Job: "ctr", From: at(0), To: at(2)})
		if err != nil {
			t.Fatal(err)
		}
		for _, tile := range in.Summary {
			if slices.Contains([]string{"Lost to retention", "Cut off the log", "Skipped", "Set aside"}, tile.Name) {
				out = append(out, tile.Name+": "+tile.Value)
			}
		}
		return append(out, in.Notes...)
	}
	if got := names(); len(got) > 0 {
		t.Errorf("where nothing was lost: %q", got)
	}
	for i, l := range []core.Loss{
		{Kind: core.LossRetention, At: at(1), Until: at(2), Records: 380000, Total: 380000},
		{Kind: core.LossRetention, At: at(2), Until: at(2), Records: 201, Total: 380201},
		{Kind: core.LossRetention, At: at(9), Until: at(9), Records: 1, Total: 380202},
		{Kind: core.LossUndecodable, At: at(2), Until: at(2), Records: 7, Total: 7},
		{Kind: core.LossUndecodable, At: at(2), Until: at(2), Records: 5, Total: 12, DeadLetter: "dead"},
		{Kind: core.LossCutOff, At: at(2), Until: at(2), Records: 258, Total: 258},
	} {
		if err := st.Set(state.Losses, l.At, uint64(i), l); err != nil {
			t.Fatal(err)
		}
	}
	got := names()
	if len(got) != 9 || got[0] != "Lost to retention: 380,201" || got[1] != "Cut off the log: 258" || got[2] != "Skipped: 7" || got[3] != "Set aside: 5" ||
		!strings.HasSuffix(got[4], " UTC: offsets that retention removed before they were trained, and that were given up: 380,000.") {
		t.Errorf("%q", got)
	}
}

// What nobody watched is said, in the head, by the figures and in the charts; a moment that is missing is not.
func TestTimeThatNobodyWatchedIsSaid(t *testing.T) {
	in := Input{Meta: Meta{Job: "ctr", MaxLag: 2 * time.Second, Max: 4}}
	for i := range 528 {
		at := midnight.Add(time.Duration(i) * time.Second)
		if i >= 264 {
			at = at.Add(31*time.Minute + 40*time.Second)
		}
		in.Samples = append(in.Samples, core.Sample{At: at, Held: new(2), Lag: number(0.1)})
	}
	for _, tile := range Summarise(in) {
		switch tile.Name {
		case "Within the objective":
			if tile.Note != "of the 8m46s watched, lag was at most 2s" {
				t.Error(tile)
			}
		case "Worker-hours":
			if tile.Note != "50 % of the 0.584 of 4 workers throughout the 8m46s watched" {
				t.Error(tile)
			}
		}
	}
	page := parse(t, written(t, in))
	text := strings.Join(page.texts, " ")
	for _, words := range []string{"8m46s of 40m27s", "For 31m41s no scheduler looked"} {
		if !strings.Contains(text, words) {
			t.Errorf("the page does not say %q: %.600s", words, text)
		}
	}
	if p := in.payload(); len(p.Unwatched) != 1 || p.Unwatched[0][1]-p.Unwatched[0][0] != 1901 {
		t.Errorf("shaded is %v", p.Unwatched)
	}
	in.Samples = slices.DeleteFunc(in.Samples, func(s core.Sample) bool { return s.At.Sub(midnight) > 4*time.Minute })
	if text := strings.Join(parse(t, written(t, in)).texts, " "); strings.Contains(text, "watched") {
		t.Errorf("of a time that was watched throughout: %.600s", text)
	}
}

// A gap that is not known is counted beside the longest of the others.
func TestUnknownGapsAreCounted(t *testing.T) {
	in := demoInput(t)
	in.Rescales[1].GapKnown = false
	gap := func() (out Tile) {
		for _, tile := range Summarise(in) {
			if tile.Name == "Longest gap of a rescale" {
				out = tile
			}
		}
		return out
	}
	if got := gap().Note; got != "without a record applied, beyond the usual; 1 unknown" {
		t.Error(got)
	}
	for i := range in.Rescales {
		in.Rescales[i].GapKnown = false
	}
	if got := gap().Value; got != "unknown" {
		t.Error(got)
	}
}
