package main

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/pool"
)

// On no terminal, what is long of one job does not widen the lines of the others.
func TestLongOverviewLineWidensNoOther(t *testing.T) {
	long := strings.Repeat("a long problem ", 20) + "ends"
	got := overviewText([]jobState{{Job: "a", State: "running", Says: "well", File: "a.hcl"}, {Job: "b", State: "stuck", Says: long, File: "b.hcl"}, {Job: "c", State: "stopped", Says: "it was stopped", File: "c.hcl"}}, 0)
	want := "a  running  well            a.hcl\nb  stuck    " + long + "  b.hcl\nc  stopped  it was stopped  c.hcl\n"
	if got != want {
		t.Errorf("it is\n%s\nwant\n%s", got, want)
	}
}

// Why a job cannot start is a problem too, and is told once.
func TestStatusTellsACauseOnce(t *testing.T) {
	for _, problem := range []string{"worker-0-g1 is not started: no such image", "worker-0-g1 is not started: no such image; it is tried again"} {
		v := &core.View{Job: "ctr", State: core.StateCannotStart, Mode: "live", Cause: "worker-0-g1 is not started: no such image", Problems: []string{"another", problem}}
		var b strings.Builder
		if err := writeStatus(&b, v, 0); err != nil {
			t.Fatal(err)
		}
		if strings.Count(b.String(), "no such image") != 1 || !strings.Contains(b.String(), "another") {
			t.Errorf("it says\n%s", b.String())
		}
	}
}

func TestWriteStatus(t *testing.T) {
	now := time.Date(2026, 1, 31, 6, 0, 0, 0, time.Local)
	auc, lag, rate := 0.71234, 1.5, 812.3
	v := &core.View{
		Job: "ctr", State: core.StateRunning, Waits: "worker-2-g1 to join", Mode: "live", Now: now, Started: now.Add(-time.Hour), MaxLag: 20 * time.Minute, Min: 1, Max: 6, Model: "async θ=(0.00125, 0, 0)", ModelBasis: plan.Basis{Prior: "a profile on one T4"},
		Sample: core.Sample{Rate: &rate, Trained: new(790.), Lag: &lag, LagRecords: new(int64(1234)), Target: 3, Running: new(2), Pending: new(1), Capacity: new(1600.), Busy: new(0.84),
			Forecast: &core.Band{Mean: 900, Lower: 850, Upper: 950}},
		Forecast: plan.Forecast{Source: "seasonal", Trusted: true, Calibrated: true, Outcomes: 231}, Trained: new(uint64(123456)), AUC: &auc, Dead: new(uint64(2)), Lost: new(uint64), Emulated: true,
		Workers: []core.WorkerView{{ID: "worker-0-g1", Backend: "running", Member: "ready", Partitions: []int32{0, 1, 2}, Rate: new(400.), Busy: new(0.8), Queue: new(int64), Node: "a"}},
		Servers: []core.ServerView{{ID: "ps-0-g1", Backend: "running", Up: new(true), Rows: new(uint64(5000)), LastSnapshot: now.Add(-9 * time.Second)},
			{ID: "ps-0-g2", Backend: "starting", Beside: true, Reason: "it holds its place until the generation before it has ended"},
			{ID: "ps-1-g1", Index: 1, Backend: "failed", Replaced: true, Reason: "ps-1-g3 replaces it; its node failed"},
			{ID: "ps-1-g2", Index: 1, Backend: "stopping", Replaced: true, Reason: "ps-1-g3 replaces it; released, forced"},
			{ID: "ps-1-g3", Index: 1, Backend: "starting"},
			{ID: "ps-2-g1", Index: 2, Backend: "failed", Replaced: true, Reason: "ps-2-g2 replaces it; its node failed"}},
		Problems: []string{"partition 3: stuck"},
		Pool: &core.PoolShare{Pool: "main", Size: 4, Held: 4, Share: pool.Share{Job: pool.Job{Name: "ctr", Ask: 3, Staying: 3, Guarantee: 1}, Goal: 1, Gives: 2},
			Why: "asks for 3, is guaranteed 1, holds 3; gets 1 of the pool's 4, beside ads of higher priority; gives 2 back for ads (priority 10)"},
	}
	var out buffer
	if err := writeStatus(&out, v, 0); err != nil {
		t.Fatal(err)
	}
	golden(t, "status", out.String())
	// What is unknown is said so, and never shown as zero.
	out = buffer{}
	if err := writeStatus(&out, &core.View{Job: "ctr", Mode: "live", Now: now, Started: now, MaxLag: time.Minute, State: core.StateUnknown, Sample: core.Sample{Unknown: "the chief does not answer"},
		Servers: []core.ServerView{{ID: "ps-0-g1", Backend: "running"}}}, 0); err != nil {
		t.Fatal(err)
	}
	golden(t, "status_unknown", out.String())
}

