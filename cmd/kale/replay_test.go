package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/replay"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/core/traffic"
	"github.com/kale-sched/kale/examples"
)

// quick are the flags with which a replay takes a second.
var quick = []string{"-days", "1", "-seeds", "2", "-forecast-every", "120", "-policies", "static,follow,kale"}

// A person with a CSV learns in one command what would have been saved: in text, as JSON and as a page that loads nothing.
func TestReplayCSV(t *testing.T) {
	t.Parallel()
	s := newShell(t).asShipped()
	dir := t.TempDir()
	trace, page := filepath.Join(dir, "my.csv"), filepath.Join(dir, "out.html")
	var csv strings.Builder
	csv.WriteString("time,requests\n")
	start := time.Date(2024, 5, 1, 0, 0, 0, 0, time.UTC)
	for i := range 4 * 288 {
		fmt.Fprintf(&csv, "%s,%.2f\n", start.Add(time.Duration(i)*5*time.Minute).Format(time.RFC3339), 50-40*math.Cos(float64(i)*2*math.Pi/288))
	}
	if err := os.WriteFile(trace, []byte(csv.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	r := s.must(append([]string{"replay", "-trace", trace, "-o", page, "-price", "2.5"}, quick...)...)
	first, rest, _ := strings.Cut(r.out, "\n")
	for _, want := range []string{`Kale's "kale" would have held`, "less than 28 workers all day (672)", "a day saved", "the cheapest schedule that there is holds"} {
		if !strings.Contains(first, want) {
			t.Errorf("the first line lacks %q: %s", want, first)
		}
	}
	for _, want := range []string{"bins of 5m", "peak 448k records/s", "oracle", "static [paper]", "follow [ours]", "Fluid bound"} {
		if !strings.Contains(rest, want) {
			t.Errorf("the text lacks %q:\n%s", want, rest)
		}
	}
	html, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<title>" + trace, "Kale&#39;s &#34;kale&#34; would have held", `id="data"`, "uPlot", "default-src 'none'", "follow [ours]"} {
		if !strings.Contains(string(html), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(string(html), "src=\"http") || strings.Contains(string(html), "href=\"http") {
		t.Error("the page loads something")
	}
}

// What was made of a file that is not as a trace should be is said by all that read one: below the figures, in JSON, and where there are no notes on standard error.
func TestTraceNotes(t *testing.T) {
	t.Parallel()
	s := newShell(t).asShipped()
	trace := filepath.Join(t.TempDir(), "my.csv")
	var csv strings.Builder
	csv.WriteString("time;count\n")
	for i := range 4 * 288 {
		fmt.Fprintf(&csv, "%d;%d,5\n", time.Date(2024, 5, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i)*5*time.Minute).UnixMilli(), 50+i%7)
	}
	if err := os.WriteFile(trace, []byte(csv.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	notes := []string{"my.csv: the timestamps are taken as milliseconds since 1970", `the column "count" is taken as events per second; where it counts the events of a bin, divide it by 300.`}
	replayed := append([]string{"replay", "-trace", trace}, quick...)
	for name, text := range map[string]string{
		"replay": s.must(replayed...).out, "replay -json": s.must(append(replayed, "-json")...).out,
		"forecast eval": s.must("forecast", "eval", "-trace", trace, "-origins", "5", "-horizon", "15m", "-season", "24h").err,
		"produce":       s.run("produce", "-brokers", "127.0.0.1:1", "-topic", "clicks", "-curve", trace).err,
	} {
		text = strings.ReplaceAll(strings.Join(strings.Fields(text), " "), `\"`, `"`)
		for _, want := range notes {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %q:\n%s", name, want, text)
			}
		}
	}
}

// A policy that is named twice is compared once, with spaces or without; zeros are taken as such; and the same input gives the same page.
func TestReplayTakesWhatIsGiven(t *testing.T) {
	t.Parallel()
	s := newShell(t).asShipped()
	dir := t.TempDir()
	var pages []string
	for _, name := range []string{"a.html", "b.html"} {
		page := filepath.Join(dir, name)
		out := s.must("replay", "-synthetic", "week", "-days", "1", "-seeds", "1", "-forecaster", "perfect", "-policies", " follow , static", "-policies", "follow", "-lag-weight", "0",
			"-violation-weight", "0", "-oracle-lag", "0", "-oracle-downtime", "0", "-json", "-o", page).out
		var got replay.Report
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Policies) != 2 || got.Policies[0].Name != "follow" || got.Policies[0].Cost != got.Policies[0].GPUHours+got.Policies[0].LeftCost || got.Weights != (replay.Weights{}) {
			t.Errorf("%d policies, weights %v: %+v", len(got.Policies), got.Weights, got.Policies[0])
		}
		if l := got.Limited; l == nil || l.AccumulatedLagMin > 1e-6 || l.DowntimeMin != 0 || len(l.Params) != 2 {
			t.Errorf("the oracle within limits of nothing: %+v", l)
		}
		pages = append(pages, read(t, page))
	}
	if pages[0] != pages[1] {
		t.Error("the same replay wrote two pages")
	}
}

// A job whose workers.min is its workers.max is replayed, under any policy, and told that there is nothing to scale.
func TestReplayOfPinnedWorkers(t *testing.T) {
	t.Parallel()
	s := newShell(t).asShipped()
	file := filepath.Join(t.TempDir(), "pinned.hcl")
	src := string(examples.Replay)
	for from, to := range map[string]string{"min    = 2": "min = 6", "max    = 28": "max = 6"} {
		if !strings.Contains(src, from) {
			t.Fatalf("the reference job has no %q:\n%s", from, src)
		}
		src = strings.Replace(src, from, to, 1)
	}
	src = regexp.MustCompile(`policy += "kale"`).ReplaceAllString(src, `policy = "cost"`)
	if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	r := s.must("replay", "-job", file, "-synthetic", "week", "-scale", "5", "-days", "1", "-seeds", "1", "-forecaster", "perfect")
	if !strings.Contains(r.out, ", 6 workers, ") || strings.Contains(r.out, "NaN") || strings.Contains(r.out, "Inf") {
		t.Errorf("%s", r.out)
	}
	if !strings.Contains(r.err, "Nothing to scale") {
		t.Errorf("it is not told that there is nothing to scale: %s", r.err)
	}
}

// What the params block of -job sets is replayed in the row "as in the job", and says so; with another policy's block nothing changes.
func TestReplayTakesTheJobsParams(t *testing.T) {
	t.Parallel()
	s := newShell(t).asShipped()
	dir := t.TempDir()
	policy := regexp.MustCompile(`policy += "kale"`)
	if !policy.Match(examples.Replay) {
		t.Fatal("the reference job has another policy")
	}
	rows := func(args ...string) (text string, of map[string]replay.Row) {
		t.Helper()
		args = append([]string{"replay", "-synthetic", "week", "-days", "1", "-seeds", "1", "-forecaster", "perfect"}, args...)
		var got replay.Report
		if err := json.Unmarshal([]byte(s.must(append(args, "-json")...).out), &got); err != nil {
			t.Fatal(err)
		}
		of = map[string]replay.Row{}
		for _, p := range got.Policies {
			of[fmt.Sprintf("%s %s %v", p.Name, p.Setting, p.AsInJob)] = p
		}
		return s.must(args...).out, of
	}
	_, plain := rows("-policies", "static,hpa,cost")
	for name, tt := range map[string]struct {
		params string
		check  func(text string, job replay.Row)
	}{
		"static": {"workers = 17", func(text string, job replay.Row) {
			if job.GPUHours != 17*24 || job.Params["workers"] != 17 || !strings.Contains(text, "static as in the job: workers=17") {
				t.Errorf("%v GPU-hours with %v, want 408 with 17 workers:\n%s", job.GPUHours, job.Params, text)
			}
		}},
		"hpa": {"target = 0.3\n demand = 0", func(_ string, job replay.Row) {
			if paper := plain["hpa paper false"]; job.GPUHours < 1.3*paper.GPUHours || job.Params["target"] != 0.3 {
				t.Errorf("with a target of 0.3 hpa holds %v GPU-hours, in the paper's setting %v", job.GPUHours, paper.GPUHours)
			}
		}},
		"cost": {"rescale = 500", func(text string, job replay.Row) {
			if standard := plain["cost default false"]; job.Rescales >= standard.Rescales || !strings.Contains(text, `by "cost" with its defaults it would have cost`) || !strings.Contains(text, "cost as in the job: rescale=500") {
				t.Errorf("where a rescale costs 500 there are %v, by default %v:\n%s", job.Rescales, standard.Rescales, text)
			}
		}},
	} {
		src := policy.ReplaceAllString(string(examples.Replay), fmt.Sprintf("policy = %q\n params {\n%s\n }\n", name, tt.params))
		text, got := rows("-job", writeIn(t, dir, name+".hcl", src), "-scale", "18", "-policies", name)
		job, ok := got[name+" default true"]
		if !ok || len(got) != 2 {
			t.Fatalf("%s: the rows are %v", name, got)
		}
		tt.check(text, job)
	}
	src := strings.Replace(string(examples.Replay), `"kale"`, `"kale"`+"\n params {\n multiple = 4\n }\n", 1)
	if _, got := rows("-job", writeIn(t, dir, "kale.hcl", src), "-policies", "static,hpa,cost"); len(got) != 3 || got["cost default false"].Cost != plain["cost default false"].Cost {
		t.Errorf("the params of kale changed others: %v", got)
	}
}

// The form of -json is that which the README describes.
func TestReplayJSON(t *testing.T) {
	t.Parallel()
	s := newShell(t).asShipped()
	args := append([]string{"replay", "-synthetic", "week", "-forecaster", "perfect", "-json"}, quick...)
	r := s.must(args...)
	var got struct {
		Trace         string
		Days          float64
		Seeds         int
		ShareAtMin    *float64 `json:"share_at_min"`
		Oracle        map[string]any
		FluidGPUHours float64 `json:"fluid_gpu_hours"`
		Policies      []map[string]any
	}
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatal(err)
	}
	if got.Trace != "synthetic week" || got.Days != 1 || got.Seeds != 2 || got.ShareAtMin == nil || !(got.FluidGPUHours > 300) || len(got.Policies) != 4 {
		t.Errorf("%+v", got)
	}
	for _, p := range append(got.Policies, got.Oracle) {
		for _, key := range []string{"name", "setting", "params", "violation_pct", "accumulated_lag_min", "downtime_min", "gpu_hours", "rescales", "lag_p50_s", "lag_p99_s",
			"lag_max_s", "cost", "cost_ratio_oracle", "auc_pct", "gpu_busy_pct", "gpu_allocated_pct"} {
			if _, ok := p[key]; !ok {
				t.Errorf("%v lacks %q", p["name"], key)
			}
		}
	}
	if c := got.Policies[0]["cost"].(float64); got.Policies[0]["name"] != "static" || math.Abs(c-672) > 1e-6 {
		t.Errorf("the first policy is %v and costs %v", got.Policies[0]["name"], c)
	}
	if again := s.must(args...); again.out != r.out {
		t.Error("the same command printed something else")
	}
}

// A fleet on one pool stands beside the same fleet in parts, in text and as JSON.
func TestReplayFleet(t *testing.T) {
	t.Parallel()
	s := newShell(t).asShipped()
	args := []string{"replay", "-synthetic", "week", "-jobs", "4", "-gpus", "30", "-priority", "1", "-forecast-noise", "0.05", "-policies", "follow,kale"}
	page := filepath.Join(t.TempDir(), "fleet.html")
	text := s.must(append(args[:3:3], "-jobs", "2", "-gpus", "15", "-priority", "1", "-policies", "follow", "-price", "2.5", "-o", page)...).out
	for _, line := range strings.Split(text, "\n") { // what the text says the page says too
		cells := strings.Fields(line)
		if n := len(cells); n > 0 && strings.HasPrefix(line, "  follow") && !strings.Contains(read(t, page), `<td class="n">`+strings.Join(cells[n-10:], `</td><td class="n">`)+"</td>") {
			t.Errorf("the page has no row %q", line)
		}
	}
	for _, want := range []string{"2 jobs on 15 GPUs for one day of synthetic week", ", 1 with priority", "each job has 7 GPUs", "follow, one pool", "follow, parts", "Peaks need 2 to 16 workers of 1 GPU: "} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	if !regexp.MustCompile(`GPU-h +money +cost +rescales`).MatchString(text) || !strings.Contains(text, "Money: what the GPU-hours cost at 2.5 each, a day.") {
		t.Errorf("it does not say what the GPUs cost:\n%s", text)
	}
	var got replay.FleetReport
	if err := json.Unmarshal([]byte(s.must(append(args, "-price", "2", "-json")...).out), &got); err != nil {
		t.Fatal(err)
	}
	for _, r := range got.Rows {
		if math.Abs(r.Money-2*r.GPUHours) > 1e-9*r.Money || r.Money == 0 {
			t.Errorf("%v GPU-hours at 2 each cost %v", r.GPUHours, r.Money)
		}
	}
	if len(got.Rows) != 4 || got.Seeds != 1 || got.GPUs != 30 {
		t.Fatalf("%+v", got)
	}
	for i := 0; i < 4; i += 2 {
		pool, parts := got.Rows[i], got.Rows[i+1]
		if pool.Partitioned || !parts.Partitioned || pool.Policy != parts.Policy || pool.MostHeld > 30 || pool.OverPct >= parts.OverPct || pool.GPUHours == 0 {
			t.Errorf("%+v beside %+v", pool, parts)
		}
	}
}

// A fleet is replayed for several days, with figures of one of them.
func TestReplayFleetOfSeveralDays(t *testing.T) {
	t.Parallel()
	s := newShell(t).asShipped()
	args := []string{"replay", "-synthetic", "week", "-jobs", "3", "-gpus", "30", "-policies", "follow"}
	var one, two replay.FleetReport
	for days, r := range map[string]*replay.FleetReport{"1": &one, "2": &two} {
		if err := json.Unmarshal([]byte(s.must(append(args, "-days", days, "-json")...).out), r); err != nil {
			t.Fatal(err)
		}
	}
	a, b := one.Rows[0], two.Rows[0]
	if one.Tick != 60 {
		t.Errorf("the reference job's tick is a minute, and the report says %g s", one.Tick)
	}
	if one.SpanHours != 24 || two.SpanHours != 48 || a == b || b.GPUHours < a.GPUHours/2 || b.GPUHours > 1.5*a.GPUHours || b.Rescales < a.Rescales/2 || b.Rescales > 1.5*a.Rescales {
		t.Errorf("a day, of %v h: %+v\na day of two, of %v h: %+v", one.SpanHours, a, two.SpanHours, b)
	}
	if r := s.must(append(args, "-days", "2")...); !strings.Contains(r.out, "3 jobs on 30 GPUs for 2d of synthetic week") || !strings.Contains(r.out, "Acc. lag, GPU-h, cost, rescales and preempted are of a day") {
		t.Errorf("the text is:\n%s", r.out)
	}
	r := s.must(append(args, "-days", "99")...)
	if want := "has no 99 whole days without a gap: the fleet is replayed for "; !strings.Contains(r.err, want) {
		t.Errorf("it says not %q but: %s", want, r.err)
	}
}

// A trace that is shorter than a day is not taken for one in silence.
func TestReplayFleetOfAShortTrace(t *testing.T) {
	t.Parallel()
	s := newShell(t).asShipped()
	trace := "timestamp,rate\n"
	for i := range 10 {
		trace += fmt.Sprintf("2026-01-01T00:%02d:00Z,%d\n", i, 1000+50*i)
	}
	file := writeIn(t, t.TempDir(), "short.csv", trace)
	args := []string{"replay", "-trace", file, "-jobs", "2", "-gpus", "16", "-policies", "follow"}
	fine := writeIn(t, t.TempDir(), "fine.csv", "timestamp,rate\n2026-01-01T00:00:00Z,1000\n2026-01-01T00:00:20Z,1010\n2026-01-01T00:00:40Z,1020\n2026-01-01T00:01:00Z,1000\n")
	if r := s.run("replay", "-trace", fine, "-jobs", "2"); r.code != exitFailed || !strings.Contains(r.err, "a fleet is replayed minute by minute: its bins of 20s have to be whole minutes") {
		t.Errorf("of bins of 20 s: code %d, %s", r.code, r.err)
	}
	if r := s.run(append(args, "-o", file)...); r.code == 0 || read(t, file) != trace {
		t.Errorf("the page was written over the trace: code %d\n%s", r.code, r.err)
	}
	r := s.must(args...)
	if want := "has no whole day without a gap: the fleet is replayed for 10m, and acc. lag, GPU-h and cost are scaled up to a day"; !strings.Contains(strings.Join(strings.Fields(r.err), " "), want) {
		t.Errorf("the warning lacks %q:\n%s", want, r.err)
	}
	for _, want := range []string{"2 jobs on 16 GPUs for 10m of ", "acc. lag, GPU-h and cost are scaled up to one", "of the jobs need more than their part"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the text lacks %q:\n%s", want, r.out)
		}
	}
	var got replay.FleetReport
	if err := json.Unmarshal([]byte(s.must(append(args, "-json")...).out), &got); err != nil || got.SpanHours < 0.16 || got.SpanHours > 0.17 || got.PeakGPUs < 4 {
		t.Errorf("%v, %+v", err, got)
	}
}

