package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/forecast"
)

// seldom is naive, with an answer at some moments only.
type seldom struct {
	forecast.Forecaster
	name    string
	answers func(bins int) bool
}

func (s seldom) Name() string { return s.name }

func (s seldom) Forecast(history forecast.Series, steps int) (forecast.Forecast, error) {
	if !s.answers(len(history.Values)) {
		return forecast.Forecast{}, errors.New("not now")
	}
	return s.Forecaster.Forecast(history, steps)
}

// Moments after which nothing was measured are not asked for. A forecaster that has an answer at few of the others takes none from the rest: it is measured at its own, beside
// seasonal there, in a note; one that has one at nearly all is measured beside the rest at those.
func TestForecastEvalOverGaps(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	rng := rand.New(rand.NewPCG(3, 5))
	s := forecast.Series{Start: time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), Step: time.Hour, Values: make([]float64, 56*24)}
	for i := range s.Values {
		s.Values[i] = (1000 + 400*math.Sin(2*math.Pi*float64(i)/24)) * (1 + 0.05*rng.NormFloat64())
		if d := i / 24 % 7; d >= 5 {
			s.Values[i] = math.NaN()
		}
	}
	first, naive := len(s.Values)*7/10, forecast.NewNaive(day)
	asked := map[int]bool{}
	often, half := 0, 0
	contenders := []contender{
		single(forecast.NewSeasonal([]time.Duration{day})),
		single(seldom{naive, "often", func(bins int) bool { asked[bins] = true; often++; return often%20 != 0 }}),
		single(seldom{naive, "half", func(int) bool { half++; return half%2 == 0 }}),
	}
	var out, errs buffer
	var e evaluation
	p := past{series: s, steps: 4, seasons: []time.Duration{day}}
	if err := newShell(t).app(&out, &errs).evalAll(t.Context(), contenders, p, first, []int{1, 4}, evalFlags{origins: 100, workers: 1}, &e); err != nil {
		t.Fatal(err)
	}
	for bins := range asked {
		if math.IsNaN(s.Values[bins]) && (bins+3 >= len(s.Values) || math.IsNaN(s.Values[bins+3])) {
			t.Errorf("at bin %d nothing that is asked for was measured", bins)
		}
	}
	if e.Planned != len(asked) || e.Moments != e.Planned-e.Planned/20 || e.Planned < 45 || e.Planned > 60 {
		t.Errorf("measured at %d of %d moments, %d were asked for", e.Moments, e.Planned, len(asked))
	}
	if len(e.Rows) != 4 {
		t.Errorf("%d rows, want those of two forecasters: %+v", len(e.Rows), e.Rows)
	}
	said := ""
	for _, n := range e.Notes {
		said += n.Model + ": " + n.Note + "\n"
	}
	for _, want := range []string{
		fmt.Sprintf("half: not measured beside the others: it has an answer at only %d of %d moments. At these its pinball loss is 1h ", e.Planned/2, e.Planned),
		"(seasonal ", ", 4h ", "Elsewhere: not now", fmt.Sprintf("often: no answer at %d of %d moments", e.Planned/20, e.Planned),
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the notes are\n%s\nwant %q", said, want)
		}
	}
	for i := first; i < len(s.Values); i++ {
		s.Values[i] = math.NaN()
	}
	err := newShell(t).app(&out, &errs).evalAll(t.Context(), contenders, p, first, []int{1}, evalFlags{origins: 100, workers: 1}, &e)
	if err == nil || !strings.Contains(err.Error(), "from 2026-04-10T04:00:00Z on, was measured") {
		t.Errorf("of nothing: %v", err)
	}
}

// What is said of a fault is what can be: records that were sent again make no fall. It counts for none of the known bins; and a row of another year is named.
func TestForecastSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	sh, dir := newShell(t).asShipped(), t.TempDir()
	begin := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		last  string
		at    int
		want  []string
		never string
	}{
		"a fall":                {"2.45", 60, []string{"2.45 records/s, for a bin or two, are no traffic but a fault of measuring, or a bin of which not all was measured\n", "training on 61 bins of 1m, 60 of them known"}, "sent again"},
		"a rise":                {"15000", 60, []string{"a fault of measuring, or records sent again\n", "training on 61 bins of 1m, 60 of them known"}, "not all was measured"},
		"a row of another year": {"150", 70 * 365 * 1440, []string{"line 61 alone is of that time; if it is wrong, take the line out.", "a quarter of them is needed. The longest gap is of "}, "sent again"},
	} {
		trace := filepath.Join(dir, strings.ReplaceAll(name, " ", "")+".csv")
		var b strings.Builder
		for i := range 60 {
			fmt.Fprintf(&b, "%s,%d\n", begin.Add(time.Duration(i)*time.Minute).Format(time.RFC3339), 150+i%3)
		}
		fmt.Fprintf(&b, "%s,%s\n", begin.Add(time.Duration(c.at)*time.Minute).Format(time.RFC3339), c.last)
		if err := os.WriteFile(trace, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		r := sh.run("forecast", "train", "-trace", trace, "-season", "10m", "-horizon", "2m", "-o", filepath.Join(dir, "m.onnx"))
		for _, want := range c.want {
			if !strings.Contains(r.err, want) {
				t.Errorf("%s: it says\n%s\nwant %q", name, r.err, want)
			}
		}
		if strings.Contains(r.err, c.never) {
			t.Errorf("%s: it says\n%s", name, r.err)
		}
	}
	if r := sh.run("forecast", "eval", "-table", dir); !strings.Contains(r.err, dir+" has neither ETTh1.csv nor ETTh1.csv.gz") {
		t.Errorf("of a folder without the data sets: %s", r.err)
	}
}
