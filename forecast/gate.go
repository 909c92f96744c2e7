package forecast

import (
	"errors"
	"fmt"
	"time"
)

// GateOptions say how a [Gate] judges. The zero value of a field is its default.
type GateOptions struct {
	// Window is how far back the scores look; by default six times the horizon,
	// and no less than 120 bins. Longer is steadier, shorter is quicker to fall back.
	Window time.Duration
	// Tolerance is by how much the primary's error may exceed the fallback's before
	// the gate falls back; 0.1 by default: 10 %. It comes back when it exceeds it
	// by no more than a quarter of the margin.
	Tolerance float64
	// Margin is by how much it must exceed it besides, as a share of the traffic;
	// 0.01 by default. A difference of less than 1 % of the traffic moves no worker.
	Margin float64
	// Hold is the least time from one change to the next; a quarter of the window by
	// default. To come back after it has fallen back before, lately, it takes twice as long each time, up to 64 times: of two that are as good as each
	// other one is now and then the worse by chance. A primary that leads by more than three standard errors need not wait for that.
	Hold time.Duration
	// MaxWAPE is the error above which the forecaster in use is not trusted, until it is known what
	// is usual for it; 0.35 by default. Then the limit is five times what is usual, within 0.15 and MaxWAPE,
	// or twice what is usual where that is more, up to twice MaxWAPE. Trust returns below four fifths of the limit.
	MaxWAPE float64
	// MinBins is how many forecast bins must have been scored before a score counts;
	// two horizons by default.
	MinBins int
}

// Defaults of GateOptions, and what is not an option. They are ours: the paper has
// no gate. They were tried on the demo's traffic under 1, 3 and 10 % noise.
const (
	defaultTolerance = 0.1
	defaultMargin    = 0.01
	defaultMaxWAPE   = 0.35
	windowHorizons   = 6
	windowMinBins    = 120
	minBinsHorizons  = 2
	marginReturns    = 0.25 // of Margin
	forgetWindows    = 24   // so many windows in use undo one time that it fell back
	mostLeft         = 7    // times that it fell back count
	returnsSurely    = 3    // standard errors
	keptPerWindow    = 24   // forecasts kept for scoring, spread over the window
	gateStateVersion = 1
)

// validate fills in what does not depend on the history.
func (o GateOptions) validate() (GateOptions, error) {
	if o.Tolerance == 0 {
		o.Tolerance = defaultTolerance
	}
	if o.Margin == 0 {
		o.Margin = defaultMargin
	}
	if o.MaxWAPE == 0 {
		o.MaxWAPE = defaultMaxWAPE
	}
	if !(o.Tolerance > 0) || !(o.Margin > 0) || !(o.MaxWAPE > 0) || o.Window < 0 || o.Hold < 0 || o.MinBins < 0 {
		return o, fmt.Errorf("forecast gate: tolerance %v, margin %v, max WAPE %v, window %v, hold %v, min bins %d: none may be negative", o.Tolerance, o.Margin, o.MaxWAPE, o.Window, o.Hold, o.MinBins)
	}
	return o, nil
}

// scaled fills in the rest for a horizon.
func (o GateOptions) scaled(step time.Duration, steps int) GateOptions {
	if o.Window == 0 {
		o.Window = max(windowHorizons*time.Duration(steps), windowMinBins) * step
	}
	if o.Hold == 0 {
		o.Hold = o.Window / 4
	}
	if o.MinBins == 0 {
		o.MinBins = minBinsHorizons * steps
	}
	return o
}

// Gate chooses between a primary forecaster, such as a trained model, and a
// fallback that needs no training. It keeps recent forecasts of both, and as the
// bins that they were about arrive it compares their errors over the same bins and
// horizons. When the primary does worse, or fails, it uses the fallback and says
// so; it comes back when the primary is as good again. While next to nothing arrives
// (see [Series.Quiet]) it goes on with the one that it used. It also says whether the
// forecast is to be trusted at all.
//
// A Gate is pure: the time is an argument, and what it remembers is its [GateState],
// which can be saved and restored. It belongs to one goroutine.
type Gate struct {
	primary  Forecaster // nil: there is no model, only the fallback
	fallback Forecaster
	options  GateOptions
	state    GateState
	replaced string // the primary that had the place of this one; "": none had
	lost     string // why the one that was in use last, by the state that was restored, is not there; "": nobody has said
}

