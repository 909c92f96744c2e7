package view

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/estimator"
)

var onTerminal = flag.Bool("terminal", false, "TestOnThisTerminal shows a synthetic run; for looking at it: go test -c ./cmd/kale/view && ./view.test -test.run OnThisTerminal -terminal")

// demo is a synthetic run of the demo's shape: a day of two minutes, workers of 800 records/s that take a moment to join and to leave, and a
// policy that decides each second on a forecast. step moves it on by one look and gives the view.
type demo struct {
	start, now, until                  time.Time
	policy                             plan.Policy
	model                              estimator.Model
	chance                             *rand.Rand
	running, pending, draining, target int
	noise, backlog                     float64
	trained                            uint64
	state                              []byte
	decision, change                   *core.Record
	rescale                            *core.Rescale
	history                            []float64
	surge                              float64
	problems                           []string
	seen                               memory
	unknown                            string // why the scheduler does not know enough
}

const (
	day     = 2 * time.Minute
	horizon = 20
)

func newDemo(t testing.TB) *demo {
	t.Helper()
	policy, err := plan.New("kale", nil)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 3, 2, 9, 14, 0, 0, time.UTC)
	d := &demo{
		start: start, now: start, policy: policy, model: estimator.Model{Form: estimator.FormAsync, Theta: []float64{0.00125, 0, 0}},
		chance: rand.New(rand.NewPCG(5, 8)), running: 1, target: 1, surge: 1,
	}
	for i := -60; i < 0; i++ {
		d.history = append(d.history, d.expected(start.Add(time.Duration(i)*time.Second)))
	}
	return d
}

// expected is the traffic without noise, records/s.
func (d *demo) expected(t time.Time) float64 {
	share := math.Mod(float64(t.Sub(d.start))/float64(day)+1, 1)
	hump := func(at, width float64) float64 { x := (share - at) / width; return math.Exp(-x * x) }
	return 3600 * (0.16 + 0.62*hump(0.36, 0.11) + 0.84*hump(0.72, 0.1))
}

func (d *demo) forecast() plan.Forecast {
	f := plan.Forecast{At: d.now, Step: time.Second, Source: "linear.onnx", Trusted: true}
	for i := range horizon {
		mean := d.expected(d.now.Add(time.Duration(i) * time.Second))
		f.Mean, f.Lower, f.Upper = append(f.Mean, mean), append(f.Lower, 0.9*mean), append(f.Upper, 1.12*mean)
	}
	return f
}

func (d *demo) step(by time.Duration) *core.View {
	d.now = d.now.Add(by)
	d.noise = 0.9*d.noise + 0.015*d.chance.NormFloat64()
	arrivals := d.expected(d.now) * (1 + d.noise) * d.surge
	capacity := d.model.Throughput(d.running, 2)
	trained := math.Min(capacity, arrivals+d.backlog/by.Seconds())
	d.backlog = math.Max(0, d.backlog+(arrivals-trained)*by.Seconds())
	d.trained += uint64(trained * by.Seconds())
	lag := 0.06 + d.backlog/trained
	v := &core.View{
		Job: "demo", Mode: "live", Now: d.now, Started: d.start.Add(-3 * time.Second), MaxLag: 2 * time.Second, Min: 1, Max: 6, Emulated: true,
		Model: d.model.String(), ModelBasis: plan.Basis{Prior: "a profile", Measured: []estimator.Evidence{{Workers: 2, Rate: 1600, Intervals: 4}}}, Trained: new(d.trained), Problems: d.problems, Servers: []core.ServerView{{Index: 0, Up: new(true)}, {Index: 1, Up: new(true)}},
	}
	if auc := 0.71 + 0.03*float64(d.now.Sub(d.start))/float64(day); true {
		v.AUC = &auc
	}
	if d.now.Truncate(time.Second).Equal(d.now) {
		d.history = append(d.history, arrivals)
		d.decide(arrivals, lag)
	}
	d.settle()
	v.Decision, v.LastChange, v.Rescale = d.decision, d.change, d.rescale
	if d.decision != nil {
		v.Forecast = d.decision.Observation.Forecast
	}
	v.History = plan.Series{Start: d.now.Truncate(time.Second).Add(-time.Duration(len(d.history)) * time.Second), Step: time.Second, Values: d.history}
	mean := d.expected(d.now)
	v.Sample = core.Sample{
		At: d.now, Rate: &arrivals, Trained: &trained, Lag: &lag, LagRecords: new(int64(lag * arrivals)), Forecast: &core.Band{Mean: mean, Lower: 0.9 * mean, Upper: 1.12 * mean},
		Capacity: new(d.model.Throughput(d.running, 2)), Target: d.target, Running: new(d.running), Pending: new(d.pending), Draining: d.draining, Held: new(d.running + d.pending + d.draining),
		Busy: new(math.Min(1, trained/capacity)),
	}
	for i := range d.running + d.pending + d.draining {
		w := core.WorkerView{ID: fmt.Sprintf("worker-%d.1", i), Rank: i, Backend: "running", Member: "ready", Rate: new(trained / float64(d.running)), Busy: v.Sample.Busy, Queue: new(int64(128)), Partitions: []int32{int32(i), int32(i + 6)}}
		if i >= d.running {
			w.Member, w.Rate, w.Busy, w.Queue, w.Partitions = "joining", nil, nil, nil, nil
		}
		v.Workers = append(v.Workers, w)
	}
	return v
}