// While the cluster does not tell what runs, it is said how old the picture is.
func TestStatusSaysHowOldThePictureIs(t *testing.T) {
	now := time.Date(2026, 1, 31, 6, 0, 0, 0, time.Local)
	for want, listed := range map[string]time.Time{
		"cluster     last told of all processes 1m30s ago, at 05:58:30\n": now.Add(-90 * time.Second), "cluster     has not told of all processes since the scheduler is up\n": {},
	} {
		var b strings.Builder
		v := &core.View{Job: "ctr", State: core.StateRunning, Mode: "live", Now: now, Started: now, Unlisted: "the backend does not answer", Listed: listed}
		if err := writeStatus(&b, v, 0); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) {
			t.Errorf("it says\n%s\nwant %q", b.String(), want)
		}
	}
}

// The wait in the cluster's queue is told apart from the join time, which does not contain it.
func TestStatusTellsTheQueueApart(t *testing.T) {
	now := time.Date(2026, 1, 31, 6, 0, 0, 0, time.Local)
	v := &core.View{Job: "ctr", State: core.StateRunning, Mode: "live", Now: now, Started: now, Join: plan.Measured{Value: 70 * time.Second, Samples: 3, Queue: time.Minute},
		LastJoin: &core.Join{Worker: "worker-2", Placed: 42 * time.Second, Queued: 40 * time.Second, Started: 5 * time.Second}}
	var b strings.Builder
	if err := writeStatus(&b, v, 0); err != nil {
		t.Fatal(err)
	}
	const want = "join time   10s, the median of 3 rescales, and before it 1m in the cluster's queue; the last was worker-2 in 47s: placed 42s (40s of it in the cluster's queue), started 5s"
	if !strings.Contains(b.String(), want) {
		t.Errorf("it says\n%s\nwant %q", b.String(), want)
	}
}