// Every flag that a fleet does not go by has a reason, and none that it goes by.
func TestFleetlessFlags(t *testing.T) {
	replayCommand(newApp(nil, io.Discard, io.Discard)).Flags().VisitAll(func(f *pflag.Flag) {
		if goes := slices.Contains(fleetFlags, f.Name); goes == (fleetless[f.Name] != "") {
			t.Errorf("-%s: a fleet goes by it: %v, and the reason is %q", f.Name, goes, fleetless[f.Name])
		}
	})
}

// What -json prints has keys of one kind.
func TestReplayKeys(t *testing.T) {
	t.Parallel()
	s := newShell(t).asShipped()
	for _, args := range [][]string{append([]string{"-days", "2", "-sweep"}, quick[2:]...), {"-jobs", "2", "-policies", "follow"}} {
		var got any
		out := s.must(append([]string{"replay", "-synthetic", "week", "-json"}, args...)...).out
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if odd := oddKeys(got); len(odd) > 0 {
			t.Errorf("replay %s has the keys %q", quoted(args), odd)
		}
	}
}

// oddKeys are those of a JSON value that are not in snake_case.
func oddKeys(v any) (odd []string) {
	switch v := v.(type) {
	case map[string]any:
		for key, in := range v {
			if strings.ToLower(key) != key {
				odd = append(odd, key)
			}
			odd = append(odd, oddKeys(in)...)
		}
	case []any:
		for _, in := range v {
			odd = append(odd, oddKeys(in)...)
		}
	}
	return odd
}

