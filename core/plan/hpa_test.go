package plan

import (
	"strings"
	"testing"
	"time"
)

// A backlog keeps all workers busy, however many there are: by their busy share the HPA and Autopilot grow while it lasts, by demand they hold to what arrives.
func TestABacklogIsNoDemand(t *testing.T) {
	for _, name := range []string{"hpa", "autopilot-short"} {
		for _, c := range []struct {
			params Params
			rate   float64
			target func(int) bool
			want   string
		}{
			{Params{"guard": 0}, 80_000, func(w int) bool { return w > 7 }, "more than 7"},
			{Params{"guard": 0, "demand": 1}, 80_000, func(w int) bool { return w <= 7 }, "7 or fewer"},
			{Params{"guard": 0, "demand": 1}, 150_000, func(w int) bool { return w > 9 }, "more than 9"},
		} {
			p, err := New(name, c.params)
			if err != nil {
				t.Fatal(err)
			}
			s := NewSuccession(p)
			o := reference()
			o.Flow = Flow{Known: true, Busy: 1, Trained: 112_000}
			o.Lag, o.BacklogRecords = 15*time.Minute, 90_000_000
			target := o.Target
			for range 90 {
				o.setRates(c.rate)
				target = s.Decide(o).Target
				o.Now = o.Now.Add(o.Interval)
			}
			if !c.target(target) {
				t.Errorf("%s %v at %g records/s with a backlog: %d workers, want %s", name, c.params, c.rate, target, c.want)
			}
		}
	}
}

// Where workers are busy all the time while what arrives needs fewer, a policy that goes by their busy share says so, and why it lets none go; where they are needed, or
// are let go, or what arrives is what counts, it does not.
func TestSaysThatWorkersAreAlwaysBusy(t *testing.T) {
	const line = "always busy"
	for name, c := range map[string]struct {
		params  Params
		rate    float64
		busy    float64
		backlog int64
		want    string // "": nothing is said
	}{
		"a backlog":                   {Params{}, 60_000, 1, 9_000_000, "last rate / F(7), and yet the workers are busy all the time: a backlog of 9,000,000 records keeps them so; while that is so, none is let go. demand = 1"},
		"an emulated step":            {Params{}, 60_000, 0.97, 3_000, "the workers are busy all the time: steps take as long whatever they hold, as emulated ones do"},
		"by demand":                   {Params{"demand": 1}, 60_000, 1, 9_000_000, ""},
		"all are needed":              {Params{}, 89_000, 1, 9_000_000, ""}, // 89,000 / 16,000 / 0.8 = 6.95
		"not busy all the time":       {Params{}, 60_000, 0.85, 3_000, ""},
		"busy no more than they must": {Params{}, 60_000, 60. / 112, 3_000, ""},
	} {
		for _, policy := range []string{"hpa", "autopilot"} {
			p, err := New(policy, c.params)
			if err != nil {
				t.Fatal(err)
			}
			o := reference()
			o.Flow, o.BacklogRecords = Flow{Known: true, Busy: c.busy, Trained: c.busy * 112_000}, c.backlog
			o.setRates(c.rate)
			text := p.Decide(o).Explain()
			if told := strings.Contains(text, line); told != (c.want != "") || !strings.Contains(text, c.want) {
				t.Errorf("%s, %s: it lacks %q, or says too much:\n%s", policy, name, c.want, text)
			}
		}
	}
	o := reference() // as few as may be
	o.Target, o.Workers, o.Flow = 2, Workers{Running: 2}, Flow{Known: true, Busy: 1, Trained: 32_000}
	o.setRates(10_000)
	if text := policy(t, "hpa").Decide(o).Explain(); strings.Contains(text, line) {
		t.Errorf("of the least that are allowed:\n%s", text)
	}
}

// With demand the HPA asks no worker: while none is ready it decides all the same, and says what it went by.
func TestHPADemand(t *testing.T) {
	p, err := New("hpa", Params{"guard": 0, "demand": 1})
	if err != nil {
		t.Fatal(err)
	}
	o := reference()
	o.Workers, o.UtilKnown = Workers{Pending: 7}, false
	o.setRates(140_000)
	if d := p.Decide(o); d.Target != 11 || !strings.Contains(d.Reason, "what arrives keeps 125 % of the workers busy") { // 140,000 / 16,000 / 0.8 = 10.9
		t.Errorf("%d workers, want 11\n%s", d.Target, d.Explain())
	}
	o.Rates.Values = nil
	if d := p.Decide(o); d.Target != 7 || !strings.Contains(d.Explain(), "no rate was measured yet") {
		t.Errorf("%d workers without a rate, want 7\n%s", d.Target, d.Explain())
	}
}

// Over how long Autopilot averages goes by its window, and so does what it says of it.
func TestAutopilotSaysOverHowLongItAverages(t *testing.T) {
	for window, want := range map[float64]string{ // minutes
		16:          "of the last 16m, level 0.98 of its averages over 2m",
		60:          "of the last 1h, level 0.98 of its averages over 5m",
		7 * 24 * 60: "of the last 168h, level 0.98 of its averages over 35m", // no more than 288 of them are kept
	} {
		p, err := New("autopilot-short", Params{"guard": 0, "window": window, "percentile": 0.98})
		if err != nil {
			t.Fatal(err)
		}
		o := reference()
		o.Flow = Flow{Known: true, Busy: 0.8, Trained: 80_000}
		s := NewSuccession(p)
		for range 30 { // until the first usage counts
			s.Decide(o)
			o.Now = o.Now.Add(o.Interval)
		}
		d := s.Decide(o)
		if text := d.Explain(); !strings.Contains(text, want) {
			t.Errorf("window of %g minutes: it lacks %q:\n%s", window, want, text)
		}
	}
}