// No line of what people see is wider than their terminal, and no word of it is cut: tables fold, and leave out what matters least.
func TestWidths(t *testing.T) {
	now := time.Date(2026, 1, 31, 6, 0, 0, 0, time.Local)
	lag, rate := 1.5, 812.3
	many := make([]int32, 0, 40)
	for p := range int32(40) {
		many = append(many, 3*p)
	}
	why := "scale out 2 → 3: the forecast's 90 % quantile needs 1,020 records/s within the lead of 41s, and 2 workers train 860"
	v := &core.View{
		Job: "ctr", State: core.StateRunning, Mode: "live", Now: now, Started: now.Add(-time.Hour), MaxLag: 20 * time.Minute, Min: 1, Max: 6, Model: "async θ=(0.00125, 0, 0)",
		ModelBasis: plan.Basis{Prior: "a profile on one T4"},
		Sample: core.Sample{Rate: &rate, Trained: new(790.), Lag: &lag, LagRecords: new(int64(1234)), Target: 3, Running: new(2), Pending: new(1), Capacity: new(1600.), Busy: new(0.84),
			Forecast: &core.Band{Mean: 900, Lower: 850, Upper: 950}},
		Forecast: plan.Forecast{Source: "seasonal", Trusted: true, Calibrated: true, Outcomes: 231}, Trained: new(uint64(123456)),
		Decision: &core.Record{Decision: plan.Decision{At: now, Kind: plan.KindOut, Current: 2, Target: 3, Reason: why}},
		Workers: []core.WorkerView{
			{ID: "worker-0-g1", Backend: "running", Member: "ready", Partitions: many, Rate: new(400.), Busy: new(0.8), Queue: new(int64(1210)), Node: "gpu-node-12", Devices: []string{"GPU-5", "GPU-6"}},
			{ID: "worker-1-g12", Backend: "pending", Member: "unknown", Restarts: 2, Reason: "waits in the queue of partition gpu: Resources (16 GPUs of type h200 are asked for, and 3 are idle)"},
		},
		Servers:  []core.ServerView{{ID: "ps-0-g1", Backend: "running", Up: new(true), Rows: new(uint64(5000000)), LastSnapshot: now.Add(-9 * time.Second), Node: "gpu-node-12"}},
		Problems: []string{"worker 1 does not stay up: its last end was exit code 1, after 2 restarts; the log ends: [kale] the model's graph cannot be built"},
	}
	states := []jobState{
		{Job: "ctr", State: core.StateRunning, Says: headline(v), File: "/home/somebody/jobs/ctr.hcl"},
		{Job: "recommendations", State: core.StateUnknown, Says: "it was not stopped, its chief does not answer, and neither does the backend", File: "/home/somebody/jobs/recommendations.hcl"},
	}
	s := newShell(t)
	root := rootCommand(s.app(&buffer{}, &buffer{}))
	for _, width := range []int{60, 80, 120} {
		var status strings.Builder
		if err := writeStatus(&status, v, width); err != nil {
			t.Fatal(err)
		}
		replay, _, err := root.Find([]string{"replay"})
		if err != nil {
			t.Fatal(err)
		}
		texts := map[string]string{
			"status": status.String(), "list": overviewText(states, width), "help": helpText(root, width), "help_replay": helpText(replay, width),
			"error": folded("kale: no scheduler is running for job \"recommendations\": start it with kale run -state-dir /srv/kale recommendations\n", width),
		}
		for name, text := range texts {
			golden(t, fmt.Sprintf("width/%s_%d", name, width), text)
		}
		texts["reference"] = reflowed(job.Reference(width), width)
		for name, text := range texts {
			for line := range strings.Lines(text) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width && len(strings.Fields(line)) > 1 {
					t.Errorf("%s at %d columns has a line of %d: %q", name, width, n, line)
				}
			}
		}
		all := strings.Fields(status.String())
		for _, word := range append(strings.Fields(why), strings.Fields(v.Problems[0]+" "+v.Workers[1].Reason)...) {
			if !slices.Contains(all, word) {
				t.Errorf("status at %d columns lacks the word %q:\n%s", width, word, status.String())
			}
		}
	}
	if got := folded(strings.Repeat("a long line ", 30), 0); got != strings.Repeat("a long line ", 30) {
		t.Errorf("where there is no terminal: %q", got)
	}
}

// What is not known is not in the JSON: a history that begins days before the first record is no list of nulls.
func TestStatusJSONLeavesOutTheUnknown(t *testing.T) {
	now := time.Date(2026, 1, 31, 6, 0, 0, 0, time.UTC)
	long := plan.Series{Start: now.Add(-2300 * time.Minute), Step: time.Minute, Values: make(plan.Values, 2300)}
	for i := range long.Values {
		long.Values[i] = math.NaN()
	}
	long.Values[2297], long.Values[2299] = 7, 9 // between two that are known, one that is not stays
	r := &core.Record{Decision: plan.Decision{At: now}, Observation: plan.Observation{Now: now, Rates: long}}
	v := &core.View{Job: "ctr", Now: now, History: long, Decision: r, LastChange: r}
	var b strings.Builder
	if err := printJSON(&b, trimmed(v)); err != nil {
		t.Fatal(err)
	}
	var back struct {
		History  struct{ Start time.Time }
		Decision struct {
			Observation struct{ Rates struct{ Values []*float64 } }
		}
	}
	if err := json.Unmarshal([]byte(b.String()), &back); err != nil {
		t.Fatal(err)
	}
	if got := back.Decision.Observation.Rates.Values; len(got) != 3 || *got[0] != 7 || got[1] != nil || *got[2] != 9 || !back.History.Start.Equal(now.Add(-3*time.Minute)) {
		t.Errorf("rates %v from %v", got, back.History.Start)
	}
	if n := strings.Count(b.String(), "null"); n > 3+4 { // the gap, three times; two empty decisions
		t.Errorf("%d nulls: %s", n, b.String())
	}
	if len(long.Values) != 2300 || len(r.Observation.Rates.Values) != 2300 {
		t.Error("what is printed was cut out of what is kept")
	}
	long.Values[2297], long.Values[2299] = math.NaN(), math.NaN()
	b.Reset()
	if err := printJSON(&b, trimmed(v)); err != nil || strings.Contains(b.String(), `"history"`) {
		t.Errorf("where nothing is known: %v %s", err, b.String())
	}
}

