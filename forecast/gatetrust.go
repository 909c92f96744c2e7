package forecast

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// When a forecast is trusted; see [GateOptions]. That some kinds of traffic cannot be foreseen better than by 40 % makes forecasts of them no less
// true, and where they usually are within 3 % an error of 20 % says that something is wrong. What is doubted costs GPUs, as no worker is let go meanwhile: on
// the taxis of New York a limit of twice their usual 8 % raises the cost of policy kale by 4 to 6 %, since it doubts through the day before a blizzard.
const (
	usualTimes   = 5    // what is usual is the limit, where that is less than MaxWAPE,
	usualFloor   = 0.15 // and no less: below it there is nothing to doubt.
	noiseTimes   = 2    // What is usual is the limit where that is more than MaxWAPE,
	noiseMost    = 2    // up to so many times MaxWAPE.
	usualLeast   = 8    // scores, each over a window of its own, that tell what is usual: their median
	usualSpan    = 28 * 24 * time.Hour
	usualKept    = 128
	trustReturns = 0.8  // of the limit
	staleShare   = 0.25 // of the horizon: an older last measurement is not trusted
	staleMinBins = 3
)

// PastScore is the error over a window of the forecaster that was in use at its end.
type PastScore struct {
	At    time.Time
	Using string // its name, or name and ID
	WAPE  float64
}

// trust decides whether the forecast may be acted upon.
func (g *Gate) trust(v *Verdict, now time.Time, history Series, steps int, o GateOptions) {
	score := v.Recent
	limit, usual := g.limit(v, o)
	upTo := fmt.Sprintf("it is trusted up to %.1f %%", 100*limit)
	if g.state.Untrusted {
		upTo = fmt.Sprintf("it is trusted again below %.1f %%, four fifths of the %.1f %% up to which it was", 100*trustReturns*limit, 100*limit)
		limit *= trustReturns
	}
	known := len(history.Values)
	for known > 0 && math.IsNaN(history.Values[known-1]) {
		known--
	}
	age := now.Sub(history.At(known))
	oldest := max(time.Duration(staleShare*float64(steps)), staleMinBins) * history.Step
	if age <= oldest && score.Bins >= o.MinBins {
		defer g.remember(PastScore{At: history.End(), Using: g.inUse(v), WAPE: score.WAPE}, o)
	}
	switch {
	case age > oldest:
		v.Reason = fmt.Sprintf("the last measurement is %v old; a forecast of %v is trusted up to %v", length(age), length(time.Duration(steps)*history.Step), length(oldest))
	case score.Bins < o.MinBins:
		v.Reason = fmt.Sprintf("%s has been scored on %d forecasts of bins that have come; %d are needed", v.Using, score.Bins, o.MinBins)
	case score.WAPE > limit:
		v.Scored = true
		v.Reason = fmt.Sprintf("the recent error of %s is %v; %s%s", v.Using, score, upTo, usual)
		g.state.Untrusted = true
	default:
		v.Trusted, v.Scored = true, true
		v.Reason = fmt.Sprintf("the recent error of %s is %v", v.Using, score)
		g.state.Untrusted = false
	}
}

// inUse is the identity of the forecaster that the verdict is for.
func (g *Gate) inUse(v *Verdict) string {
	if g.primary == nil || v.FallenBack {
		return g.state.Fallback
	}
	return g.state.Primary
}

// limit is the error above which the forecaster in use is not trusted, and, in words, what makes it another than MaxWAPE.
func (g *Gate) limit(v *Verdict, o GateOptions) (limit float64, why string) {
	var past []float64
	for _, p := range g.state.Past {
		if p.Using == g.inUse(v) {
			past = append(past, p.WAPE)
		}
	}
	if len(past) < usualLeast {
		return o.MaxWAPE, ""
	}
	usual := median(past)
	limit = max(min(max(usualTimes*usual, usualFloor), o.MaxWAPE), min(noiseTimes*usual, noiseMost*o.MaxWAPE))
	return limit, fmt.Sprintf(", since usually it is %s", errorWords(usual))
}

// remember keeps a score when a window has passed since the last.
func (g *Gate) remember(p PastScore, o GateOptions) {
	past := g.state.Past
	if n := len(past); n > 0 && p.At.Before(past[n-1].At.Add(o.Window)) {
		return
	}
	// A new slice: a copy of the state may hold the one before.
	past = append(slices.Clone(past), p)
	past = slices.DeleteFunc(past, func(old PastScore) bool { return p.At.Sub(old.At) > usualSpan })
	g.state.Past = past[max(0, len(past)-usualKept):]
}

// ownPast are the past scores of a saved state that are the gate's forecasters'.
func (g *Gate) ownPast(s GateState) (out []PastScore, err error) {
	for i, p := range s.Past {
		if !(p.WAPE >= 0) || i > 0 && p.At.Before(s.Past[i-1].At) {
			return nil, fmt.Errorf("restore forecast gate: past score %d, of %v, is %v: start the gate without this state", i, p.At, p.WAPE)
		}
		if p.Using == g.state.Primary || p.Using == g.state.Fallback {
			out = append(out, p)
		}
	}
	return out, nil
}
