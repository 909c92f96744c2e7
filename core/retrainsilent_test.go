package core

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/forecast"
)

// A model in use that never answers cannot be measured: one that answers, and beats seasonal and seasonal naive by more than chance, takes its place, and why is told.
func TestRetrainReplacesWhatNeverAnswers(t *testing.T) {
	const silent = "it is too slow: ONNX Runtime had not answered after 1m, and was stopped"
	for _, c := range []struct {
		name    string
		failing string
		change  func(*ForecastTrained)
		taken   bool
		says    string
	}{
		{"better", silent, func(*ForecastTrained) {}, true, "promoted: the one in use gives no forecast (" + silent + "), so that seasonal forecasts instead; of the one that was trained anew its error is 1.00 %, that of seasonal 2.00 %, of seasonal naive 5.00 %"},
		{"no better than naive but for chance", silent, func(t *ForecastTrained) { t.OverNaive.SE = 0.03 }, false, ": its lead over seasonal naive may be chance"},
		{"no better than seasonal but for chance", silent, func(t *ForecastTrained) { t.OverSeasonal.SE = 0.03 }, false, "that may be chance, which a lead of more than 6 points"},
		{"it answers here", "", func(*ForecastTrained) {}, false, "too little is known of recent traffic to compare it"},
		{"nobody knows", silent, func(t *ForecastTrained) { t.Silent = "" }, false, "too little is known of recent traffic to compare it"},
	} {
		r := newRetrained(t)
		r.started(1)
		raw, id, err := someModel(20, []time.Duration{time.Minute}, 1)
		if err != nil {
			t.Fatal(err)
		}
		what := ForecastTraining{Out: filepath.Join(r.state, candidateFile), Current: job.ForecastEnsemble}
		if err := os.WriteFile(what.Out, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		got := surely(ForecastTrained{ID: id, Origins: 24, From: r.now, Model: 0.01, Current: math.NaN(), Seasonal: 0.02, Naive: 0.05, Silent: silent})
		got.OverNaive = forecast.Lead{By: 0.04, SE: 0.001}
		c.change(&got)
		r.s.foresee.failing, r.s.foresee.path = c.failing, job.ForecastEnsemble
		r.s.want.Retraining = &retraining{Tried: r.now}
		if err := r.s.trained(r.now, &trainingRun{began: r.now, what: what, got: got, cancel: func() {}}); err != nil {
			t.Fatal(err)
		}
		r.until("it is taken or not", func() error {
			if r.s.want.Retraining.Taking != nil {
				return errors.New("it is under way")
			}
			return nil
		})
		if says := r.s.want.Retraining.Past[0].Says; (r.s.foresee.model != nil) != c.taken || !strings.Contains(says, c.says) {
			t.Errorf("%s: taken %v, %q", c.name, r.s.foresee.model != nil, says)
		}
		if c.taken {
			r.beat()
			if _, err := r.note("a forecast model that was trained anew is in use: the one in use gives no forecast (" + silent + ")"); err != nil {
				t.Error(err)
			}
		}
	}
}
