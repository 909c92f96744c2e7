package report

import (
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/estimator"
)

var htmlDir = flag.String("html", "", "folder into which TestPagesToLookAt writes pages, for looking at them in a browser")

// daySpec describes a synthetic run of the demo's shape: two humps of traffic a day, a policy that decides on a forecast, workers that
// take a while to join and to leave, and a queue that grows while capacity is short.
type daySpec struct {
	start             time.Time
	day, step, tick   time.Duration
	join, drain       time.Duration
	tau, cooldown     time.Duration
	horizon, interval time.Duration
	perWorker, peak   float64 // samples/s
	max               int
	maxLag            time.Duration
	emulated          bool
	// surge multiplies the traffic from 78 to 82 % of the day, which no forecast knows.
	surge float64
	// away is a stretch in which the scheduler was stopped.
	awayFrom, awayFor time.Duration
}

func demoDay() daySpec {
	return daySpec{
		start: time.Date(2026, 3, 2, 9, 14, 3, 0, time.UTC), day: 2 * time.Minute, step: 250 * time.Millisecond, tick: time.Second,
		join: 1600 * time.Millisecond, drain: 700 * time.Millisecond, tau: 5 * time.Second, cooldown: 8 * time.Second, horizon: 20 * time.Second,
		interval: time.Second, perWorker: 800, peak: 3600, max: 6, maxLag: 2 * time.Second, emulated: true, surge: 1,
	}
}

// workday is a day of a large job on real accelerators, with a surge that no forecast knew and an hour without a scheduler.
func workday() daySpec {
	return daySpec{
		start: time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), day: 24 * time.Hour, step: 5 * time.Second, tick: time.Minute,
		join: 4 * time.Minute, drain: 40 * time.Second, tau: 10 * time.Minute, cooldown: 10 * time.Minute, horizon: 30 * time.Minute,
		interval: time.Minute, perWorker: 16_000, peak: 370_000, max: 28, maxLag: 2 * time.Minute, surge: 2.1,
		awayFrom: 3 * time.Hour, awayFor: time.Hour,
	}
}

// expected is the traffic without noise and surge, samples/s, at a share of the day.
func (d daySpec) expected(share float64) float64 {
	hump := func(at, width float64) float64 { x := (share - at) / width; return math.Exp(-x * x) }
	return d.peak * (0.16 + 0.62*hump(0.36, 0.11) + 0.84*hump(0.72, 0.1))
}

func (d daySpec) share(t time.Time) float64 { return float64(t.Sub(d.start)) / float64(d.day) }

// run simulates the day.
func (d daySpec) run(t testing.TB) Input {
	t.Helper()
	policy, err := plan.New("kale", nil)
	if err != nil {
		t.Fatal(err)
	}
	sim := &simulation{
		daySpec: d, policy: policy, model: estimator.Model{Form: estimator.FormAsync, Theta: []float64{1 / d.perWorker, 0, 0}},
		chance: rand.New(rand.NewPCG(7, 11)), running: 1, target: 1,
		in: Input{Meta: Meta{
			Job: "ctr", Mode: "live", Policy: "kale", MaxLag: d.maxLag, Horizon: d.horizon, Min: 1, Max: d.max, GPUs: 1, Emulated: d.emulated,
			Generated: d.start.Add(d.day + time.Minute), Version: "0.1.0",
		}},
	}
	for at := d.start; at.Before(d.start.Add(d.day)); at = at.Add(d.step) {
		if off := at.Sub(d.start) - d.awayFrom; d.awayFor > 0 && off >= 0 && off < d.awayFor {
			continue
		}
		sim.beat(at)
	}
	for i := range sim.in.Rescales {
		sim.in.Rescales[i].Ahead = Ahead(sim.in.Rescales[i].Rescale, sim.in.Samples, d.horizon)
	}
	sim.in.Outlook = sim.forecast
	return sim.in
}

type simulation struct {
	daySpec
	policy                             plan.Policy
	model                              estimator.Model
	chance                             *rand.Rand
	in                                 Input
	running, pending, draining, target int
	backlog, noise                     float64
	state                              []byte
	forecast                           plan.Forecast
	change                             *core.Rescale
	until                              time.Time
	lastTick                           time.Time
}

func (s *simulation) beat(at time.Time) {
	s.noise = 0.9*s.noise + 0.012*s.chance.NormFloat64()
	share := s.share(at)
	rate := s.expected(share) * (1 + s.noise)
	if share > 0.78 && share < 0.82 {
		rate *= s.surge
	}
	capacity := s.model.Throughput(s.running, 1)
	trained := math.Min(capacity, rate+s.backlog/s.step.Seconds())
	s.backlog = math.Max(0, s.backlog+(rate-trained)*s.step.Seconds())
	lag := 0.03*s.maxLag.Seconds()*(1+0.3*math.Abs(s.chance.NormFloat64())) + s.backlog/math.Max(trained, 1)
	s.settle(at)
	if at.Sub(s.lastTick) >= s.tick {
		s.lastTick = at
		s.decide(at, rate, lag)
	}
	mean := s.expected(share)
	sample := core.Sample{
		At: at, Trained: &trained, LagRecords: new(int64(s.backlog)), Capacity: &capacity, Target: s.target, Running: new(s.running), Pending: new(s.pending),
		Draining: s.draining, Held: new(s.running + s.pending + s.draining), Busy: new(math.Min(1, trained/capacity) * 0.97),
		Forecast: &core.Band{Mean: mean, Lower: 0.92 * mean, Upper: 1.09 * mean}, Rate: &rate, Lag: &lag,
	}
	if share < 0.01 {
		sample.Rate, sample.Lag, sample.LagRecords = nil, nil, nil
	}
	s.in.Samples = append(s.in.Samples, sample)
}

