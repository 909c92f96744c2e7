package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/examples"
)

// The reference job is what the comparison is defined on: 16,000 samples/s a worker, 2 to 28 workers, 20 minutes; and the published fit on A10, stretched.
func TestReferenceJob(t *testing.T) {
	j := reference(t)
	if j.Workers.Min != 2 || j.Workers.Max != 28 || j.SLO.MaxLag != 20*time.Minute || j.Autoscale.Tick != time.Minute || j.Forecast.Interval != time.Minute {
		t.Errorf("%+v %+v %+v", j.Workers, j.SLO, j.Autoscale)
	}
	for w := 1; w <= 28; w++ {
		if got := RateOf(j, float64(w)); !near(got, 16_000*float64(w), 1e-9) {
			t.Errorf("F(%d) = %v", w, got)
		}
	}
	if got := RateOf(j, 2.5); !near(got, 40_000, 1e-9) {
		t.Errorf("F(2.5) = %v, want 40000", got)
	}
	a10, _, diags := job.Parse(examples.Replay, "replay.hcl", job.Options{Vars: map[string]string{"curve": "sync-a10"}})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	// Reference: Kale §3.3: f(10) = 30,005.5 of the synchronous fit on A10, which is the peak.
	m := core.Prior(a10)
	if got := m.Throughput(28, 2); math.Abs(got-30_005.5) > 1 || m.Throughput(27, 2) >= got {
		t.Errorf("F(28) = %v, F(27) = %v; want the peak of 30,005.5 at 28", got, m.Throughput(27, 2))
	}
}

// Reference: Kale §2.2: the AUC at the published lags, and between them.
func TestAUC(t *testing.T) {
	for _, tt := range []struct{ minutes, want float64 }{{0, .7791}, {2.5, .7788}, {20, .7740}, {120, .7349}, {1000, .7349}} {
		if got := aucAt(60 * tt.minutes); !near(got, tt.want, 1e-9) {
			t.Errorf("AUC at %v min is %v, want %v", tt.minutes, got, tt.want)
		}
	}
}

// Reference: tables of Student's t, 97.5 %.
func TestStudent(t *testing.T) {
	for df, want := range map[int]float64{1: 12.706, 2: 4.303, 4: 2.776, 9: 2.262, 19: 2.093, 100: 1.984} {
		if got := student95(df); math.Abs(got/want-1) > 0.01 {
			t.Errorf("%d degrees of freedom: %v, want %v", df, got, want)
		}
	}
	mean, half := summary([]Metrics{{Cost: 1}, {Cost: 2}, {Cost: 3}})
	if mean.Cost != 2 || !near(half.Cost, 4.303/math.Sqrt(3), 1e-3) || half.GPUHours != 0 {
		t.Errorf("mean %v ± %v", mean.Cost, half.Cost)
	}
}

