package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/hindsight"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/forecast"
)

// forecastWords are a forecast for people: what it expects for now, who made it, whether it is trusted and why, and on what its bands rest.
func forecastWords(now *core.Band, f plan.Forecast) string {
	if now == nil {
		return "none" + trustWords(f)
	}
	return fmt.Sprintf("%s records/s for now (%s to %s), by %s%s; %s", number(now.Mean), number(now.Lower), number(now.Upper), f.Source, trustWords(f), bandsWords(f))
}

// trustWords say whether a forecast is trusted, and why, as the end of a sentence.
func trustWords(f plan.Forecast) string {
	switch {
	case !f.Trusted && f.Reason != "":
		return ", not trusted: " + f.Reason
	case !f.Trusted:
		return ", not trusted"
	case f.Reason != "":
		return "; " + f.Reason
	}
	return ""
}

// bandsWords say on what a forecast's bands rest.
func bandsWords(f plan.Forecast) string {
	switch {
	case f.Calibrated:
		return fmt.Sprintf("bands calibrated on %s", job.Count(f.Outcomes, "past outcome"))
	case f.Outcomes < forecast.CalibratedOutcomes:
		return fmt.Sprintf("bands not calibrated: %s of %d at every horizon", job.Count(f.Outcomes, "past outcome"), forecast.CalibratedOutcomes)
	}
	return fmt.Sprintf("bands not calibrated, though made from %s: how far off it is now is not known", job.Count(f.Outcomes, "past outcome"))
}

// foreseen is what kale plan -json says of the forecast that the decision was made from.
type foreseen struct {
	Source     string `json:"source"`  // the forecaster in use
	Trusted    bool   `json:"trusted"` // as far as the gate goes
	Reason     string `json:"reason,omitempty"`
	Calibrated bool   `json:"calibrated"`
	Outcomes   int    `json:"outcomes"` // that its bands were made from, at the horizon with the fewest
	// Events are those of the job's calendar that are under way or begin within two days, as in kale status.
	Events []forecast.Occasion `json:"events,omitempty"`
	// Past is how the forecasts of the last day came out, by how far ahead they were: left out where none has come to its time.
	Past []hindsight.Lead `json:"past,omitempty"`
}

// pastSpan is how far back a plan looks at what came of forecasts, as kale forecast show does.
const pastSpan = 24 * time.Hour

func newForeseen(events []forecast.Occasion, f plan.Forecast, past []hindsight.Lead) *foreseen {
	if f.Source == "" && f.Reason == "" {
		return nil
	}
	out := &foreseen{Source: f.Source, Trusted: f.Trusted, Reason: f.Reason, Calibrated: f.Calibrated, Outcomes: f.Outcomes, Events: events}
	for _, lead := range past {
		if lead.Bins > 0 {
			out.Past = append(out.Past, lead)
		}
	}
	return out
}

// pastForecasts asks the job's scheduler, or reads from its state, how the last day's forecasts came out; nil: that is not known. It writes nothing and waits
// for nobody.
func (a *app) pastForecasts(ctx context.Context, l *loaded) []hindsight.Lead {
	o := hindsight.Options{From: time.Now().Add(-pastSpan), Bins: 1}
	if c, err := a.answering(ctx, l.Name); err == nil {
		defer c.Close()
		r, err := c.Hindsight(ctx, o)
		if err != nil {
			return nil
		}
		return r.Leads
	}
	st, err := state.OpenReader(l.dir)
	if err != nil {
		return nil
	}
	r, err := hindsight.Of(st, o)
	if errors.Join(err, st.Close()) != nil {
		return nil
	}
	return r.Leads
}

// writeForeseen prints what a plan says of its forecast.
func writeForeseen(w io.Writer, p planned) {
	f := p.Observation.Forecast
	if p.Forecast == nil {
		return
	}
	fmt.Fprintf(w, "forecast %s\n", forecastWords(core.BandAt(f, p.Observation.Now), f))
	for _, o := range p.Forecast.Events {
		fmt.Fprintf(w, "calendar %s\n", core.OccasionWords(o, p.Observation.Now))
	}
	if len(p.Forecast.Past) > 0 {
		var leads []string
		for _, l := range p.Forecast.Past {
			leads = append(leads, fmt.Sprintf("%s of %s, %s ahead", percent(l.In90), job.Count(l.Bins, "bin"), job.Length(l.Lead)))
		}
		fmt.Fprintf(w, "held     in the band of 90 %% came, in the last %s, %s\n", job.Length(pastSpan), strings.Join(leads, "; "))
	}
}