// settle ends the rescale that is under way when its time has come.
func (s *simulation) settle(at time.Time) {
	if s.change == nil || at.Before(s.until) {
		return
	}
	s.running, s.pending, s.draining = s.running+s.pending, 0, 0
	s.change.Done, s.change.Gap, s.change.GapKnown = at, time.Duration(20+s.chance.IntN(120))*time.Millisecond, true
	if s.change.Kind == plan.KindOut {
		s.change.FirstTrained = at.Add(-s.step)
	}
	s.in.Rescales = append(s.in.Rescales, Rescale{Rescale: *s.change})
	s.change = nil
}

func (s *simulation) decide(at time.Time, rate, lag float64) {
	s.forecast = plan.Forecast{At: at, Step: s.interval, Source: "linear.onnx", Trusted: true}
	for i := range int(s.horizon / s.interval) {
		mean := s.expected(s.share(at.Add(time.Duration(i) * s.interval)))
		s.forecast.Mean = append(s.forecast.Mean, mean)
		s.forecast.Lower = append(s.forecast.Lower, 0.92*mean)
		s.forecast.Upper = append(s.forecast.Upper, 1.09*mean)
	}
	o := plan.Observation{
		Now: at, Interval: s.tick, Rates: plan.Series{Start: at.Add(-s.interval), Step: s.interval, Values: plan.Values{rate}}, Forecast: s.forecast,
		BacklogRecords: int64(s.backlog), Lag: time.Duration(lag * float64(time.Second)), LagKnown: true, Target: s.target,
		Workers: plan.Workers{Running: s.running, Pending: s.pending, Draining: s.draining}, Servers: 1, Model: s.model,
		JoinTime: plan.Measured{Value: s.join, Samples: 4}, Limits: plan.Limits{Min: 1, Max: s.max}, Rho: 1, Tau: s.tau, CooldownOut: s.tick,
		CooldownIn: s.cooldown, Headroom: 0.1, MaxLag: s.maxLag, State: s.state,
	}
	if s.change != nil {
		o.Action = plan.Action{Kind: s.change.Kind, Target: s.change.To, Since: s.change.Decided}
	}
	d := s.policy.Decide(o)
	s.state = d.State
	s.in.Decisions = append(s.in.Decisions, core.Record{Observation: o, Decision: d})
	if d.Target == s.target || s.change != nil {
		return
	}
	s.change = &core.Rescale{
		Kind: d.Kind, From: s.target, To: d.Target, Decided: at, Reason: d.Reason, OldCapacity: s.model.Throughput(s.target, 1),
		ConfiguredCapacity: s.model.Throughput(s.target, 1),
	}
	s.target, s.until = d.Target, at.Add(s.join)
	if d.Kind == plan.KindIn {
		s.running, s.draining, s.until = d.Target, s.running-d.Target, at.Add(s.drain)
		return
	}
	s.pending = d.Target - s.running
}

// trimmed keeps the decisions that FromStore would keep.
func trimmed(in Input) Input {
	var changes, others []core.Record
	for _, r := range in.Decisions {
		if r.Changes() {
			changes = keep(changes, r, shownChanges)
		} else {
			others = keep(others, r, shownOthers)
		}
	}
	in.Decisions = append(changes, others...)
	return in
}

// demoInput is the demo's report with the summary that `kale demo` puts first.
func demoInput(t testing.TB) Input {
	in := trimmed(demoDay().run(t))
	in.Outlook = plan.Forecast{}
	in.Title = "A day of clicks in two minutes"
	in.Summary = append([]Tile{
		{Name: "Records trained", Value: "231,904", Note: "lost 0, repeated 0", Verdict: Good},
	}, Summarise(in)...)
	in.Summary = append(in.Summary, Tile{Name: "AUC", Value: "0.748", Note: "0.702 had it stopped learning", Verdict: Good})
	return in
}

// TestPagesToLookAt writes pages when -html names a folder: `go test ./core/report -run PagesToLookAt -html DIR`.
func TestPagesToLookAt(t *testing.T) {
	if *htmlDir == "" {
		t.Skip("-html DIR writes pages to look at in a browser")
	}
	hostile := hostileInput(t)
	for name, in := range map[string]Input{"demo": demoInput(t), "workday": trimmed(workday().run(t)), "hostile": hostile} {
		f, err := os.Create(filepath.Join(*htmlDir, name+".html"))
		if err != nil {
			t.Fatal(err)
		}
		if err := Write(f, in); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
