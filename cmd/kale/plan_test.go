package main

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/hindsight"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/onnx/onnxtest"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/forecast"
)

// Of each process that would be started it is said whether there is room for it, also where the backend does not know yet where it will run.
func TestPlanSaysWhereThereIsRoom(t *testing.T) {
	var out strings.Builder
	if err := writePlanned(&out, planned{Placements: []placement{
		{ID: "ps-0-g1", Fits: true},
		{ID: "worker-0-g1", Fits: true, Node: "n1", Devices: []string{"0", "1"}},
		{ID: "worker-1-g1", Fits: true, Reason: "the cluster chooses its node"},
		{ID: "worker-2-g1", Reason: "needs 2 GPUs, 0 free"},
		{ID: "worker-3-g1", Fits: true, Node: "n1", Devices: []string{"2"}, Reason: "1 other job waits in partition main and may come first"},
	}}); err != nil {
		t.Fatal(err)
	}
	want := `start
  ps-0-g1      room
  worker-0-g1  n1 0,1
  worker-1-g1  room: the cluster chooses its node
  worker-2-g1  no room: needs 2 GPUs, 0 free
  worker-3-g1  n1 2: 1 other job waits in partition main and may come first
`
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("it prints\n%s\nwant, at its end,\n%s", out.String(), want)
	}
}

// What the backend says of a process that fits is in the JSON too, and is no shortage.
func TestPlanTellsWhatComesFirst(t *testing.T) {
	const words = "1 other job waits in partition main and may come first"
	report := backend.Report{Placements: []backend.Placement{{ID: backend.ID{Role: "worker", Generation: 1}, Fits: true, Node: "n1", Devices: []string{"n1/0"}, Reason: words}}}
	p := newPlanned(&loaded{Job: &job.Job{Name: "ctr"}}, job.TopicInfo{Partitions: 3}, &core.Preview{Report: report}, nil)
	raw, err := json.Marshal(p.Placements)
	if want := `[{"id":"worker-0-g1","fits":true,"node":"n1","devices":["n1/0"],"reason":"` + words + `"}]`; err != nil || string(raw) != want {
		t.Errorf("placements are %s, %v; want %s", raw, err, want)
	}
	if short := core.Shortage(report); short != "" || p.Shortage != "" || !report.Fits() {
		t.Errorf("shortage %q and %q", short, p.Shortage)
	}
}

// What waits for a place or is not heard of is not told as running.
func TestPlanTellsWhatDoesNotRun(t *testing.T) {
	p := newPlanned(&loaded{Job: &job.Job{Name: "ctr"}}, job.TopicInfo{Partitions: 3}, &core.Preview{Running: []backend.Status{
		{ID: backend.ID{Role: "ps", Generation: 1}, State: backend.StateRunning},
		{ID: backend.ID{Role: "worker", Generation: 1}, State: backend.StateUnknown, Reason: "its node n2 does not answer"},
		{ID: backend.ID{Role: "worker", Rank: 1, Generation: 1}, State: backend.StatePending},
		{ID: backend.ID{Role: "worker", Rank: 2, Generation: 1}, State: backend.StateFailed},
		{ID: backend.ID{Role: "worker", Rank: 3, Generation: 1}, State: backend.StateStopping, Reason: "released, forced"},
	}}, nil)
	var out strings.Builder
	if err := writePlanned(&out, p); err != nil {
		t.Fatal(err)
	}
	want := `running  ps-0-g1
its own  worker-0-g1 is unknown (its node n2 does not answer)
its own  worker-1-g1 is pending
start    nothing more: what is wanted is there, or asked for
`
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("it prints\n%s\nwant, at its end,\n%s", out.String(), want)
	}
}

