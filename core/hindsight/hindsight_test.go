package hindsight_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/hindsight"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/state"
)

var start = time.Date(2026, 2, 3, 6, 0, 0, 0, time.UTC)

// traffic is what came in the bin from minute m on.
func traffic(m int) float64 { return 100 + float64(m) }

// history is a job's state after minutes of samples, every 20 s, and of decisions at 10 s past each minute, whose forecasts of 10 bins are off by a share that
// grows by 1 % a bin ahead. away are minutes without a scheduler.
func history(t *testing.T, minutes int, away func(m int) bool) *state.Store {
	t.Helper()
	st, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	for m := range minutes {
		if away(m) {
			continue
		}
		begin := start.Add(time.Duration(m) * time.Minute)
		for _, after := range []time.Duration{time.Second, 21 * time.Second, 41 * time.Second} {
			rate := traffic(m - 1) // of the minute before; only the first of the three is a bin's
			if after > time.Second {
				rate = math.MaxFloat32
			}
			if err := st.Append(state.Samples, begin.Add(after), core.Sample{At: begin.Add(after), Rate: &rate}); err != nil {
				t.Fatal(err)
			}
		}
		var r core.Record
		r.Observation.Now = begin.Add(10 * time.Second)
		f := &r.Observation.Forecast
		*f = plan.Forecast{At: begin, Step: time.Minute, Source: "seasonal", Trusted: true, Levels: []float64{0.05, 0.95}, Quantiles: []plan.Values{nil, nil}}
		for i := range 10 {
			mean := traffic(m+i) * (1 + 0.01*float64(i+1))
			f.Mean = append(f.Mean, mean)
			f.Lower, f.Upper = append(f.Lower, mean-1), append(f.Upper, mean+1)
			f.Quantiles[0], f.Quantiles[1] = append(f.Quantiles[0], mean*0.975), append(f.Quantiles[1], mean*1.025)
		}
		if err := st.Append(state.Decisions, r.Observation.Now, r); err != nil {
			t.Fatal(err)
		}
	}
	return st
}

func TestReview(t *testing.T) {
	st := history(t, 61, func(int) bool { return false })
	r, err := hindsight.Of(st, hindsight.Options{From: start, Leads: []time.Duration{5 * time.Minute, time.Minute, 5 * time.Minute}, Bins: 3})
	if err != nil {
		t.Fatal(err)
	}
	if r.Source != "seasonal" || !r.Trusted || r.Step != time.Minute || len(r.Next.Mean) != 10 || r.Next.Quantiles != nil || !r.Next.At.Equal(start.Add(60*time.Minute)) {
		t.Errorf("%+v", r)
	}
	for i, want := range []struct {
		lead time.Duration
		bins int
		off  float64
		in   float64
	}{{time.Minute, 60, 0.01, 1}, {5 * time.Minute, 56, 0.05, 0}} {
		l := r.Leads[i]
		if l.Lead != want.lead || l.Bins != want.bins || math.Abs(*l.WAPE-want.off) > 1e-9 || math.Abs(*l.Bias-want.off) > 1e-9 || *l.In90 != want.in {
			t.Errorf("lead %v: %d bins, WAPE %v, bias %v, in the band %v; want %+v", l.Lead, l.Bins, *l.WAPE, *l.Bias, *l.In90, want)
		}
	}
	if len(r.Leads) != 2 || len(r.Bins) != 3 {
		t.Fatalf("%d leads and %d bins", len(r.Leads), len(r.Bins))
	}
	last := r.Bins[2]
	if came := traffic(59); !last.At.Equal(start.Add(59*time.Minute)) || last.Came != came || math.Abs(last.Expected[1].Mean-came*1.05) > 1e-9 ||
		math.Abs(last.Expected[1].Lower-came*1.05*0.975) > 1e-9 || math.Abs(last.Expected[1].Upper-came*1.05*1.025) > 1e-9 {
		t.Errorf("the last bin: %+v, %+v", last, last.Expected[1])
	}
}

// By default it is looked at how the next bin, and a quarter, a half and all of the horizon came out.
// What came of the models that were trained anew is told of, the refused ones too.
func TestReviewTellsOfRetrainings(t *testing.T) {
	st := history(t, 3, func(int) bool { return false })
	past := []core.Retrained{{At: start, Says: "one that was trained anew was not taken"}, {At: start.Add(time.Hour), Promoted: true, Says: "trained anew, and promoted"}}
	if err := st.Put("desired", map[string]any{"version": 2, "retraining": map[string]any{"says": "trained anew, and promoted", "past": past}}); err != nil {
		t.Fatal(err)
	}
	r, err := hindsight.Of(st, hindsight.Options{From: start, Bins: 3})
	if err != nil || !slices.Equal(r.Retrainings, past) {
		t.Errorf("%v: %+v", err, r.Retrainings)
	}
}

func TestDefaultLeads(t *testing.T) {
	r, err := hindsight.Of(history(t, 12, func(int) bool { return false }), hindsight.Options{From: start})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []time.Duration{1, 2, 5, 10} {
		if len(r.Leads) != 4 || r.Leads[i].Lead != want*time.Minute {
			t.Errorf("leads %+v", r.Leads)
		}
	}
	if l := r.Leads[3]; l.Bins != 2 || math.Abs(*l.WAPE-0.1) > 1e-9 { // only what was forecast at the very beginning has come
		t.Errorf("all of the horizon: %+v", l)
	}
	if l, err := hindsight.Of(history(t, 2, func(int) bool { return false }), hindsight.Options{From: start}); err != nil || l.Leads[3].Bins != 0 || l.Leads[3].WAPE != nil || l.Leads[3].In90 != nil {
		t.Errorf("of nothing that has come: %+v, %v", l.Leads, err)
	}
}

// Bins in which nobody measured are not counted, nor are forecasts that nobody made then.
func TestGap(t *testing.T) {
	r, err := hindsight.Of(history(t, 61, func(m int) bool { return m >= 20 && m < 40 }), hindsight.Options{From: start, Leads: []time.Duration{time.Minute, 8 * time.Minute}, Bins: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range r.Bins {
		m := int(b.At.Sub(start) / time.Minute)
		if m >= 19 && m < 39 {
			t.Errorf("the bin of minute %d, in which nobody measured: %+v", m, b)
		}
		if made := m - 7; (b.Expected[1] == nil) != (made < 0 || made >= 20 && made < 40) {
			t.Errorf("the bin of minute %d, forecast at minute %d: %v", m, made, b.Expected[1])
		}
	}
}

func TestNothingToReview(t *testing.T) {
	if _, err := hindsight.Of(history(t, 0, nil), hindsight.Options{}); !errors.Is(err, hindsight.ErrNone) {
		t.Errorf("of no decisions: %v", err)
	}
	if _, err := hindsight.Of(history(t, 2, func(int) bool { return false }), hindsight.Options{Leads: []time.Duration{90 * time.Second}}); !errors.Is(err, hindsight.ErrLead) {
		t.Errorf("of one and a half bins: %v", err)
	}
}
