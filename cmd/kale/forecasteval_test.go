package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Every forecaster is measured at every horizon, on the same bins, and naive is the worst on traffic whose level changes.
func TestForecastEval(t *testing.T) {
	s := newShell(t)
	trace := filepath.Join(t.TempDir(), "rates.csv")
	if err := os.WriteFile(trace, []byte(daysOfTraffic()), 0o600); err != nil {
		t.Fatal(err)
	}
	var e evaluation
	if err := json.Unmarshal([]byte(s.must("forecast", "eval", "-trace", trace, "-origins", "40", "-json").out), &e); err != nil {
		t.Fatal(err)
	}
	bins, naive := map[float64]int{}, map[float64]float64{}
	for _, r := range e.Rows {
		for what, v := range map[string]*float64{"mae": r.MAE, "rmse": r.RMSE, "wape": r.WAPE, "mase": r.MASE, "pinball": r.Pinball, "coverage90": r.Coverage90} {
			if v == nil {
				t.Errorf("%s at %v min has no %s", r.Model, r.HorizonMin, what)
			}
		}
		if r.Model == "naive" {
			bins[r.HorizonMin], naive[r.HorizonMin] = r.Bins, *r.Pinball
		} else if r.Bins != bins[r.HorizonMin] || *r.Pinball >= naive[r.HorizonMin] {
			t.Errorf("%s at %v min: pinball %v over %d bins, and that of naive %v over %d", r.Model, r.HorizonMin, *r.Pinball, r.Bins, naive[r.HorizonMin], bins[r.HorizonMin])
		}
	}
	// Of the usual horizons 30 min, 1 h and 2 h are whole bins of 10 minutes.
	if e.Trace != trace || len(e.Rows) != 3*5 || len(naive) != 3 || naive[30] == 0 {
		t.Errorf("%d rows of %s, naive %v", len(e.Rows), e.Trace, naive)
	}
	if r := s.run("forecast", "eval", "-trace", trace, "-horizon", "15m"); r.code != exitUsage || !strings.Contains(r.err, "not a whole number of bins of 10m") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	// What cannot learn from a short history is left out, and that is said.
	text := s.must("forecast", "eval", "-trace", trace, "-history", "3d", "-horizon", "1h", "-season", "24h").out
	if !strings.Contains(text, "nlinear: left out: train nlinear: history is too short") || strings.Contains(text, "ensemble") {
		t.Errorf("of three days:\n%s", text)
	}
}

// The table is of windows of the four last months of twenty, in units of the deviation of the first twelve.
func TestForecastTable(t *testing.T) {
	s := newShell(t)
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString("date,HUFL,OT\n")
	at := time.Date(2016, 7, 1, 0, 0, 0, 0, time.UTC)
	for i := range 20 * 720 {
		daily := math.Sqrt2 * math.Sin(2*math.Pi*float64(i)/24)
		if i >= 16*720 && i/24%2 == 1 {
			daily += 1
		}
		fmt.Fprintf(&b, "%s,1.0,%.6f\n", at.Add(time.Duration(i)*time.Hour).Format(time.DateTime), 10*daily-5)
	}
	if err := os.WriteFile(filepath.Join(dir, "ETTh1.csv"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var rows []tableRow
	if err := json.Unmarshal([]byte(s.must("forecast", "eval", "-table", dir, "-only", "ETTh1/96", "-origins", "12", "-json").out), &rows); err != nil {
		t.Fatal(err)
	}
	var models []string
	for _, r := range rows {
		models = append(models, r.Model)
		if r.Dataset != "ETTh1" || r.Horizon != 96 || r.Published != 0.079 || r.MSE == nil || r.MAE == nil {
			t.Errorf("%+v", r)
		}
	}
	if got := strings.Join(models, " "); got != "naive seasonal nlinear ensemble" {
		t.Fatalf("models %s", got)
	}
	// The deviation is 10, and every second day lies 10 higher than the days beside it: naive is one deviation off on half of the bins.
	if got := *rows[0].MSE; math.Abs(got-0.5) > 0.03 {
		t.Errorf("MSE of naive is %v, want about 0.5", got)
	}
	if r := s.run("forecast", "eval", "-table", dir, "-only", "ETTm2/96"); r.code != exitFailed || !strings.Contains(r.err, "read the data set ETTm2: ") {
		t.Errorf("without a file: exit code %d, %s", r.code, r.err)
	}
}