// NewGate returns a gate that has seen nothing: [Gate.Restore] or [Gate.Warm] it.
// primary may be nil, when there is no model to use.
func NewGate(primary, fallback Forecaster, o GateOptions) (*Gate, error) {
	if fallback == nil {
		return nil, errors.New("forecast gate: there is no fallback forecaster")
	}
	o, err := o.validate()
	if err != nil {
		return nil, err
	}
	g := &Gate{primary: primary, fallback: fallback, options: o}
	g.state = GateState{Version: gateStateVersion, Primary: identity(primary), Fallback: identity(fallback)}
	return g, nil
}

// identity is what makes the scores of one forecaster not those of another: its
// name, and the ID of a model file.
func identity(f Forecaster) string {
	if f == nil {
		return ""
	}
	if m, ok := f.(interface{ ID() string }); ok {
		return f.Name() + "@" + m.ID()
	}
	return f.Name()
}

// Lost says why the forecaster that was in use last, by the state that was restored, is not this gate's: the file of which was removed, for instance. It is told with the change.
func (g *Gate) Lost(why string) { g.lost = why }

// Replace puts another primary in place, for instance a model that was trained
// anew; nil leaves only the fallback. Its scores begin from nothing, until
// [Gate.Warm] or [Gate.Fill], and it is used from the next forecast on.
func (g *Gate) Replace(primary Forecaster) {
	if g.primary != nil {
		g.replaced = g.primary.Name()
	}
	g.primary = primary
	g.state.Primary = identity(primary)
	g.state.FallenBack, g.state.Left, g.state.Changed, g.state.Untrusted = false, 0, time.Time{}, false
	for i := range g.state.Kept {
		g.state.Kept[i].Primary = nil
	}
}

// FallenBack says whether the primary has been set aside for its errors.
func (g *Gate) FallenBack() bool { return g.primary != nil && g.state.FallenBack }

// Takes says whether the gate would use another primary in place of its own, by what that one has forecast (made) at the moments of [Gate.Moments], and both errors over
// the same bins. better: it has to have no greater error than the fallback, as where that is in use; else one that the gate would not set aside for will do. Where too few bins are
// scored, or next to nothing arrived, nothing is against it. The gate stays as it is.
func (g *Gate) Takes(primary Forecaster, made []Forecast, history Series, steps int, better bool) (takes bool, own, fallback Score) {
	o := g.options.scaled(history.Step, steps)
	trial := &Gate{primary: g.primary, fallback: g.fallback, options: g.options, state: g.State()}
	trial.Replace(primary)
	trial.forget(history, o)
	for _, f := range made {
		trial.Fill(f)
	}
	s := trial.scores(history.withoutFaults(0), o)
	p, f := s.primary.WAPE, s.fallback.WAPE
	switch {
	case s.primary.Bins < o.MinBins || s.quiet || p >= 1 && f >= 1: // as in judge
		takes = true
	case better:
		takes = p <= f
	default:
		takes = !o.worse(p, f)
	}
	return takes, s.primary, s.fallback
}

// Verdict is how a gate came to its forecast.
type Verdict struct {
	// Using is the name of the forecaster in use.
	Using string
	// FallenBack says that the primary exists and is not in use, and Why.
	FallenBack bool
	Why        string
	// Failed is why the primary, where there is one, gave no forecast; ErrNotReady is in its chain where it may give one yet. nil: it gave one.
	Failed error
	// Changed says that the choice differs from that of the forecast before, and Change what was in use, what is, and their errors over the same bins.
	Changed bool
	Change  string
	// Trusted says whether to act on the forecast; Reason says why not, or on what
	// the trust rests. It is never empty.
	Trusted bool
	Reason  string
	// Scored says that the forecaster in use was scored on enough bins, and that the
	// last measurement is recent: what it says of its own errors can be relied on,
	// even where they are too large for Trusted.
	Scored bool
	// Primary and Fallback are the scores over the same bins, those that both
	// forecast. Recent is that of the forecaster in use, on which the trust rests.
	Primary, Fallback, Recent Score
}

