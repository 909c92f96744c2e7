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
