package plan

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// scenario is a sequence of observations and the decisions that they led to,
// kept in testdata/*.json and rewritten by -update. Each step changes some fields
// of the observation before it; target and state are those of the decision
// before, unless the step sets them.
type scenario struct {
	Name   string          `json:"name"`
	About  string          `json:"about"`
	Policy string          `json:"policy"`
	Params Params          `json:"params,omitempty"`
	Base   json.RawMessage `json:"base"`
	Steps  []scenarioStep  `json:"steps"`
}

type scenarioStep struct {
	Note     string          `json:"note,omitempty"`
	Set      json.RawMessage `json:"set"`
	Decision outcome         `json:"decision"`
}

// outcome is the part of a decision that a golden keeps.
type outcome struct {
	Target int      `json:"target"`
	Kind   Kind     `json:"kind"`
	Source string   `json:"source,omitempty"`
	Reason string   `json:"reason"`
	Hold   []string `json:"hold,omitempty"`
}

// run decides every step and returns the outcomes.
func (s scenario) run(t *testing.T) []outcome {
	t.Helper()
	p, err := New(s.Policy, s.Params)
	if err != nil {
		t.Fatal(err)
	}
	var o Observation
	merge := func(raw json.RawMessage) {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&o); err != nil {
			t.Fatalf("%s: %v in %s", s.Name, err, raw)
		}
	}
	merge(s.Base)
	var got []outcome
	for _, st := range s.Steps {
		merge(st.Set)
		d := p.Decide(o)
		got = append(got, outcome{Target: d.Target, Kind: d.Kind, Source: d.Source, Reason: d.Reason, Hold: d.Hold})
		o.Target, o.State = d.Target, d.State
	}
	return got
}

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 2 && !*update {
		t.Fatalf("%d scenarios in testdata, expected at least 2", len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var s scenario
			if err := json.Unmarshal(raw, &s); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			got := s.run(t)
			if *update {
				for i := range s.Steps {
					s.Steps[i].Decision = got[i]
				}
				s.write(t, file)
				return
			}
			for i, st := range s.Steps {
				if d := cmp.Diff(st.Decision, got[i]); d != "" {
					t.Errorf("step %d (%s) (-golden +got):\n%s", i, st.Note, d)
				}
			}
		})
	}
}