// kale explain shows what else happened since the first decision that it shows, and nothing older.
func TestNotesSinceTheFirstDecision(t *testing.T) {
	now := time.Date(2026, 1, 31, 6, 0, 0, 0, time.UTC)
	notes := []core.Note{{At: now.Add(-time.Hour), Text: "old"}, {At: now, Text: "at once"}, {At: now.Add(time.Minute), Text: "after"}}
	records := []core.Record{{Decision: plan.Decision{At: now}}, {Decision: plan.Decision{At: now.Add(time.Second)}}}
	if got := since(notes, records); len(got) != 2 || got[0].Text != "at once" || len(notes) != 3 || notes[0].Text != "old" {
		t.Errorf("%v of %v", got, notes)
	}
	if got := since(notes, nil); len(got) != 3 {
		t.Errorf("without a decision: %v", got)
	}
}

// A rescale that is under way has no end yet, also for a program.
func TestRescaleUnderWayHasNoEnd(t *testing.T) {
	var b strings.Builder
	if err := printJSON(&b, trimmed(&core.View{Job: "ctr", Rescale: &core.Rescale{From: 1, To: 2}})); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); !strings.Contains(text, `"to":2`) || strings.Contains(text, `"done"`) {
		t.Errorf("%s", text)
	}
}

// A line does not end between a number and its percent sign.
func TestPercentStaysWithItsNumber(t *testing.T) {
	for width := 24; width < 60; width++ {
		if text := folded("the recent error of seasonal is 10.1 % over 646 forecasts of 120 bins; at most 66 %, or (7 %) of it\n", width); strings.Contains(text, "\n%") || strings.Count(text, "%") != 3 {
			t.Errorf("%d:\n%s", width, text)
		}
	}
}