// Mistakes are told where they are.
func TestReplayMistakes(t *testing.T) {
	s := newShell(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitUsage, "-trace is missing"},
		{[]string{"-trace", file("empty.csv", "")}, exitFailed, "empty.csv:1:1: no row"},
		{[]string{"-trace", file("one.csv", "timestamp,rate\n2024-05-01T00:00:00Z,1\n")}, exitFailed, "one.csv:2:1: 1 row;"},
		{[]string{"-trace", file("bad.csv", "timestamp,rate\n2024-05-01T00:00:00Z,1\n2024-05-01T00:01:00Z,x\n")}, exitFailed, `bad.csv:3:22: rate "x"`},
		{[]string{"-trace", file("minus.csv", "timestamp,rate\n2024-05-01T00:00:00Z,-1\n")}, exitFailed, `minus.csv:2:22: rate "-1"`},
		{[]string{"-trace", file("huge.csv", "timestamp,rate\n2024-05-01T00:00:00Z,1\n2024-05-01T00:01:00Z,1e300\n")}, exitFailed, `rate "1e300": want at most 1e+12 events per second`},
		{[]string{"-trace", file("zero.csv", "timestamp,rate\n2024-05-01T00:00:00Z,0\n2024-05-01T00:01:00Z,0\n")}, exitFailed, "cannot be scaled"},
		{[]string{"-trace", filepath.Join(dir, "absent.csv")}, exitFailed, "no such file"},
		{[]string{"-trace", "kafka://nowhere"}, exitUsage, "want kafka://BROKER"},
		{[]string{"-synthetic", "year"}, exitUsage, "want week"},
		{[]string{"-synthetic", "week", "-trace", "x.csv"}, exitUsage, "give one of them"},
		{[]string{"-synthetic", "week", "-policies", "hpo"}, exitUsage, `Did you mean "hpa"?`},
		{[]string{"-synthetic", "week", "-rescale", "8m..5m"}, exitUsage, "want live, or how long"},
		{[]string{"-synthetic", "week", "-rescale", "30h..40h"}, exitUsage, "want live, or how long training stops, at most 24h: 6m"},
		{[]string{"-synthetic", "week", "-days", "-1"}, exitUsage, "-days -1: want 1 to 3,650"},
		{[]string{"-synthetic", "week", "-days", "0"}, exitUsage, "-days 0: want 1 to 3,650"},
		{[]string{"-synthetic", "week", "-forecast-every", "0"}, exitUsage, "-forecast-every 0: want 1 to"},
		{[]string{"-synthetic", "week", "-forecast-bias", "-5"}, exitUsage, "-forecast-bias -5: want -0.99 to 10"},
		{[]string{"-synthetic", "week", "-forecast-noise", "5"}, exitUsage, "-forecast-noise 5: want 0 to 3\n"},
		{[]string{"-synthetic", "week", "-scale", "0"}, exitUsage, "-scale 0: want a number above 0"},
		{[]string{"-synthetic", "week", "-scale", "-1"}, exitUsage, "-scale -1: want a number above 0"},
		{[]string{"-synthetic", "week", "-scale", "NaN"}, exitUsage, "-scale NaN: want a number above 0"},
		{[]string{"-synthetic", "week", "-price", "1e308"}, exitUsage, "-price 1e+308: want 0 to"},
		{[]string{"-synthetic", "week", "-lag-weight", "inf"}, exitUsage, "-lag-weight +Inf: want 0 to"},
		{[]string{"-synthetic", "week", "-var", "x=1"}, exitUsage, "say with -job which"},
		{[]string{"-synthetic", "week", "-seeds", "-3"}, exitUsage, "-seeds -3: want 1 to 10,000"},
		{[]string{"-synthetic", "week", "-seeds", "0"}, exitUsage, "-seeds 0: want 1 to 10,000"},
		{[]string{"-synthetic", "week", "-gpus", "8"}, exitUsage, "say with -jobs how many"},
		{[]string{"-synthetic", "week", "-jobs", "0"}, exitUsage, "-jobs 0: want 1 to 10,000"},
		{[]string{"-synthetic", "week", "-jobs", "-2"}, exitUsage, "-jobs -2: want 1 to 10,000"},
		{[]string{"-synthetic", "week", "-policies", "static", "-forecaster", "nosuch"}, exitUsage, `-forecaster "nosuch": want seasonal, ensemble or perfect, or a model's .onnx file`},
		{[]string{"-synthetic", "week", "-policies", "static", "-forecaster", "seasnal"}, exitUsage, `Did you mean "seasonal"?`},
		{[]string{"-synthetic", "week", "-policies", "static", "-forecaster", "nosuch.onnx"}, exitFailed, "-forecaster: nosuch.onnx does not exist: train one with kale forecast train"},
		{[]string{"-synthetic", "week", "-policies", "static", "-forecaster", "nosuch.onnx"}, exitFailed, "-forecaster: nosuch.onnx does not exist: train one with kale forecast train"},
		{[]string{"-synthetic", "week", "-jobs", "100000"}, exitUsage, "-jobs 100000: want 1 to 10,000"},
		{[]string{"-trace", "nosuch.csv", "-jobs", "0", "-policies", "nosuch", "-seeds", "0", "-sweep"}, exitUsage, "-jobs 0: want 1 to 10,000"}, // whatever else there is
		{[]string{"-synthetic", "week", "-policies", ""}, exitUsage, "-policies names none: leave it out for all, or name some of static, madu, "},
		{[]string{"-synthetic", "week", "-jobs", "4", "-gpus", "7"}, exitFailed, "so that the least is 8 GPUs"},
		{[]string{"-synthetic", "week", "-jobs", "4", "-seeds", "0"}, exitUsage, "-seeds 0: want 1 to 10,000"},
		{[]string{"-synthetic", "week", "-jobs", "4", "-sweep"}, exitUsage, "-sweep does not go with -jobs: a fleet is replayed with each policy in one setting, the job's or its defaults; name several with -policies. Leave -sweep or -jobs out"},
		{[]string{"-synthetic", "week", "-jobs", "4", "-scale", "8"}, exitUsage, "-scale does not go with -jobs: the peak of each of a fleet's jobs is drawn, what 2 to 16 workers train, however high the trace's is; -gpus makes the pool tighter"},
		{[]string{"-synthetic", "week", "-jobs", "5000", "-days", "3"}, exitFailed, "5,000 jobs for 3 days: want 2 days at most"},
		{[]string{"-synthetic", "week", "-jobs", "4", "-rescale", "5m..8m"}, exitUsage, "a fleet is rescaled live"},
		{[]string{"-synthetic", "week", "-jobs", "4", "-policies", "hpo"}, exitUsage, `Did you mean "hpa"?`},
	} {
		r := s.run(append([]string{"replay"}, tt.args...)...)
		if r.code != tt.code || !strings.Contains(r.err, tt.want) {
			t.Errorf("replay %s: code %d, want %d and %q:\n%s", strings.Join(tt.args, " "), r.code, tt.code, tt.want, r.err)
		}
	}
}

