package plan

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The text that `kale explain` shows, compared with testdata/explain.golden.
func TestExplain(t *testing.T) {
	var b strings.Builder
	for _, c := range []struct {
		title, policy string
		change        func(*Observation)
	}{
		{"a quiet moment", "kale", func(*Observation) {}},
		{"a ramp ahead, with a short swing before it", "kale", func(o *Observation) {
			m := stepAt(100_000, 180_000, 4, 40)
			m[12], m[13] = 120_000, 120_000
			o.setForecast(m)
			o.Headroom = 0.1
		}},
		{"lag", "kale", func(o *Observation) { o.Lag, o.BacklogRecords = 12*time.Minute, 60_000_000 }},
		{"not trusted", "kale", func(o *Observation) {
			o.Forecast.Trusted, o.Forecast.Reason = false, "the last hour's error is 31 %"
			o.setRates(60_000)
		}},
		{"cooldown", "kale", func(o *Observation) {
			o.setForecast(flat(40_000, 60))
			o.State = state{Version: 1, LastOut: o.Now.Add(-4 * time.Minute)}.encode()
		}},
		{"saturated", "kale", func(o *Observation) { o.setForecast(flat(900_000, 60)) }},
		{"an outage per rescale, a short forecast, an assumed join time", "kale", func(o *Observation) {
			o.RescaleCost = Measured{Value: 6 * time.Minute, Samples: 2}
			o.JoinTime.Samples = 0
			o.setForecast(flat(150_000, 12))
		}},
		{"a queue", "kale", func(o *Observation) { o.JoinTime.Value, o.JoinTime.Queue = 10*time.Minute, 6*time.Minute }},
		{"unknown", "kale", func(o *Observation) { o.Hold = Hold{Unknown: true, Reason: "the chief does not answer since 40s"} }},
		{"impossible", "kale", func(o *Observation) { o.Limits = Limits{Min: 9, Max: 3} }},
		{"follow", "follow", func(o *Observation) { o.setRates(109_000) }},
		{"static", "static", func(*Observation) {}},
	} {
		o := reference()
		c.change(&o)
		b.WriteString("# " + c.title + "\n" + policy(t, c.policy).Decide(o).Explain() + "\n")
	}
	golden := filepath.Join("testdata", "explain.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("(-golden +got; go test ./core/plan -update rewrites it):\n%s", d)
	}
}

func TestNumbersForPeople(t *testing.T) {
	for want, x := range map[string]float64{"0": 0, "7": 7, "1,234,567": 1_234_567.4, "-12,000": -12_000, "0.85": 0.85, "99.5": 99.5, "123": 123.4} {
		if got := formatNumber(x); got != want {
			t.Errorf("formatNumber(%v) = %q, want %q", x, got, want)
		}
	}
	for want, d := range map[string]time.Duration{
		"10m": 10 * time.Minute, "1h": time.Hour, "1h30m": 90 * time.Minute, "1.67s": 1667 * time.Millisecond, "1m30s": 90 * time.Second, "0s": 0, "250ms": 250 * time.Millisecond,
		"20h": 20 * time.Hour, "10s": 10 * time.Second,
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("formatDuration(%v) = %q, want %q", d, got, want)
		}
	}
}

// "smallest w with F(w) > load" is said of Eq. 10 only where it is so: not where a limit, of the job or of the pool, binds.
func TestEq10SaysWhatHolds(t *testing.T) {
	for _, c := range []struct {
		limits   Limits
		multiple float64
		load     float64
		want     float64
		says     string
	}{
		{Limits{Min: 2, Max: 28}, 1, 100_000, 7, "smallest w with F(w) > load, within 2 to 28"},
		{Limits{Min: 2, Max: 6}, 1, 100_000, 6, "F(6) is the most within the limits of 2 to 6, and no more than the load"},
		{Limits{Min: 2, Max: 6, Why: "the pool leaves no more"}, 1, 100_000, 6, "F(6) is the most within the limits of 2 to 6 (the pool leaves no more), and no more than the load"},
		{Limits{Min: 9, Max: 28}, 1, 100_000, 9, "the least allowed, and F(8) > load already, within 9 to 28"},
		{Limits{Min: 2, Max: 28}, 2, 100_000, 8, "smallest multiple of 2 with F(w) > load, within 2 to 28"},
		{Limits{Min: 2, Max: 7}, 2, 100_000, 7, "the most allowed; the smallest multiple of 2 with F(w) > load is more, within 2 to 7"},
	} {
		o := reference()
		o.Limits = c.limits
		o.setForecast(flat(c.load, 60))
		p, err := New("kale", Params{"multiple": c.multiple})
		if err != nil {
			t.Fatal(err)
		}
		for _, term := range p.Decide(o).Terms {
			if term.Name == "Eq. 10" && (float64(term.Value) != c.want || term.Expr != "most within the lead, "+c.says) {
				t.Errorf("limits %v, multiples of %g: %g, %q; want %g, %q", c.limits, c.multiple, term.Value, term.Expr, c.want, c.says)
			}
		}
	}
}