func (d *demo) decide(arrivals, lag float64) {
	o := plan.Observation{
		Now: d.now, Interval: time.Second, Rates: plan.Series{Start: d.now.Add(-time.Second), Step: time.Second, Values: plan.Values{arrivals}}, Forecast: d.forecast(),
		BacklogRecords: int64(d.backlog), Lag: time.Duration(lag * float64(time.Second)), LagKnown: true, Target: d.target,
		Workers: plan.Workers{Running: d.running, Pending: d.pending, Draining: d.draining}, Servers: 2, Model: d.model,
		JoinTime: plan.Measured{Value: 1600 * time.Millisecond, Samples: 4}, Limits: plan.Limits{Min: 1, Max: 6}, Rho: 1, Tau: 5 * time.Second,
		CooldownOut: time.Second, CooldownIn: 8 * time.Second, Headroom: 0.1, MaxLag: 2 * time.Second, State: d.state,
	}
	if d.unknown != "" {
		o.Hold = plan.Hold{Unknown: true, Reason: d.unknown}
	}
	if d.rescale != nil {
		o.Action = plan.Action{Kind: d.rescale.Kind, Target: d.rescale.To, Since: d.rescale.Decided}
	}
	made := d.policy.Decide(o)
	d.state = made.State
	d.decision = &core.Record{Observation: o, Decision: made}
	if made.Target == d.target || d.rescale != nil {
		return
	}
	d.change = d.decision
	d.rescale = &core.Rescale{Kind: made.Kind, From: d.target, To: made.Target, Decided: d.now, Reason: made.Reason, ConfiguredCapacity: d.model.Throughput(d.target, 2)}
	d.target, d.until = made.Target, d.now.Add(1600*time.Millisecond)
	if made.Kind == plan.KindIn {
		d.draining, d.running, d.until = d.running-made.Target, made.Target, d.now.Add(700*time.Millisecond)
	} else {
		d.pending = made.Target - d.running
	}
}

func (d *demo) settle() {
	if d.rescale == nil || d.now.Before(d.until) {
		return
	}
	d.running, d.pending, d.draining, d.rescale = d.running+d.pending, 0, 0, nil
}

// at runs a demo to a time of its day and gives the picture's frame there.
func at(t testing.TB, d *demo, after time.Duration) Frame {
	t.Helper()
	m := &d.seen
	for d.now.Before(d.start.Add(after)) {
		m.see(d.step(250 * time.Millisecond))
	}
	return Frame{View: m.view, Trail: m.trail, Finished: m.finished, Zone: time.UTC}
}

// TestOnThisTerminal shows the demo on this terminal, for people.
func TestOnThisTerminal(t *testing.T) {
	if !*onTerminal {
		t.Skip("-terminal shows a synthetic run on this terminal")
	}
	d := newDemo(t)
	at(t, d, 20*time.Second)
	last := time.Now()
	var v *core.View
	err := Run(t.Context(), os.Stdin, os.Stdout, func() *core.View {
		if v == nil || time.Since(last) >= 250*time.Millisecond {
			v, last = d.step(250*time.Millisecond), time.Now()
		}
		return v
	}, Options{Coloured: true, Note: func() string { return "a note of the caller" }})
	if err != nil {
		t.Error(err)
	}
}