// Figures are those of a day, whatever was replayed.
func TestMetrics(t *testing.T) {
	sum := tally{seconds: 2 * 86400, minutes: 2880, lagSum: 300, over: 28.8, held: 10 * 2 * 86400, busy: 4 * 2 * 86400, downtime: 1200, rescales: 6, atMin: 86400}
	sum.lags.zero = 100
	got := sum.metrics(&figuring{weights: DefaultWeights(), min: 2, max: 20, gpus: 2, price: 3})
	want := Metrics{
		ViolationPct: 1, AccumulatedLagMin: 150, DowntimeMin: 10, GPUHours: 480, Rescales: 3, Cost: 480 + 1.5 + 14.4, CostAboveFloor: 480 + 1.5 + 14.4 - 96,
		AUCPct: 100, GPUBusyPct: 40, GPUAllocatedPct: 50, ShareAtMin: 0.5, Money: 1440,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A sweep finds the cheapest of the grid, and goes on beyond its edge where the cheapest lies there.
func TestSweep(t *testing.T) {
	c := week(t, 1, Options{World: LiveRescale(), Seeds: 1, Policies: []string{"follow"}})
	grid := Contestant{Policy: "follow", Paper: map[string]float64{"margin": 0.6}, Grid: []Axis{{Name: "margin", Values: []float64{0.4, 0.5}, Min: 0.05, Max: 2}}}
	best, err := c.search(t.Context(), grid)
	if err != nil {
		t.Fatal(err)
	}
	if m := best.Params["margin"]; m > 0.25 || m < 0.05 {
		t.Errorf("the best margin is %v; it lies far below the grid of 0.4 and 0.5", m)
	}
	if diff := cmp.Diff([]float64{0.4, 0.5}, grid.Grid[0].Values); diff != "" {
		t.Errorf("the grid itself was changed: %s", diff)
	}
	costs, err := c.costs(t.Context(), []Setting{best, {Policy: "follow", Label: LabelBest, Params: map[string]float64{"margin": 0.4}}})
	if err != nil || costs[0] > costs[1] {
		t.Errorf("the best setting costs %v, one of the grid %v (%v)", costs[0], costs[1], err)
	}
}

// Every grid can be run: its numbers are the policy's own or the job's, and within their bounds, extended as far as it may be.
func TestGrids(t *testing.T) {
	j := reference(t)
	for _, r := range contestants {
		grid := make([]Axis, len(r.Grid))
		for i, a := range r.Grid {
			if a.Of != nil {
				a = a.times(a.Of(j))
			}
			a.Values = append([]float64{a.Min, a.Max}, a.Values...)
			grid[i] = a
		}
		for _, s := range points(r.Policy, grid) {
			if _, _, err := s.apply(j, LiveRescale()); err != nil {
				t.Errorf("%v: %v", s, err)
			}
		}
		if _, _, err := PaperSetting(r.Policy).apply(j, PaperRestart()); err != nil {
			t.Errorf("%s in the paper's setting: %v", r.Policy, err)
		}
	}
}

// The report in all its forms.
func TestReport(t *testing.T) {
	c := week(t, 1, Options{World: PaperRestart(), Seeds: 2, Policies: []string{"static", "kale", "follow"}, Price: 2})
	r, err := c.Run(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	r.Trace = `<script>alert("x")</script>`
	var text, page, raw bytes.Buffer
	if err := WriteText(&text, r); err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(text.String(), "\n")
	if !strings.HasPrefix(first, `Kale's "kale" would have held `) || !strings.Contains(first, "less than 28 workers all day (672), ") || !strings.HasSuffix(first, ".") {
		t.Errorf("the first line: %s", first)
	}
	if err := WriteHTML(&page, r, "1.2.3"); err != nil {
		t.Fatal(err)
	}
	html := page.String()
	if strings.Contains(html, `<script>alert`) || !strings.Contains(html, "&lt;script&gt;alert") {
		t.Error("a name became markup")
	}
	if !strings.Contains(html, "Written by kale 1.2.3") || strings.Count(html, "<tr") != 1+2+len(r.Policies) {
		t.Errorf("%d rows, or not who wrote it", strings.Count(html, "<tr"))
	}
	_, data, _ := strings.Cut(html, `id="data">`)
	data, _, _ = strings.Cut(data, "</script>")
	var p picture
	if err := json.Unmarshal([]byte(data), &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Lines) != 1+len(r.Policies) || len(p.T) != 1440 || len(p.Rate) != 1440 {
		t.Fatalf("%d lines of %d points", len(p.Lines), len(p.T))
	}
	for _, l := range p.Lines {
		if len(l.Lag) != 1440 || len(l.GPUHours) != 1440 || l.GPUHours[0] <= 0 || l.GPUHours[1439] < l.GPUHours[700] {
			t.Errorf("%s: %d points, GPU-hours %v", l.Name, len(l.Lag), l.GPUHours[1439])
		}
	}
	if err := WriteJSON(&raw, r); err != nil {
		t.Fatal(err)
	}
	var again Report
	if err := json.Unmarshal(raw.Bytes(), &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Policies[1].Metrics, again.Policies[1].Metrics); diff != "" {
		t.Errorf("JSON lost something: %s", diff)
	}
}

// Nor of a trace whose bins are shorter than the minutes that the oracle plans in.
func TestNoBoundWithinMinutes(t *testing.T) {
	for bin, want := range map[float64]bool{1: true, 30: true, 60: false, 300: false} {
		oracle := Row{Name: "oracle"}
		r := Report{Bin: bin, MaxLag: 1200, Oracle: &oracle, Policies: []Row{{Name: "static"}}}
		if why := r.boundless(); strings.Contains(why, "so that it is no bound") != want {
			t.Errorf("bins of %g s: %q", bin, why)
		}
	}
}

// The oracle plans whole minutes, so that nothing is claimed of it where that makes it no bound; and figures a day of some minutes say what they are from.
func TestHeadlineClaimsNoMoreThanIsKnown(t *testing.T) {
	row := func(name string, cost float64) Row {
		return Row{Name: name, Metrics: Metrics{Cost: cost, GPUHours: cost}}
	}
	oracle := row("oracle", 60)
	for _, tt := range []struct {
		maxLag, kale, days float64
		says, not          string
	}{
		{1200, 70, 1, "; the cheapest schedule that there is holds 60.", "no bound"},
		{1200, 50, 1, "; the oracle, which is no bound here, holds 60.", "cheapest schedule"},
		{5, 70, 1, "; the oracle, which is no bound here, holds 60.", "cheapest schedule"},
		{1200, 70, 0.5, "By 12h of arrivals", "1 seeds"},
		{1200, 70, 2. / 1440, "By 2m of arrivals, reckoned up to a day: Kale's", "no bound"},
	} {
		k := row("kale", tt.kale)
		k.Setting = LabelDefault
		r := Report{Bin: 60, MaxLag: tt.maxLag, Days: tt.days, Max: 28, Oracle: &oracle, Policies: []Row{k}, gpus: 1, course: &Course{}}
		r.note()
		all := r.Headline() + strings.Join(r.Notes, " ")
		if !strings.Contains(all, tt.says) || strings.Contains(all, tt.not) {
			t.Errorf("max_lag %g s, cost %g: %s", tt.maxLag, tt.kale, all)
		}
		if cheaper := tt.kale < oracle.Cost; cheaper != strings.Contains(all, "tells backlogs apart in steps: kale is cheaper here") {
			t.Errorf("cost %g, the oracle's %g: %s", tt.kale, oracle.Cost, all)
		}
		if bound := !strings.Contains(tt.says, "no bound"); bound == strings.Contains(strings.Join(r.Notes, " "), "The oracle changes workers") {
			t.Errorf("the notes: %q", r.Notes)
		}
	}
}

// An oracle that does not know which workers are lost is no bound, cheaper policies or none.
func TestOracleWithLossesIsNoBound(t *testing.T) {
	w := PaperRestart()
	w.LossesPerDay = 30
	c := week(t, 1, Options{World: w, Seeds: 1, Policies: []string{"static", "kale"}})
	r, err := c.Run(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	all := r.Headline() + strings.Join(r.Notes, " ") + strings.Join(r.remarks(), " ")
	for _, want := range []string{"the oracle, which is no bound here, holds", "plans without knowing which workers are lost, so that it is no bound", "every outage, but not which workers are lost;"} {
		if !strings.Contains(all, want) {
			t.Errorf("it lacks %q: %s", want, all)
		}
	}
}

// Weights of nothing are such, and not those that hold where none are given.
func TestWeightsOfNothing(t *testing.T) {
	for _, tt := range []struct {
		given *Weights
		want  Weights
	}{{nil, DefaultWeights()}, {&Weights{}, Weights{}}, {&Weights{Lag: 1}, Weights{Lag: 1}}} {
		c := week(t, 1, Options{World: PaperRestart(), Seeds: 1, Weights: tt.given, Policies: []string{"follow"}})
		sum, err := c.play(t.Context(), PaperSetting("follow"), 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		m := sum.metrics(&c.fig)
		if want := m.GPUHours + tt.want.Lag*m.AccumulatedLagMin + tt.want.Violation*m.ViolationPct*14.4 + m.LeftCost; !near(m.Cost, want, 1e-9) || m.AccumulatedLagMin < 1 {
			t.Errorf("weights %v: cost %g, want %g", tt.given, m.Cost, want)
		}
		if got := c.report().Weights; got != tt.want {
			t.Errorf("the report says %v, want %v", got, tt.want)
		}
	}
}

// The paper's figures stand beside those of its settings, and nowhere else; with one seed there are no intervals, and one is one.
func TestTables(t *testing.T) {
	c := week(t, 1, Options{World: PaperRestart(), Seeds: 1, Policies: []string{"static", "hpa", "kale", "flink"}})
	r, err := c.Run(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	var text, page, again bytes.Buffer
	if err := errors.Join(WriteText(&text, r), WriteHTML(&page, r, ""), WriteHTML(&again, r, "")); err != nil {
		t.Fatal(err)
	}
	if page.String() != again.String() {
		t.Error("the same report gave two pages")
	}
	_, table, ok := strings.Cut(text.String(), "Beside Table 3")
	table, _, _ = strings.Cut(table, "\n\n")
	lines := strings.Split(table, "\n")
	if !ok || len(lines) != 1+1+3 || strings.Contains(table, "flink") || strings.Contains(table, "as in the job") {
		t.Fatalf("the table beside the paper's:\n%s", text.String())
	}
	var theirs []string
	for i, f := range strings.Fields(lines[3]) { // hpa [code] ours theirs ours theirs …
		if i >= 3 && i%2 == 1 {
			theirs = append(theirs, f)
		}
	}
	if diff := cmp.Diff([]string{"268", "19.57", "7151", "163", "27", "95.1"}, theirs); diff != "" {
		t.Errorf("of HPA in Table 3: %s", diff)
	}
	for name, form := range map[string]string{"text": text.String(), "page": page.String()} {
		for _, want := range []string{"lag p50", "lag p99", "lag max", "AUC %", "held %", "busy %", "weigh every record alike", "95.3 without lag", "Beside Table 3", "1 seed"} {
			if !strings.Contains(form, want) {
				t.Errorf("the %s lacks %q", name, want)
			}
		}
		if strings.Contains(form, "±") || strings.Contains(form, "1 seeds") {
			t.Errorf("the %s has an interval of one seed, or \"1 seeds\"", name)
		}
	}
	r.Seeds = 2
	text.Reset()
	if err := WriteText(&text, r); err != nil || !strings.Contains(text.String(), "mean max") || strings.Contains(text.String(), "lag max") || !strings.Contains(text.String(), "mean max is the mean of the seeds' largest lags") {
		t.Errorf("the mean of the seeds' largest lags is not told from the largest of all (%v):\n%s", err, text.String())
	}
	r.Seeds, r.Trace = 1, "mine.csv"
	text.Reset()
	if err := WriteText(&text, r); err != nil || strings.Contains(text.String(), "Table 3") {
		t.Errorf("the paper's figures stand beside those of another trace (%v)", err)
	}
}

// Numbers are told as people do.
func TestFactsOfFew(t *testing.T) {
	r := Report{Min: 1, Max: 1, Seeds: 1, Days: 10. / 1440, ShareAtMin: 0.001, Rescale: "live", gpus: 1, course: &Course{}}
	all := strings.Join(append(r.facts(), r.remarks()...), ", ")
	for _, want := range []string{", 10m, ", ", 1 worker, ", ", 1 seed, ", "For less than 1 % of the time 1 worker is enough."} {
		if !strings.Contains(all, want) {
			t.Errorf("it lacks %q: %s", want, all)
		}
	}
}

// No number is written with a power of ten.
func TestAmounts(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 12.34: "12.3", 840: "840", 999.6: "1.0k", 6600: "6.6k", 9940: "9.9k", 9960: "10k", 96_000: "96k", 999_600: "1M", 4.5e6: "4.5M", 999.4e6: "999M", 1.2e9: "1200M",
	} {
		if got := amount(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
	if got, want := formatParams(map[string]float64{"a": 16384, "b": 0.03125, "c": 999.94}), "a=16384, b=0.03125, c=999.9"; got != want {
		t.Errorf("numbers of a policy are %q, want %q", got, want)
	}
}

// The first sentence is of the job's own policy where that is one of Kale's, and says where another of Kale's costs less.
func TestHeadlineIsOfTheJobsPolicy(t *testing.T) {
	row := func(name string, cost float64) Row {
		return Row{Name: name, Setting: LabelDefault, Metrics: Metrics{Cost: cost, GPUHours: cost}}
	}
	for _, tt := range []struct {
		policy     string
		kale, cost float64
		says, not  string
	}{
		{"kale", 100, 90, `Kale's "kale" would have held 100`, "zzz"},
		{"kale", 100, 90, `; by "cost" it would have cost 10 % less.`, "zzz"},
		{"kale", 100, 99.9, `Kale's "kale"`, "cost"},
		{"cost", 100, 90, `Kale's "cost" would have held 90`, "less."},
		{"cost", 90, 100, `; by "kale" it would have cost 10 % less.`, "zzz"},
		{"hpa", 100, 90, `Kale's "cost"`, "less."},
		{"", 100, 90, `Kale's "cost"`, "less."},
	} {
		r := Report{MaxLag: 1200, Days: 1, Max: 28, Policies: []Row{row("kale", tt.kale), row("cost", tt.cost), row("hpa", 50)}, gpus: 1, course: &Course{}, policy: tt.policy}
		if got := r.Headline(); !strings.Contains(got, tt.says) || strings.Contains(got, tt.not) {
			t.Errorf("policy %q, kale %g, cost %g: %s", tt.policy, tt.kale, tt.cost, got)
		}
	}
}

// What is drawn before anybody chooses: the oracle, Kale's policy of the job, its cost as the job has it or else by its defaults, and the cheapest rival.
func TestDrawnFirst(t *testing.T) {
	row := func(name, setting string, cost float64, asInJob bool) Row {
		return Row{Name: name, Setting: setting, AsInJob: asInJob, Metrics: Metrics{Cost: cost}, trail: new(Trail)}
	}
	oracle := row("oracle", LabelBest, 1, false)
	for _, tt := range []struct {
		policy string
		rows   []Row
		want   []string
	}{
		{"kale", []Row{row("kale", LabelPaper, 10, false), row("kale", LabelPaper, 9, true), row("cost", LabelDefault, 8, false), row("hpa", LabelDefault, 20, false), row("flink", LabelDefault, 15, false)},
			[]string{"oracle", "kale as in the job", "cost", "flink"}},
		{"cost", []Row{row("kale", LabelPaper, 10, false), row("cost", LabelDefault, 8, false), row("cost", LabelDefault, 9, true), row("hpa", LabelDefault, 20, false)},
			[]string{"oracle", "cost as in the job", "hpa"}},
		{"hpa", []Row{row("kale", LabelPaper, 10, false), row("cost", LabelDefault, 8, false), row("cost", LabelBest, 7, false), row("hpa", LabelDefault, 20, true)},
			[]string{"oracle", "cost", "hpa as in the job"}},
		{"kale", []Row{row("kale", LabelPaper, 10, false), row("hpa", LabelDefault, 20, false)}, []string{"oracle", "kale", "hpa"}},
	} {
		r := Report{Oracle: &oracle, Policies: tt.rows, policy: tt.policy, course: &Course{}}
		var got []string
		for _, l := range r.picture().Lines {
			if l.Shown {
				got = append(got, l.Name)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("of a job by %q (-want +got):\n%s", tt.policy, diff)
		}
	}
	fleet := FleetReport{Rows: []FleetRow{{Policy: "hpa"}, {Policy: "hpa", Partitioned: true}, {Policy: "kale"}, {Policy: "cost"}, {Policy: "cost", Partitioned: true}}}
	var got []string
	for i := range fleet.Rows {
		fleet.Rows[i].trail = new(fleetTrail)
	}
	for _, l := range fleet.picture().Lines {
		if l.Shown {
			got = append(got, l.Name)
		}
	}
	if diff := cmp.Diff([]string{"hpa, one pool", "hpa, parts", "cost, one pool", "cost, parts"}, got); diff != "" {
		t.Errorf("of a fleet (-want +got):\n%s", diff)
	}
}

// Forecast errors that are asked for reach the policies, and cost something.
func TestForecastErrors(t *testing.T) {
	cost := func(w World) float64 {
		c := week(t, 1, Options{World: w, Seeds: 1, Policies: []string{"kale"}})
		costs, err := c.costs(t.Context(), []Setting{PaperSetting("kale")})
		if err != nil {
			t.Fatal(err)
		}
		return costs[0]
	}
	plain := cost(LiveRescale())
	biased, noisy := LiveRescale(), LiveRescale()
	biased.ForecastBias, noisy.ForecastNoise = 0.5, 0.3
	if b := cost(biased); b < plain*1.3 {
		t.Errorf("forecasts that are too high by a half cost %.1f, right ones %.1f", b, plain)
	}
	if n := cost(noisy); n < plain*1.01 {
		t.Errorf("noisy forecasts cost %.1f, right ones %.1f", n, plain)
	}
}

// What stands in a forecast's spread survives being packed, to single precision.
func TestPacked(t *testing.T) {
	c := week(t, 1, Options{World: LiveRescale(), Policies: []string{"static"}})
	f := c.outlooks[0][100].band
	f.Levels, f.Quantiles = []float64{0.1, 0.9}, []plan.Values{{12345, 1.2345e-3}, {2.3456e9, 0}}
	f.Scenarios = []plan.Values{{1, 2}, {3, 4}}
	beyond := f
	f.Beyond = &beyond
	got := pack(f).unpack(plan.Needs{Spread: true, Beyond: true})
	if diff := cmp.Diff(f, got, cmp.Comparer(func(a, b float64) bool { return near(a, b, 1e-7) })); diff != "" {
		t.Errorf("(-packed +unpacked):\n%s", diff)
	}
	if bare := pack(f).unpack(plan.Needs{}); bare.Levels != nil || bare.Quantiles != nil || bare.Scenarios != nil || bare.Beyond != nil {
		t.Error("a policy that does not need the spread gets it")
	}
}