// Whoever asks for more forecasts than there is patience for is told how to have fewer.
func TestForecastsToBeMade(t *testing.T) {
	j, _, diags := job.Parse(examples.Replay, "replay.hcl", job.Options{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	j.Forecast.Interval = time.Second
	course, err := replay.NewCourse(replay.SyntheticWeek(1), replay.CourseOptions{Days: 1, Interval: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	f := replayFlags{forecastEvery: 1}
	if n := course.Forecasts(1); n != 86_400 || f.fewer(j, course, n) != 60 {
		t.Errorf("%d forecasts, and advised is one every %d", n, f.fewer(j, course, n))
	}
}

// The arrivals of a topic are a trace.
func TestReplayTopic(t *testing.T) {
	s := newShell(t)
	b := s.start("broker", "-data", filepath.Join(t.TempDir(), "data"), "-listen", "127.0.0.1:0", "-topic", "clicks:2", "-json")
	b.eventually("its address", func() bool { return strings.HasSuffix(b.out.String(), "\n") })
	var ready struct{ Addr string }
	if err := json.Unmarshal([]byte(b.out.String()), &ready); err != nil {
		t.Fatal(err)
	}
	s.must("produce", "-brokers", ready.Addr, "-topic", "clicks", "-history", "20m", "-peak", "40", "-duration", "0")
	r := s.must("replay", "-trace", "kafka://"+ready.Addr+"/clicks", "-days", "1", "-seeds", "1", "-policies", "static,follow")
	if !strings.Contains(r.out, "topic clicks: ") || !strings.Contains(r.out, "m of arrivals were replayed: figures a day are as if it went on like that for one") {
		t.Errorf("%s", r.out)
	}
	file := filepath.Join(t.TempDir(), "clicks.hcl") // its bins are of seconds: what is asked of the brokers has a bound
	s.must("init", "-brokers", ready.Addr, "-topic", "clicks", "-o", file)
	if r := s.must("replay", "-trace", "kafka://"+ready.Addr+"/clicks", "-job", file, "-seeds", "1", "-policies", "static,follow"); !strings.Contains(r.out, "topic clicks: ") {
		t.Errorf("%s", r.out)
	} else if !strings.Contains(r.err, "200,000 steps of forecast.interval") {
		t.Errorf("it does not say how far back it reads:\n%s", r.err)
	} else if strings.Contains(r.out, "NaN") || strings.Contains(r.out, "Inf") {
		t.Errorf("what workers.min does all day, with nothing above it, is compared:\n%s", r.out)
	}
	var all struct{ Policies []map[string]any }
	r = s.must("replay", "-trace", "kafka://"+ready.Addr+"/clicks", "-job", file, "-seeds", "1", "-policies", "static,follow", "-json")
	if err := json.Unmarshal([]byte(r.out), &all); err != nil || len(all.Policies) == 0 {
		t.Errorf("%v:\n%s", err, r.out)
	}
	b.interrupt()
	b.end()
}

// Of a topic whose records bear the time at which the broker took them in, that is said to be why it has no past; of one without records it is not.
func TestNoHistoryOfLogAppendTime(t *testing.T) {
	s := newShell(t)
	stamped := map[string]string{"message.timestamp.type": "LogAppendTime"} // the embedded broker tells it, and finds records by their own time all the same
	at := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 1, Config: stamped}, stream.TopicSpec{Name: "empty", Partitions: 1, Config: stamped}, stream.TopicSpec{Name: "own", Partitions: 1})
	const asked = "is anything written to it, with timestamps of then?"
	for topic, want := range map[string]string{
		"clicks": " records, and its message.timestamp.type is LogAppendTime, so that these bear the time at which the broker took them in, which is just now. Give it time to see arrivals; " +
			"or, for records that are written with timestamps of the past, set message.timestamp.type=CreateTime and write them once more",
		"empty": asked,
		"own":   asked,
	} {
		if topic != "empty" {
			s.must("produce", "-brokers", at, "-topic", topic, "-history", "20m", "-peak", "1", "-duration", "0")
		}
		cl, err := traffic.NewClient(traffic.ClientOptions{Brokers: []string{at}, Topic: topic})
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		info, err := cl.Topic(t.Context())
		if got := noHistory(t.Context(), cl, info); err != nil || !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q, %v; want %q", topic, got, err, want)
		}
	}
	if r := s.run("replay", "-trace", "kafka://"+at+"/empty"); r.code != exitFailed || !strings.Contains(r.err, `topic "empty" has no arrival history in the last 28d: `+asked) {
		t.Errorf("of an empty topic: %+v", r)
	}
}

// fleeting is a context that ends when it has been asked so often whether it has.
type fleeting struct {
	context.Context
	left atomic.Int64
}

func (f *fleeting) Err() error {
	if f.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// Whoever interrupts a replay is told how far it was; of a fleet, the rows that were whole by then are printed, and written into the page, which says that it is partial.
func TestReplayInterrupted(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	interrupted := func(after int64, args ...string) result {
		ctx := &fleeting{Context: t.Context()}
		ctx.left.Store(after)
		var out, errs buffer
		code := s.app(&out, &errs).run(ctx, append([]string{"replay", "-synthetic", "week"}, args...))
		return result{code, out.String(), errs.String()}
	}
	fleet := []string{"-jobs", "2", "-policies", "follow,static"} // a round a minute
	r := interrupted(700, fleet...)
	if want := "kale: replay: interrupted, so that there are no figures; it was at fleet 1 of 4 (follow, one pool), "; r.code != exitFailed || r.out != "" || !strings.Contains(r.err, want) || !strings.Contains(r.err, " of 1440\n") {
		t.Errorf("in the first fleet: code %d, %q, %s", r.code, r.out, r.err)
	}
	r = interrupted(2000, append(fleet, "-json")...)
	var got replay.FleetReport
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || !got.Partial || len(got.Rows) != 1 || got.Planned != 4 || got.Rows[0].GPUHours == 0 {
		t.Errorf("in the second fleet: %v, %+v", err, got)
	}
	if want := "kale: replay: interrupted: what is printed is 1 of 4 rows; it was at fleet 2 of 4 (follow, parts), "; r.code != exitFailed || !strings.Contains(r.err, want) {
		t.Errorf("in the second fleet: code %d, %s", r.code, r.err)
	}
	if r = interrupted(2000, fleet...); r.code != exitFailed || !strings.Contains(r.out, "PARTIAL: it was interrupted when 1 of 4 rows were whole") || !strings.Contains(r.out, "follow, one pool") {
		t.Errorf("in the second fleet: code %d, %s", r.code, r.out)
	}
	page := filepath.Join(t.TempDir(), "page.html")
	r = interrupted(2000, append(fleet, "-o", page)...)
	const cut = "PARTIAL: it was interrupted when 1 of 4 rows were whole"
	if want := "kale: replay: interrupted: what is printed, and in " + page + ", is 1 of 4 rows; it was at fleet 2 of 4"; r.code != exitFailed || !strings.Contains(r.err, want) || !strings.Contains(r.out, cut) {
		t.Errorf("with a page: code %d, %s", r.code, r.err)
	}
	if html := read(t, page); !strings.Contains(html, `<p class="problem">`+cut+"</p>") || !strings.Contains(html, "<title>PARTIAL · ") || strings.Count(html, "<tr") != 2 {
		t.Errorf("the page has %d rows, or is not marked", strings.Count(html, "<tr"))
	}
	none := filepath.Join(t.TempDir(), "none.html")
	r = interrupted(8, "-policies", "static", "-days", "1", "-seeds", "20", "-o", none)
	if want := "kale: replay: interrupted, so that there are no figures, and " + none + " is not written; it was at "; r.code != exitFailed || !strings.Contains(r.err, want) || exists(none) {
		t.Errorf("one job, with a page: code %d, %s", r.code, r.err)
	}
	r = interrupted(8, "-policies", "static", "-days", "1", "-seeds", "20")
	if want := "kale: replay: interrupted, so that there are no figures; it was at replaying, "; r.code != exitFailed || r.out != "" || !strings.Contains(r.err, want) || !strings.Contains(r.err, " of 20\n") {
		t.Errorf("one job: code %d, %q, %s", r.code, r.out, r.err)
	}
}