// Score is an error over the recent window.
type Score struct {
	// Bins are forecasts of a bin that has arrived: a bin counts as often as it was forecast. Distinct are the bins.
	Bins, Distinct int
	WAPE           float64 // Σ|actual−mean| / Σ actual, a fraction; 1 where silence was not expected
	// Seen are those of the bins that were forecast from before the end of the primary's training: what it says of them flatters it.
	Seen int
}

// String is the score for people: 8.1 % over 450 forecasts of 120 bins.
func (s Score) String() string {
	text := fmt.Sprintf("%s over %s", errorWords(s.WAPE), s.over())
	switch s.Seen {
	case 0:
		if s.Bins == 0 {
			return "not scored"
		}
		return text
	case s.Bins:
		return text + " that it was trained on"
	}
	return text + fmt.Sprintf(", %d of which it was trained on", s.Seen)
}

// over is what it is a score of, for people.
func (s Score) over() string { return fmt.Sprintf("%d forecasts of %d bins", s.Bins, s.Distinct) }

// errorWords is a WAPE for people: after a sudden fall of the traffic it has no bound, and its digits say nothing.
func errorWords(wape float64) string {
	if wape > 10 {
		return "more than ten times the traffic"
	}
	return fmt.Sprintf("%.1f %%", 100*wape)
}

// Forecast predicts the steps bins after the history with the forecaster that has
// earned it. It returns an error only when neither forecaster has an answer; then
// the Verdict says what each lacked, and is not trusted.
//
// now is the present, which is at or after the history's end; a history that ends
// long before it is not trusted.
func (g *Gate) Forecast(now time.Time, history Series, steps int) (Forecast, Verdict, error) {
	if err := checkRequest("forecast gate", history, steps); err != nil {
		return Forecast{}, Verdict{Reason: err.Error()}, err
	}
	o := g.options.scaled(history.Step, steps)
	g.forget(history, o)
	second, errSecond := g.fallback.Forecast(history, steps)
	var first Forecast
	errFirst := errNoPrimary
	if g.primary != nil {
		first, errFirst = g.primary.Forecast(history, steps)
	}
	s := g.scores(history.withoutFaults(0), o)
	v := Verdict{Primary: s.primary, Fallback: s.fallback}
	if g.primary != nil {
		v.Failed = errFirst
	}
	g.judge(now, s, o)
	g.keep(history.End(), history.Step, o, first, second)

	if errFirst != nil && errSecond != nil {
		err := fmt.Errorf("forecast gate: %w", errSecond)
		if g.primary != nil {
			err = fmt.Errorf("forecast gate: no forecaster has an answer: %w", errors.Join(errFirst, errSecond))
		}
		v.Trusted, v.Reason = false, err.Error()
		return Forecast{}, v, err
	}
	f := g.choose(&v, s, first, errFirst, second, errSecond)
	g.trust(&v, now, history, steps, o)
	return f, v, nil
}

// First is the name of the forecaster that is in use where nothing is against it: the primary, or, without one, the fallback.
func (g *Gate) First() string {
	if g.primary == nil {
		return g.fallback.Name()
	}
	return g.primary.Name()
}

var errNoPrimary = errors.New("there is no model")

// Worse says whether a gate with these options falls back when the primary's error
// is primary and the fallback's is fallback, both WAPE.
func Worse(primary, fallback float64, o GateOptions) (bool, error) {
	o, err := o.validate()
	if err != nil {
		return false, err
	}
	return o.worse(primary, fallback), nil
}

func (o GateOptions) worse(primary, fallback float64) bool {
	return primary > (1+o.Tolerance)*fallback && primary > fallback+o.Margin
}

