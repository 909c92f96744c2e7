package forecast

import (
	"compress/gzip"
	"encoding/csv"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// trace reads a rate curve `timestamp,rate` from the folder $KALE_TRACES, and
// skips the test without one. Bins without a row are NaN.
func trace(t testing.TB, file string, step time.Duration) Series {
	t.Helper()
	dir := os.Getenv("KALE_TRACES")
	if dir == "" {
		t.Skip("set KALE_TRACES to a folder of rate curves (timestamp,rate; .csv.gz) to measure forecasters on them")
	}
	f, err := os.Open(filepath.Join(dir, file))
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("%s is not in $KALE_TRACES", file)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	s := Series{Step: step}
	for r := csv.NewReader(z); ; {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return s
		}
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339, row[0])
		if err != nil {
			continue // the header
		}
		v, err := strconv.ParseFloat(row[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		if s.Start.IsZero() {
			s.Start = at
		}
		for i := s.Bin(at); len(s.Values) <= i; {
			s.Values = append(s.Values, math.NaN())
		}
		s.Values[s.Bin(at)] = v
	}
}

// TestTraces measures the forecasters on real traffic: rolling origin over the
// last 30 % of each trace, horizon an hour or a few bins, and prints what it
// measured. It fails where the seasonal forecaster does not beat seasonal naive,
// by far on traffic that has a cycle.
func TestTraces(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		file         string
		step         time.Duration
		steps, every int
		keep         int     // bins of history that a forecast sees
		factor       float64 // the WAPE is to be below this share of naive's
	}{
		{"worldcup98_1min.csv.gz", time.Minute, 60, 97, 28 * 1440, 0.5},
		{"nyc_taxi_30min.csv.gz", 30 * time.Minute, 8, 3, 56 * 48, 0.5},
		{"twitter_mentions10_5min.csv.gz", 5 * time.Minute, 12, 5, 28 * 288, 0.9},
		{"aws_elb_requests_5min.csv.gz", 5 * time.Minute, 12, 5, 28 * 288, 1},
		{"metro_i94_1h.csv.gz", time.Hour, 6, 29, 56 * 24, 0.6},
	} {
		t.Run(c.file, func(t *testing.T) {
			s := trace(t, c.file, c.step)
			seasons := []time.Duration{day, 7 * day}
			first := len(s.Values) * 7 / 10
			o := BacktestOptions{Steps: c.steps, First: first, Every: c.every}
			seasonal, err := Backtest(lastBins{NewSeasonal(seasons), c.keep}, s, o)
			if err != nil {
				t.Fatal(err)
			}
			naive := naiveKnown(s, int(day/c.step), o)
			t.Logf("seasonal: WAPE %.4f (first bin %.4f, last %.4f), MAPE %.3f, 10–90 %% band covers %.3f; naive: WAPE %.4f; %d origins of %d bins",
				seasonal.WAPE, seasonal.PerHorizon[0].WAPE, seasonal.PerHorizon[c.steps-1].WAPE, seasonal.MAPE, seasonal.Coverage, naive, seasonal.Origins, c.steps)
			if !(seasonal.WAPE < c.factor*naive) {
				t.Errorf("the seasonal forecaster's WAPE is %.4f and seasonal naive's %.4f; it should be below %v of it", seasonal.WAPE, naive, c.factor)
			}
			traceModel(t, s, c.keep, seasons, o)
		})
	}
}

// traceModel trains a model on what lies before the first origin and measures it
// on the week after, where the trace is long enough.
func traceModel(t *testing.T, s Series, keep int, seasons []time.Duration, o BacktestOptions) {
	past := Series{Start: s.Start, Step: s.Step, Values: s.Values[max(0, o.First-keep):o.First]}
	past.Start = s.At(max(0, o.First-keep))
	file, r, err := TrainLinear(past, LinearOptions{Horizon: o.Steps, Seasons: seasons})
	if err != nil {
		t.Logf("linear model: %v", err)
		return
	}
	week := s.Until(s.At(o.First + int(7*24*time.Hour/s.Step)))
	model, err := Backtest(open(t, file), week, o)
	if err != nil {
		t.Logf("linear model: %v", err)
		return
	}
	seasonal, err := Backtest(lastBins{NewSeasonal(seasons), keep}, week, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the week after training: linear model WAPE %.4f (band covers %.3f), seasonal %.4f, naive %.4f; lags %v, windows %v, ridge %g, file of %d bytes",
		model.WAPE, model.Coverage, seasonal.WAPE, naiveKnown(week, int(seasons[0]/s.Step), o), r.Lags, r.Windows, r.Ridge, len(file))
}

// lastBins shows a forecaster only the last n bins of a history, as the scheduler
// does.
type lastBins struct {
	Forecaster
	n int
}

func (l lastBins) Forecast(s Series, steps int) (Forecast, error) {
	if from := len(s.Values) - l.n; from > 0 {
		s = Series{Start: s.At(from), Step: s.Step, Values: s.Values[from:]}
	}
	return l.Forecaster.Forecast(s, steps)
}

// naiveKnown is naiveWAPE of a series with gaps: over the bins of which both are
// known.
func naiveKnown(s Series, season int, o BacktestOptions) float64 {
	wrong, total := 0.0, 0.0
	for origin := o.First; origin < len(s.Values); origin += o.Every {
		for i := origin; i < min(origin+o.Steps, len(s.Values)); i++ {
			if d := math.Abs(s.Values[i] - s.Values[i-season]); !math.IsNaN(d) {
				wrong, total = wrong+d, total+s.Values[i]
			}
		}
	}
	return wrong / total
}