// The line of a job in the list says what its pool gives it, where that is not what it asks for.
func TestThePoolShowsInTheList(t *testing.T) {
	v := &core.View{Min: 1, Max: 4, Sample: core.Sample{Running: new(1), Trained: new(0.), Target: 1}, Pool: &core.PoolShare{Pool: "main", Share: pool.Share{Job: pool.Job{Ask: 3, Limit: 4}, Goal: 1}}}
	if got, want := headline(v), "1 worker of 1–4 ready, lag unknown, arrivals unknown, 0 trained, gets 1 of 3 from pool main"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	v.Pool.Type = "l4"
	if got, want := headline(v), "1 worker of 1–4 ready, lag unknown, arrivals unknown, 0 trained, gets 1 of 3 from pool main (l4)"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	v.Pool.Type, v.Pool.Goal = "", 3
	if got, want := headline(v), "1 worker of 1–4 ready, lag unknown, arrivals unknown, 0 trained, pool main"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The list and the picture of a job say the same of what is not known, and what is known beside it: a stopped chief hides what is trained, a stopped broker what arrives.
func TestTheListSaysWhatIsUnknown(t *testing.T) {
	now := time.Date(2026, 1, 31, 6, 0, 0, 0, time.Local)
	for want, s := range map[string]core.Sample{
		"3 workers of 1–4 wanted, how many train is unknown, lag unknown, 175 records/s arrive|rate 175 records/s arrive, how many are trained is unknown|workers 3 wanted (1 to 4); how many train is unknown": {
			Rate: new(175.), Target: 3, Held: new(3), Unknown: "the chief does not answer"},
		"3 workers of 1–4 ready, lag unknown, arrivals unknown, 0 trained|rate arrivals unknown, 0 records/s are trained|workers 3 ready of 3 wanted (1 to 4), 0 starting, 0 leaving; capacity 2,400 records/s, 0 % busy": {
			Running: new(3), Pending: new(int), Trained: new(0.), Busy: new(0.), Capacity: new(2400.), Target: 3, Unknown: "Kafka's end offsets are unknown"},
		"2 workers of 1–4 train (target 3), lag unknown, 175 records/s arrive, 170 trained|rate 175 records/s arrive, 170 are trained|workers 2 train of 3 wanted (1 to 4), how many start is unknown, 0 leaving; capacity 1,600 records/s, 11 % busy": {
			Running: new(2), Rate: new(175.), Trained: new(170.), Busy: new(0.11), Capacity: new(1600.), Target: 3, Unknown: "the backend does not answer"},
	} {
		v := &core.View{Job: "ctr", State: core.StateUnknown, Mode: "live", Now: now, Started: now, Min: 1, Max: 4, Sample: s}
		var b strings.Builder
		if err := writeStatus(&b, v, 0); err != nil {
			t.Fatal(err)
		}
		got := headline(v)
		for line := range strings.Lines(b.String()) {
			if name, says, _ := strings.Cut(strings.TrimSpace(line), " "); name == "rate" || name == "workers" {
				got += "|" + name + " " + strings.TrimSpace(says)
			}
		}
		if got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

// One record waits, and two wait.
func TestHowManyWait(t *testing.T) {
	for n, want := range map[int64]string{0: ", 0 records wait", 1: ", 1 record waits", 1200: ", 1,200 records wait"} {
		if got := waiting(core.Sample{LagRecords: &n}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// While a job is paused, nobody is said to train.
func TestPausedTrainsNothing(t *testing.T) {
	v := &core.View{Job: "ctr", State: core.StatePaused, Min: 1, Max: 4, Manual: plan.Manual{Paused: true}, Sample: core.Sample{Running: new(3), Pending: new(int), Target: 3, Trained: new(126.), Capacity: new(2400.), Busy: new(0.)}}
	if got, want := headline(v), "3 workers of 1–4 ready, lag unknown, arrivals unknown"; got != want { // the state stands before it
		t.Errorf("%q, want %q", got, want)
	}
	stuck := *v
	stuck.State = core.StateStuck
	if got, want := headline(&stuck), "3 workers of 1–4 ready, paused, lag unknown, arrivals unknown"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := stateWords(v), "paused since before this scheduler came (nothing is trained"; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	v.PausedSince = time.Date(2026, 1, 31, 6, 0, 0, 0, time.Local)
	v.Now = v.PausedSince.Add(time.Minute)
	var b strings.Builder
	if err := writeStatus(&b, v, 0); err != nil {
		t.Fatal(err)
	}
	if first, _, _ := strings.Cut(b.String(), "\n"); !strings.Contains(first, "ctr, paused since 06:00:00 (nothing is trained, and no worker comes or goes, until kale resume ctr)") {
		t.Errorf("the first line: %s", first)
	}
	if text := b.String(); strings.Contains(text, "126") || !strings.Contains(text, "none are trained") || !strings.Contains(text, "3 ready of 3 wanted") {
		t.Errorf("status:\n%s", text)
	}
}

// A picture that is not of this moment says how old it is, and a long reason is told once.
func TestStatusTellsItsAgeAndNothingTwice(t *testing.T) {
	now := time.Date(2026, 1, 31, 6, 0, 0, 0, time.Local)
	why := strings.Repeat("its error was larger than that of the seasonal forecaster, ", 3)
	before := strings.ReplaceAll(why, "was", "had been") // another one's words, with which the last change was made
	r := &core.Record{Observation: plan.Observation{Forecast: plan.Forecast{Reason: why}}, Decision: plan.Decision{At: now, Reason: "hold: the forecast is not trusted: " + why}}
	change := &core.Record{Observation: plan.Observation{Forecast: plan.Forecast{Reason: before}},
		Decision: plan.Decision{At: now.Add(-time.Hour), Reason: "the forecast is not trusted: " + before + "; the recent rate needs 2 workers"}}
	v := &core.View{Job: "ctr", Now: now, Watch: 10 * time.Second, Sample: core.Sample{At: now.Add(-4 * time.Second)}, Forecast: plan.Forecast{Reason: why}, Decision: r, LastChange: change}
	var b strings.Builder
	if err := writeStatus(&b, v, 0); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Count(text, why) != 1 || strings.Contains(text, before) || !strings.Contains(text, "not trusted; the recent rate needs 2 workers") ||
		!strings.Contains(text, "seen         4s ago: the scheduler looks every 10s (autoscale.watch)\n") {
		t.Errorf("status:\n%s", text)
	}
	v.Sample.At = now
	b.Reset()
	if err := writeStatus(&b, v, 0); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Contains(text, "ago:") {
		t.Errorf("status of now:\n%s", text)
	}
	const away = "Kafka's end offsets are unknown: the topic does not exist"
	v.Sample = core.Sample{At: now.Add(-4 * time.Second), LagUnknown: away, Unknown: away} // a look waits for who does not answer, which autoscale.watch does not say
	v.Problems = []string{away + ". Where it was deleted, …"}
	v.Decision = &core.Record{Observation: plan.Observation{Hold: plan.Hold{Unknown: true, Reason: away}},
		Decision: plan.Decision{Kind: plan.KindHold, At: now, Reason: "hold at 1 worker: the state of the job is not fully known: " + away}}
	b.Reset()
	if err := writeStatus(&b, v, 0); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Count(text, away) != 1 || !strings.Contains(text, "seen         4s ago\n") || !strings.Contains(text, "lag          unknown; the objective") {
		t.Errorf("status beside silent brokers:\n%s", text)
	}
}

// The line of a job in the list says that there is more to read.
func TestProblemsShowInTheList(t *testing.T) {
	for _, c := range []struct {
		problems []string
		want     string
	}{
		{nil, "2 workers train"},
		{[]string{"a"}, "2 workers train; 1 problem"},
		{[]string{"a", "b"}, "2 workers train; 2 problems"},
	} {
		if got := withProblems("2 workers train", c.problems); got != c.want {
			t.Errorf("with %q: %q, want %q", c.problems, got, c.want)
		}
	}
}

// The notes of days do not push the rest of a status off the screen.
func TestStatusShowsTheLastNotes(t *testing.T) {
	var notes []core.Note
	for i := range 33 {
		notes = append(notes, core.Note{Text: fmt.Sprintf("renewal %d", i+1)})
	}
	show := func(notes []core.Note) (shown []string) {
		writeNotes(func(name, format string, args ...any) { shown = append(shown, name+" "+fmt.Sprintf(format, args...)) }, "ctr", notes)
		return shown
	}
	if got := show(notes); len(got) != 6 || got[0] != "notes 28 earlier, which kale status ctr -json has" || !strings.HasSuffix(got[1], "renewal 29") || !strings.HasSuffix(got[5], "renewal 33") {
		t.Errorf("of 33: %q", got)
	}
	if got := show(notes[:5]); len(got) != 5 || !strings.HasSuffix(got[0], "renewal 1") {
		t.Errorf("of 5: %q", got)
	}
}

// TestPartitionsAreNoCount: a worker's partitions are marked as such.
func TestPartitionsAreNoCount(t *testing.T) {
	for want, ps := range map[string][]int32{"-": nil, "p3": {3}, "p0,4": {0, 4}, "p0-2,7": {0, 1, 2, 7}, "30 of them": {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58}} {
		if got := partitions(ps, 80); got != want {
			t.Errorf("%v: %q, want %q", ps, got, want)
		}
	}
}