// judge decides, with hysteresis, whether the primary is good enough.
func (g *Gate) judge(now time.Time, s gateScores, o GateOptions) {
	if g.primary == nil || s.primary.Bins < o.MinBins {
		return
	}
	since := now.Sub(g.state.Changed)
	if !g.state.Changed.IsZero() && since < o.Hold {
		return
	}
	p, f := s.primary.WAPE, s.fallback.WAPE
	if s.quiet || p >= 1 && f >= 1 { // neither is known to be the better where next to nothing arrived, nor where both are no better than to expect that
		return
	}
	switch {
	case !g.state.FallenBack && o.worse(p, f):
		g.state.Left = min(max(0, g.state.Left-int(since/(forgetWindows*o.Window)))+1, mostLeft)
		g.state.FallenBack, g.state.Changed = true, now
	case g.state.FallenBack && p <= f+marginReturns*o.Margin && (since >= o.Hold<<(max(g.state.Left, 1)-1) || s.lead.By > returnsSurely*s.lead.SE):
		g.state.FallenBack, g.state.Changed = false, now
	}
}

// choose picks the forecast and its score, and writes down why.
func (g *Gate) choose(v *Verdict, s gateScores, first Forecast, errFirst error, second Forecast, errSecond error) Forecast {
	name := g.fallback.Name()
	f := first
	v.Recent = s.primary
	if s.primary.Bins == 0 {
		v.Recent = s.primaryAlone
	}
	switch {
	case g.primary == nil:
	case errors.Is(errFirst, ErrNotReady):
		v.FallenBack, v.Why = true, errFirst.Error()
	case errFirst != nil:
		v.FallenBack, v.Why = true, fmt.Sprintf("it gave no forecast: %v", errFirst)
	case errSecond != nil:
		f.Note = joinNotes(f.Note, fmt.Sprintf("%s gave no forecast to compare with: %v", name, errSecond))
	case g.state.FallenBack:
		v.FallenBack = true
		v.Why = fmt.Sprintf("its recent error is %v, and that of %s is %s", v.Primary, name, errorWords(v.Fallback.WAPE))
	}
	if v.FallenBack || g.primary == nil {
		f, v.Recent = second, s.fallbackAlone
	}
	if v.FallenBack {
		f.Note = joinNotes(fmt.Sprintf("%s instead of %s: %s", name, g.primary.Name(), v.Why), f.Note)
	}
	v.Using = f.Source
	if errors.Is(errFirst, ErrNotReady) {
		return f
	}
	if before := g.state.Using; before != "" && before != v.Using {
		v.Changed, v.Change = true, g.change(before, *v, errFirst, errSecond)
	}
	g.state.Using = v.Using
	return f
}

// change says of a change from the forecaster named before to that of the verdict what both did, over the same bins.
func (g *Gate) change(before string, v Verdict, errFirst, errSecond error) string {
	text := fmt.Sprintf("forecasts are made by %s now, and no longer by %s", v.Using, before)
	if ofOurs := g.primary != nil && (before == g.primary.Name() || before == g.fallback.Name()); !ofOurs {
		why := "which is not what the job names any more"
		if g.lost != "" {
			why = g.lost
		}
		if g.primary != nil && before == g.replaced {
			why = "the place of which was taken by " + g.primary.Name()
		}
		return text + fmt.Sprintf(", %s; the recent error of %s is %v", why, v.Using, v.Recent)
	}
	used, left := v.Primary, v.Fallback
	switch {
	case v.FallenBack:
		used, left = left, used
		if errFirst != nil {
			text += fmt.Sprintf(", which gave none: %v", errFirst)
		}
	case errSecond != nil:
		text += fmt.Sprintf(", which gave none: %v", errSecond)
	}
	if used.Bins == 0 {
		return text + "; there are no bins yet that both were scored on"
	}
	text += fmt.Sprintf("; over the same %s the recent error of %s is %s, and that of %s is %s", used.over(), v.Using, errorWords(used.WAPE), before, errorWords(left.WAPE))
	if !v.FallenBack && used.WAPE > left.WAPE {
		text += fmt.Sprintf("; a model is preferred where the two are about level, and set aside where it is more than %.3g %% worse", 100*g.options.Tolerance)
	}
	return text
}

func joinNotes(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	}
	return a + "; " + b
}
