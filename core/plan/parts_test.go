package plan

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/estimator"
)

var numbers = regexp.MustCompile(`[-+]?[0-9][0-9,]*(\.[0-9]+)?`)

// sumOf adds the numbers that a text shows.
func sumOf(t *testing.T, text string) (sum float64) {
	t.Helper()
	for _, n := range numbers.FindAllString(text, -1) {
		v, err := strconv.ParseFloat(strings.ReplaceAll(n, ",", ""), 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += v
	}
	return sum
}

// What a cost is made of adds up to it: as numbers, and in the digits that are shown, in the terms as in the reason.
func TestCostAddsUp(t *testing.T) {
	t.Parallel()
	costs := func(name string) bool {
		return name == "expected cost" || name == "to stay" || name == "one fewer" || name == "one more"
	}
	gains := regexp.MustCompile(`cost ([0-9.,]+) GPU-hours less than [0-9]+ over the next [^:]+: (.*)`)
	for _, live := range []bool{false, true} {
		for _, current := range []int{2, 5, 9, 14, 20} {
			o := busyMoment(1)
			o.Target, o.Workers.Running = current, current
			if live {
				o.RescaleCost, o.JoinTime = Measured{Samples: 3}, Measured{Value: 40 * time.Second, Samples: 3}
			}
			d, told := policy(t, "cost").Decide(o), 0
			for _, term := range d.Terms {
				if !costs(term.Name) {
					continue
				}
				told++
				sum := 0.0
				for _, p := range term.Parts {
					sum += float64(p.Value)
				}
				if len(term.Parts) < 2 || math.Abs(sum-float64(term.Value)) > 1e-6 {
					t.Errorf("%s is %v and its parts are %v, together %v", term.Name, term.Value, term.Parts, sum)
				}
				value := sumOf(t, strings.TrimSuffix(term.text(), " GPU-h"))
				if shown := sumOf(t, partsText(float64(term.Value), term.Parts)); math.Abs(shown-value) > 1e-9 {
					t.Errorf("%s %s: %s, together %v", term.Name, term.text(), term.how(), shown)
				}
			}
			if told < 2 {
				t.Errorf("only %d costs in\n%s", told, d.Explain())
			}
			if m := gains.FindStringSubmatch(d.Reason); m != nil && math.Abs(sumOf(t, m[1])+sumOf(t, m[2])) > 1e-9 {
				t.Errorf("the reason's parts do not add up: %s", d.Reason)
			} else if m == nil && d.Target != current {
				t.Errorf("the reason has no parts: %s", d.Reason)
			}
		}
	}
}

// Parts that are shown add up, whatever they are, and none is off by more than the last digit.
func TestPartsAreSharedOut(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		scale, sum := math.Pow(10, 8*rng.Float64()-5), 0.0
		parts := make([]Part, 1+rng.IntN(6))
		for i := range parts {
			parts[i] = Part{Name: "part", Value: Number(scale * (rng.Float64() - 0.3))}
			sum += float64(parts[i].Value)
		}
		value := sumOf(t, formatHours(sum))
		if shown := sumOf(t, partsText(sum, parts)); math.Abs(shown-value) > 1e-9*max(1, math.Abs(value)) {
			t.Fatalf("%v are shown as %q, together %v instead of %s", parts, partsText(sum, parts), shown, formatHours(sum))
		}
	}
	if got, want := partsText(36.4, []Part{{"a", 33.2}, {"b", 0.584}, {"c", 2.29}, {"d", 0.326}}), "a 33.2, b 0.6, c 2.3, d 0.3"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A cost is written with the digits that tell it from another, however small the job.
func TestHoursForPeople(t *testing.T) {
	for want, v := range map[string]string{"36.4": "36.412", "0.211": "0.2111", "0.00123": "0.0012345", "-0.000070": "-0.00007", "2": "2", "0": "0", "1,234": "1234.4", "0.500": "0.50000001"} {
		x, err := strconv.ParseFloat(v, 64)
		if got := formatHours(x); err != nil || got != want && !(want == "-0.000070" && got == "-0.0000700") {
			t.Errorf("formatHours(%s) = %q, want %q", v, got, want)
		}
	}
	o := smallMoment()
	o.Target, o.Workers.Running = 2, 2
	d := policy(t, "cost").Decide(o)
	if text := d.Explain(); strings.Contains(text, "0.00 ") || strings.Contains(text, "no difference") || strings.Contains(text, " 0 GPU-h") {
		t.Errorf("differences that are not told:\n%s", text)
	}
}

// smallMoment is half a minute of a small job: nothing costs more than hundredths of a GPU-hour, save a rescale.
func smallMoment() Observation {
	o := reference()
	o.Interval, o.MaxLag = time.Second, 20*time.Second
	o.Model = estimator.Model{Form: estimator.FormAsync, Theta: []float64{1.0 / 300, 0, 0}}
	o.RescaleCost, o.JoinTime = Measured{Samples: 3}, Measured{Value: 2 * time.Second, Samples: 3}
	o.CooldownIn, o.CooldownOut = 0, 0
	o.Limits, o.Lag, o.BacklogRecords = Limits{Min: 1, Max: 4}, 0, 0
	o.setRates(200)
	o.setForecast(flat(200, 30))
	return o
}

// Where the limits leave no choice they are the reason, and to keep what they forbid has no price.
func TestCostNamesTheLimitsThatForce(t *testing.T) {
	for _, name := range Names() {
		o := smallMoment()
		o.Target, o.Workers = 0, Workers{}
		d := policy(t, name).Decide(o)
		if d.Target < 1 {
			t.Errorf("%s: %d workers, and 1 is the least", name, d.Target)
		}
		if before, cut := d.Term("before limits"); cut && before.Value == 0 && !strings.HasPrefix(d.Reason, "the limits are 1 to 4 workers and none is in force; ") {
			t.Errorf("%s: %s", name, d.Reason)
		}
		if strings.Contains(d.Reason, "nothing now") || strings.Contains(d.Reason, "than 0") {
			t.Errorf("%s: %s", name, d.Reason)
		}
		if name != "cost" {
			continue
		}
		for _, term := range d.Terms {
			if strings.Contains(term.Expr, "more at 0") {
				t.Errorf("what is forbidden has a price: %s", term.how())
			}
		}
		if !strings.Contains(d.Reason, "the limits are 1 to 4 workers and none is in force; of these 1 costs least over the next 30s; 2 would cost 0.00828") {
			t.Errorf("%s", d.Explain())
		}
	}
}

// During a cooldown it is that which keeps workers, and not what they cost.
func TestCostNamesTheCooldown(t *testing.T) {
	o := smallMoment()
	o.Target, o.Workers.Running, o.CooldownIn = 3, 3, time.Minute
	o.State = state{Version: stateVersion, LastOut: o.Now.Add(-10 * time.Second)}.encode()
	d := policy(t, "cost").Decide(o)
	if d.Target != 3 || !strings.Contains(d.Reason, "none may go for another 50s (the cooldown)") {
		t.Errorf("%s", d.Explain())
	}
}

// A backlog that is not known is not told as none.
func TestBacklogNotKnownIsSaid(t *testing.T) {
	o := busyMoment(1)
	o.Lag, o.LagKnown, o.BacklogRecords = 0, false, 0
	d := policy(t, "cost").Decide(o)
	term, _ := d.Term("backlog")
	raw := encode(t, term)
	if term.text() != "not known" || !strings.Contains(raw, `"value":null`) {
		t.Errorf("backlog %s %s: %s", term.text(), term.how(), raw)
	}
}

// Rivals say what they wish for, and that the limits make something else of it.
func TestRivalsNameTheLimitThatCuts(t *testing.T) {
	o := smallMoment()
	o.Target, o.Workers.Running = 4, 4
	o.Lag, o.BacklogRecords, o.Flow = time.Second, 497, Flow{Known: true, Trained: 1100, Busy: 0.98}
	o.setRates(5000)
	o.setForecast(flat(5000, 30))
	for name, want := range map[string][]string{
		"hpa":       {"5 workers, which the limits of 1 to 4 make 4"},
		"keda":      {"50 workers, which the limits of 1 to 4 make 4"},
		"autopilot": {"before limits", "limits are 1 to 4"},
		"follow":    {"needs more than any 1 to 4 workers train"},
		"quantile":  {"needs more than any 1 to 4 workers train"},
		"madu":      {"before limits", "limits are 1 to 4"},
		"kale":      {"more than any 1 to 4 workers train"},
	} {
		text := policy(t, name).Decide(o).Explain()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s does not say %q:\n%s", name, w, text)
			}
		}
	}
	o.Partitions = 8
	if text := policy(t, "keda").Decide(o).Explain(); !strings.Contains(text, "50 workers, no more than the partitions: 8 workers, which the limits of 1 to 4 make 4") {
		t.Errorf("keda does not name what cuts:\n%s", text)
	}
}