// write stores the scenario, one line per base, set and decision.
func (s scenario) write(t *testing.T, file string) {
	t.Helper()
	var b bytes.Buffer
	line := func(format string, v any) {
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
		b.WriteString(format)
		b.Write(bytes.TrimSpace(buf.Bytes()))
	}
	line("{\n \"name\": ", s.Name)
	line(",\n \"about\": ", s.About)
	line(",\n \"policy\": ", s.Policy)
	if len(s.Params) > 0 {
		line(",\n \"params\": ", s.Params)
	}
	line(",\n \"base\": ", s.Base)
	b.WriteString(",\n \"steps\": [")
	for i, st := range s.Steps {
		if i > 0 {
			b.WriteString(",")
		}
		line("\n  {\"note\": ", st.Note)
		line(",\n   \"set\": ", st.Set)
		line(",\n   \"decision\": ", st.Decision)
		b.WriteString("}")
	}
	b.WriteString("\n ]\n}\n")
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// weekday is the paper's weekday arrival curve, hourly means in k samples/s
// (paper.md), interpolated; hour 0 to 24.
func weekday(hour float64) float64 {
	curve := []float64{44, 47, 82, 134, 135, 126, 131, 145, 172, 214, 185, 163, 167, 184, 210, 228, 253, 270, 268, 261, 208, 124, 70, 47}
	x := math.Mod(hour+24, 24)
	i := int(x)
	f := x - float64(i)
	return 1000 * (curve[i]*(1-f) + curve[(i+1)%24]*f)
}

// smallDay simulates a weekday scaled to 120 s and to 6 workers of 1,000
// samples/s each, decided every second: the arithmetic of the demo. A worker
// trains 3 s after it was asked for, and leaves at once. It returns the scenario
// and, per second, the arrival rate, the target and what trained.
func smallDay(t *testing.T) (s scenario, arrival []float64, target, running []int) {
	t.Helper()
	const day = 120
	rate := func(sec int) float64 { return math.Round(weekday(float64(sec)*24/day) * 0.02) }
	mean := func(sec, n int) Values {
		v := make(Values, n)
		for i := range v {
			v[i] = rate(sec + i)
		}
		return v
	}
	base := Observation{
		Interval: time.Second, Servers: 2, Target: 1,
		Model:    estimatorPerWorker(1000),
		JoinTime: Measured{Value: 3 * time.Second, Samples: 4},
		Limits:   Limits{Min: 1, Max: 6}, Rho: 1, Tau: 5 * time.Second,
		CooldownOut: time.Second, CooldownIn: 5 * time.Second, Headroom: 0.05, MaxLag: 1667 * time.Millisecond,
		Rates:    Series{Step: time.Second},
		Forecast: Forecast{Step: time.Second, Source: "seasonal", Trusted: true},
	}
	s = scenario{
		Name: "small day", Policy: "kale", Base: json.RawMessage(encode(t, base)),
		About: "the paper's weekday in 120 s, at most 6 workers of 1,000 records/s, decided every second with a perfect forecast of 20 s",
	}
	p := policy(t, "kale")
	o := base
	backlog := 0.0
	ready := []int{0} // when each worker in force trains, in seconds
	for sec := range day {
		run := 0
		for _, at := range ready {
			if at <= sec {
				run++
			}
		}
		capacity := 1000 * float64(run)
		backlog = math.Max(0, backlog+rate(sec)-capacity)
		o.Now = noon.Add(time.Duration(sec) * time.Second)
		o.Rates.Start, o.Rates.Values = o.Now.Add(-3*time.Second), mean(sec-3, 3)
		o.Forecast.At, o.Forecast.Mean = o.Now, mean(sec, 20)
		o.BacklogRecords = int64(backlog)
		o.LagKnown, o.Lag = true, time.Duration(backlog/capacity*1000)*time.Millisecond
		o.Workers = Workers{Running: run, Pending: len(ready) - run}
		set := map[string]any{
			"now": o.Now, "rates": o.Rates, "backlog_records": o.BacklogRecords, "lag": o.Lag, "lag_known": true, "workers": o.Workers,
			"forecast": map[string]any{"at": o.Forecast.At, "mean": o.Forecast.Mean},
		}
		d := p.Decide(o)
		s.Steps = append(s.Steps, scenarioStep{Set: json.RawMessage(encode(t, set))})
		for len(ready) < d.Target {
			ready = append(ready, sec+3)
		}
		ready = ready[:d.Target]
		o.Target, o.State = d.Target, d.State
		arrival, target, running = append(arrival, rate(sec)), append(target, d.Target), append(running, run)
	}
	return s, arrival, target, running
}

// Reference: Kale §3.4 and issue 3: with a forecast, workers are asked for before
// the load that needs them, and leave in the evening; training keeps up.
func TestSmallDayScalesAhead_Kale_3_4(t *testing.T) {
	s, arrival, target, running := smallDay(t)
	got := s.run(t)
	if *update {
		for i := range s.Steps {
			s.Steps[i].Decision = got[i]
		}
		s.write(t, filepath.Join("testdata", "small_day.json"))
	}
	ahead, ins, gpu, short := 0, 0, 0.0, 0
	for sec, d := range got {
		if d.Target != target[sec] {
			t.Fatalf("second %d: the scenario's file decides %d, the simulation %d", sec, d.Target, target[sec])
		}
		gpu += float64(d.Target)
		if arrival[sec] > 1000*float64(running[sec]) {
			short++
		}
		if d.Kind == KindIn {
			ins++
		}
		if d.Kind != KindOut || sec == 0 {
			continue
		}
		before := target[sec-1]
		for k := sec; k < min(sec+20, len(got)); k++ {
			if arrival[k] > 1000*float64(before) {
				if running[k] > before {
					ahead++
				}
				break
			}
		}
	}
	t.Logf("%d scale-outs ahead of the load, %d scale-ins, %.2f of the static maximum's GPU time, %d of 120 s short of workers", ahead, ins, gpu/720, short)
	if ahead < 2 || ins < 2 || gpu > 0.75*720 || short > 0 {
		t.Errorf("want ≥ 2 scale-outs ahead, ≥ 2 scale-ins, ≤ 0.75 of static, and never short")
	}
}