// A cluster that is dead or hangs keeps a plan from no decision: it is waited for, which is said, for a bounded time, and then the decision is shown without it.
func TestPlanWithoutACluster(t *testing.T) {
	s := newShell(t).withPlugin("kale-backend-slurm").withPlugin("kale-backend-nomad")
	s.patience = 500 * time.Millisecond
	_, text := scaffolded(t, s)
	mute, err := net.Listen("tcp", "127.0.0.1:0") // the system takes connections, and nobody reads them
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	shared := t.TempDir()
	head, _, found := strings.Cut(withLine(t, text, "checkpoint", "dir", `"`+filepath.Join(shared, "checkpoint")+`"`), `  backend "local"`)
	if !found {
		t.Fatal(text)
	}
	for name, c := range map[string]struct{ block, waits string }{
		"a dead one": {"  backend \"slurm\" {\n    shared_dir = \"" + shared + "\"\n    rest       = \"http://127.0.0.1:1\"\n  }\n}\n", ""},
		"a hung one": {"  backend \"nomad\" {\n    address = \"http://" + mute.Addr().String() + "\"\n  }\n}\n",
			"waiting for the backend \"nomad\", which has not answered yet, up to 2.5s\n"},
	} {
		file := write(t, head+c.block)
		r := s.run("plan", file)
		if r.code != exitDone || !strings.Contains(r.err, "warning: The cluster does not answer") || strings.Contains(r.err, "error: ") || c.waits != "" && strings.Count(r.err, c.waits) != 1 {
			t.Errorf("%s: exit code %d, want %q\n%s", name, r.code, c.waits, r.err)
		}
		for _, says := range []string{"decided as if nothing of the job ran", "to 1 worker\n", "start    where is not known: the backend does not answer\n"} {
			if !strings.Contains(r.out, says) {
				t.Errorf("%s: %q is not in\n%s", name, says, r.out)
			}
		}
		var p planned
		if err := json.Unmarshal([]byte(s.must("plan", "-json", file).out), &p); err != nil || p.Unplaced == "" || p.Unlisted == "" || p.Decision.Target < 1 {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

// A plan of a job that has never run, whose model is a file and is to be trained anew, is made in a state folder that is not there, and leaves none.
func TestPlanWithAModelWritesNothing(t *testing.T) {
	onnxtest.Library(t)
	s := newShell(t).withPrograms()
	_, text := scaffolded(t, s)
	dir := filepath.Join(shortDir(t), "new")
	s.env["KALE_STATE_DIR"] = dir
	model := filepath.Join(t.TempDir(), "m.onnx")
	writeModel(t, model, "m", time.Minute, 10, same)
	file := write(t, withLine(t, withLine(t, withLine(t, withLine(t, text, "forecast", "model", `"`+model+`"`), "forecast", "retrain", `"24h"`), "forecast", "interval", `"1m"`), "forecast", "horizon", `"10m"`))
	r := s.must("plan", file)
	if !strings.Contains(r.out, "worker-0-g1") || strings.Contains(r.err, "error") {
		t.Errorf("%s\n%s", r.out, r.err)
	}
	if left, err := os.ReadDir(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a plan leaves %v, %v", left, err)
	}
}

// Of a job whose stop was interrupted a plan says that, as kale status does.
func TestPlanTellsThatAStopWasInterrupted(t *testing.T) {
	p := newPlanned(&loaded{Job: &job.Job{Name: "ctr"}}, job.TopicInfo{Partitions: 3}, &core.Preview{Gone: true, Ended: "its stop was interrupted"}, nil)
	var out strings.Builder
	if err := writePlanned(&out, p); err != nil {
		t.Fatal(err)
	}
	if want := "gone     its stop was interrupted, and nothing of it runs any more: kale run takes it up again\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is not in\n%s", want, out.String())
	}
}

// A plan says, in the words of kale status, who forecasts and why, whether that is trusted and its bands are calibrated, what of the horizon is an event, and how the
// forecasts of the last day came out.
func TestPlanTellsOfItsForecast(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)
	f := plan.Forecast{At: now.Add(-30 * time.Second), Step: time.Minute, Mean: plan.Values{900, 950}, Lower: plan.Values{800, 820}, Upper: plan.Values{1000, 1100}, Source: "seasonal",
		Trusted: true, Reason: "seasonal instead of onnx:linear: its recent error is 30.0 % over 120 bins, and that of seasonal is 8.1 %; the recent error of seasonal is 8.1 % over 120 bins", Calibrated: true, Outcomes: 231}
	sale := forecast.Occasion{Name: "sale", From: now, To: now.Add(time.Hour), Declared: 2}
	wape, in := 0.08, 0.91
	past := []hindsight.Lead{{Lead: time.Minute, Bins: 230, WAPE: &wape, In90: &in}, {Lead: time.Hour}}
	show := func(f plan.Forecast) (planned, string) {
		p := newPlanned(&loaded{Job: &job.Job{Name: "ctr"}}, job.TopicInfo{Partitions: 3}, &core.Preview{Occasions: []forecast.Occasion{sale}, Record: core.Record{Observation: plan.Observation{Now: now, Forecast: f}}}, past)
		var out strings.Builder
		if err := writePlanned(&out, p); err != nil {
			t.Fatal(err)
		}
		return p, out.String()
	}
	p, text := show(f)
	for _, want := range []string{
		"forecast 900 records/s for now (800 to 1,000), by seasonal; " + f.Reason + "; bands calibrated on 231 past outcomes\n",
		"calendar " + core.OccasionWords(sale, now) + "\n",
		"held     in the band of 90 % came, in the last 24h, 91.0 % of 230 bins, 1m ahead\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	raw, err := json.Marshal(p.Forecast)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"source":"seasonal","trusted":true,"reason":"seasonal instead of onnx:linear`, `"calibrated":true,"outcomes":231,"events":[{"name":"sale","from":"2026-03-01T12:00:30Z","to":"2026-03-01T13:00:30Z","declared":2}]`, `"bins":230,"wape":0.08,"bias":null,"coverage90":0.91`} {
		if !strings.Contains(string(raw), want) || strings.Contains(string(raw), "later") || len(p.Forecast.Past) != 1 {
			t.Errorf("%s is not in %s", want, raw)
		}
	}
	f.Trusted, f.Calibrated, f.Outcomes, f.Reason = false, false, 7, "seasonal has been scored on 3 forecast bins so far; 120 are needed; sale counts ×2"
	if _, text = show(f); !strings.Contains(text, ", by seasonal, not trusted: "+f.Reason+"; bands not calibrated: 7 past outcomes of 19 at every horizon\n") {
		t.Errorf("it prints\n%s", text)
	}
	if p, text = show(plan.Forecast{}); p.Forecast != nil || strings.Contains(text, "forecast ") {
		t.Errorf("without a forecast it prints\n%s", text)
	}
}