// Every policy shows F of one worker fewer and of one more, where the limits allow them.
func TestNeighboursAreShown(t *testing.T) {
	for _, name := range Names() {
		for current := 1; current <= 4; current++ {
			o := smallMoment()
			o.Target, o.Workers.Running = current, current
			d := policy(t, name).Decide(o)
			want, _ := d.Term("wanted")
			_, fewer := d.Term("F(one fewer)")
			_, more := d.Term("F(one more)")
			if fewer != (want.Value > 1) || more != (want.Value < 4) {
				t.Errorf("%s wants %v of 1 to 4: one fewer %v, one more %v", name, want.Value, fewer, more)
			}
		}
	}
}

// Nothing is said of a time that the forecast does not reach.
func TestWindowEndsWithTheForecast(t *testing.T) {
	o := smallMoment()
	o.setForecast(flat(200, 10))
	o.Target, o.Workers.Running = 1, 1
	d := policy(t, "quantile").Decide(o)
	if term, _ := d.Term("window"); term.Value != 10 || !strings.Contains(term.Expr, "cut from 20m") || !strings.Contains(d.Reason, "within 10s ") {
		t.Errorf("%s", d.Explain())
	}
}

// A decision of before terms had parts is read as it was.
func TestTermWithoutParts(t *testing.T) {
	var d Decision
	const old = `{"terms":[{"name":"one fewer","expr":"more at 2: GPUs -0.50, lag +0.73","value":0.211,"unit":"GPU-h"}],"state":{}}`
	if err := json.Unmarshal([]byte(old), &d); err != nil {
		t.Fatal(err)
	}
	if text := d.Explain(); !strings.Contains(text, "0.211 GPU-h  more at 2: GPUs -0.50, lag +0.73\n") {
		t.Errorf("%s", text)
	}
	if raw := encode(t, Term{Name: "a"}); strings.Contains(raw, "parts") {
		t.Errorf("no parts are written as %s", raw)
	}
}
