package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// guarded is a policy: a planner that wants something, and the rules that bind
// every planner.
//
//   - Unknown is never zero. While the shell's picture is incomplete, a worker's
//     state is unknown, or the observation makes no sense, the target stays
//     exactly where it is.
//   - Paused by a person, with an action under way, or, within the limits, with no
//     change left in the budget: the same (but a live
//     scale-out under way may grow).
//   - Otherwise the target is within the limits, whatever else holds: a person
//     who lowers max means it. A manual pin is followed within them, at once.
//   - Where the policy is guarded, which is the default: no scale-in while lag is unknown or over the objective or over the fallback
//     threshold, while the policy's forecast is not trusted, or within
//     CooldownIn of the last change in either direction. No scale-out within
//     CooldownOut of the last one.
//
// The last rule is Kale's own, and safe for every policy. In a comparison a rival
// must be ruled by its own published machinery (its windows, delays and rates),
// which ours would only change: the parameter "guard" = 0 takes that rule away,
// and no other.
type guarded struct {
	name string
	open bool // the last rule does not hold
	planner
}

func (g guarded) Name() string { return g.name }

func (g guarded) Decide(o Observation) Decision {
	prev, note := readState(o.State, o.Now)
	return g.decideFrom(o, prev, note)
}

// decideFrom is Decide with o.State read.
func (g guarded) decideFrom(o Observation, prev state, note string) Decision {
	d, next, why := g.decide(o, prev, note)
	switch {
	case why == "":
		d.State = next.encode()
	case len(o.State) > 0 && json.Valid(o.State):
		d.State = o.State
	default:
		d.State = state{Version: stateVersion}.encode()
	}
	return d
}

// decide decides from a state that was read, with a note about the reading. why says
// what makes the observation impossible to decide on; then the state stays.
func (g guarded) decide(o Observation, prev state, note string) (d Decision, next state, why string) {
	d = Decision{At: o.Now, Policy: g.name, Current: max(o.current(), 0)}
	d.Target = d.Current
	if why = o.problem(); why != "" {
		return undecidable(d, o, why), prev, why
	}
	s := &sheet{o: &o, current: d.Current, curve: curve(o.Model, o.Limits, o.Servers), prev: prev, next: prev}
	s.next.Unseen = s.unseen()
	s.judge()
	p := g.propose(s)
	s.settle(&d, p, g.open)
	if note != "" {
		d.Reason += " (" + note + ")"
	}
	d.Terms = s.terms
	return d, s.next, ""
}

// undecidable holds at the current target.
func undecidable(d Decision, o Observation, why string) Decision {
	d.Kind, d.Hold = KindHold, []string{why}
	d.Reason = fmt.Sprintf("%s: %s", holdAt(d.Current, 0), why)
	if y := o.Now.Year(); y < 2 || y > 9000 {
		d.At = time.Time{}
	}
	return d
}

// holdAt says that nothing changes. Where no worker was asked for yet none is held, and what runs may not be known: what matters is how many are wanted (0:
// that is not known) and do not come.
func holdAt(current, want int) string {
	switch {
	case current > 0:
		return "hold at " + workers(current)
	case want > 0:
		return fmt.Sprintf("no worker is asked for yet, though %d %s wanted", want, isAre(want))
	}
	return "no worker is asked for yet"
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// settle applies the rules to a proposal and completes the decision.
func (s *sheet) settle(d *Decision, p proposal, open bool) {
	d.Plan = p.plan
	if d.LoadKnown = finite(p.load); d.LoadKnown {
		d.Load = Number(p.load)
	}
	want := s.o.Limits.Clamp(p.want)
	if n := s.o.Standing; n > 0 {
		s.note("standing still", float64(n), "partitions", "until a person has done something about it; lag and backlog are of the others")
	}
	s.noteWant(p, want)
	var short string
	switch frozen, pinned := s.frozen(want), s.o.Limits.Clamp(s.o.Manual.Target); {
	case frozen != "":
		d.Hold = append(d.Hold, frozen)
		d.Reason = fmt.Sprintf("%s: %s", holdAt(d.Current, want), frozen)
		short = s.shortOf(d, p)
	case s.o.Manual.Pinned:
		d.Target, d.Source = pinned, "manual"
		d.Reason = fmt.Sprintf("pinned to %s by hand", workers(s.o.Manual.Target))
		short = s.shortOf(d, p)
		lim := s.o.Limits
		if short != "" {
			lim = lim.roomy()
		}
		if may := lim.Clamp(s.o.Manual.Target); may != s.o.Manual.Target {
			d.Reason += fmt.Sprintf(", which the limits of %s make %d", lim, may)
		}
	default:
		short = s.follow(d, p, want, open)
	}
	s.tellShort(d, short)
	if m := s.o.Manual; m.Pinned {
		expr := "by hand, whatever the policy wants"
		if pinned := s.o.Limits.Clamp(m.Target); pinned != m.Target {
			expr += fmt.Sprintf("; the limits of %s make it %d", s.o.Limits, pinned)
		}
		s.note("pinned", float64(m.Target), "workers", expr)
	}
	s.conclude(d, p)
}

// frozen says why the target must stay exactly where it is, or "".
func (s *sheet) frozen(want int) string {
	o := s.o
	switch {
	case o.Hold.Unknown && o.Hold.Reason != "":
		return "the state of the job is not fully known: " + o.Hold.Reason
	case o.Hold.Unknown:
		return "the state of the job is not fully known"
	case o.Workers.Unknown > 0:
		return fmt.Sprintf("the state of %s is unknown", workers(o.Workers.Unknown))
	case o.Manual.Paused:
		return "scaling is paused by hand"
	case o.Hold.Reason != "" && !o.Manual.Pinned:
		return o.Hold.Reason
	case o.Budget.Limited && o.Budget.Left < 1 && want != s.current && !o.Manual.Pinned && o.Limits.Clamp(s.current) == s.current:
		return fmt.Sprintf("no change is left to make for now, and one more in %s", formatDuration(max(o.Budget.Next, 0)))
	case o.Action.Kind == "" || o.Action.Kind == KindNone, o.Manual.Pinned && o.Action.CanTurn:
		return ""
	case o.Action.Kind == KindOut && o.Action.CanGrow && want > s.current && !o.Manual.Pinned:
		return ""
	}
	return fmt.Sprintf("a rescale (%s) to %s has been under way for %s", o.Action.Kind, workers(o.Action.Target), formatDuration(max(o.Now.Sub(o.Action.Since), 0)))
}

// follow moves towards what the policy wants as far as the rules allow. short is what there is to say of a full cluster (shortOf).
func (s *sheet) follow(d *Decision, p proposal, want int, open bool) (short string) {
	d.Source, d.Reason = p.source, p.reason
	d.Hold = append(d.Hold, p.hold...)
	lim := s.o.Limits
	var against []string
	switch {
	case open:
	case want > s.current:
		against = s.againstOut()
	case want < s.current:
		against = s.againstIn(p)
	}
	if len(against) > 0 {
		d.Hold = append(d.Hold, against...)
		d.Reason = fmt.Sprintf("hold at %s, though %s: %s", workers(s.current), p.reason, strings.Join(against, "; "))
		want = s.current
	}
	switch {
	case lim.Clamp(want) != want:
		want = lim.Clamp(want)
		d.Source, d.Hold = "limits", nil // nothing holds it
		d.Reason = s.outside()
	case want > s.current && p.want <= s.current || want < s.current && p.want >= s.current: // it is none of the policy's doing
		d.Hold = nil
		if d.Reason = p.reason; !strings.HasPrefix(p.reason, s.outside()) {
			d.Reason = s.outside() + "; " + p.reason
		}
	}
	d.Target = want
	short = s.shortOf(d, p)
	d.Reason = s.atTheMost(want, short) + d.Reason
	return short
}

// outside says that the workers in force are not within the limits.
func (s *sheet) outside() string {
	lim, force := s.o.Limits, "none is"
	switch {
	case s.current == 1:
		force = "1 is"
	case s.current > 1:
		force = fmt.Sprintf("%d are", s.current)
	}
	said := fmt.Sprintf("the limits are %d to %d workers and %s in force", lim.Min, lim.Max, force)
	if lim.Why != "" {
		said += ": " + lim.Why
	}
	return said
}

// atTheMost says that the lag is over the objective with all workers that are allowed,
// where that is so: then it is the limit that a person can change, whatever the policy says. On a full cluster it is not the limit, and short says what it is.
func (s *sheet) atTheMost(want int, short string) string {
	o := s.o
	if !o.lagKnown() || o.Lag <= o.MaxLag || want < o.Limits.Max || s.current < o.Limits.Max || s.noHelp {
		return ""
	}
	said := fmt.Sprintf("the lag of %s is over the objective of %s", formatDuration(o.Lag), formatDuration(o.MaxLag))
	if short != "" {
		return said + "; "
	}
	said += fmt.Sprintf(", and no more than %s are allowed", workers(o.Limits.Max))
	if o.Limits.Why != "" {
		said += " (" + o.Limits.Why + ")"
	}
	return said + "; "
}

func (s *sheet) againstOut() []string {
	if left := remaining(s.next.LastOut, s.o.CooldownOut, s.o.Now); left > 0 {
		s.noteDuration("cooldown left", left, fmt.Sprintf("%s between scale-outs", formatDuration(s.o.CooldownOut)))
		return []string{"the last scale-out was too recent, " + formatDuration(left) + " to wait"}
	}
	return nil
}

func (s *sheet) againstIn(p proposal) []string {
	o := s.o
	against := append([]string(nil), p.noIn...)
	switch {
	case !o.lagKnown():
		against = append(against, "the lag is unknown")
	case o.Lag > o.MaxLag:
		against = append(against, fmt.Sprintf("the lag of %s is over the objective of %s", formatDuration(o.Lag), formatDuration(o.MaxLag)))
	case o.Lag > o.lagOver():
		against = append(against, fmt.Sprintf("the lag of %s is over the fallback threshold of %s", formatDuration(o.Lag), formatDuration(o.lagOver())))
	}
	if left := remaining(s.lastChange(), o.CooldownIn, o.Now); left > 0 {
		s.noteDuration("cooldown left", left, fmt.Sprintf("%s from any change to a scale-in", formatDuration(o.CooldownIn)))
		against = append(against, "the last change was too recent, "+formatDuration(left)+" to wait")
	}
	return against
}

// lastChange is when the last change in either direction was decided.
func (s *sheet) lastChange() time.Time {
	if s.next.LastIn.After(s.next.LastOut) {
		return s.next.LastIn
	}
	return s.next.LastOut
}

// remaining is what is left of a cooldown that began at last.
func remaining(last time.Time, cooldown time.Duration, now time.Time) time.Duration {
	if last.IsZero() {
		return 0
	}
	return max(cooldown-now.Sub(last), 0)
}

// noteWant records the end of the policy's own arithmetic.
func (s *sheet) noteWant(p proposal, want int) {
	if p.want != want {
		s.note("before limits", float64(p.want), "workers", fmt.Sprintf("limits are %s", s.o.Limits))
	}
	s.note("wanted", float64(want), "workers", "by "+p.source)
	remark := ""
	if pending := min(s.o.Workers.Pending, s.current-s.o.Workers.Running); pending > 0 {
		remark = fmt.Sprintf(", with %d that do not train yet", pending)
	}
	s.noteCapacity("F(current)", s.current, remark)
	if c := s.o.Basis.changed(); c != "" {
		s.note("F changed", s.o.Basis.Change.After-s.o.Basis.Change.Before, "records/s", c+"; other numbers of workers are taken to have changed alike until they are measured")
	}
	if want != s.current {
		s.noteCapacity("F(wanted)", want, "")
	}
	if want > s.o.Limits.Min {
		remark := ", one fewer than wanted"
		if s.capacity(want-1) <= p.load {
			remark += ", is no more than the load"
		}
		s.noteCapacity("F(one fewer)", want-1, remark)
	}
	if want < s.o.Limits.Max {
		remark := ", one more than wanted"
		switch f := s.capacity(want); {
		case s.capacity(want+1) <= f:
			remark += ", trains no more"
		case f > p.load:
			remark += fmt.Sprintf("; F(%d) is more than the load already", want)
		}
		s.noteCapacity("F(one more)", want+1, remark)
	}
}

// noteCapacity records F(w), and what it rests on.
func (s *sheet) noteCapacity(name string, w int, remark string) {
	expr := fmt.Sprintf("F(%d)%s", w, remark)
	if basis := s.o.Basis.Of(w, s.o.Servers); basis != "" {
		expr += "; " + basis
	}
	if e := s.doubt(w); e > 0 {
		expr += fmt.Sprintf("; ± %.2g %%", 100*e)
		if s.o.Basis.Prior != "" && len(s.o.Basis.Measured) == 0 {
			expr += ", which is assumed: the job has measured nothing yet"
		}
	}
	s.note(name, s.capacity(w), "records/s", expr)
}

// conclude sets what follows from the target: kind, capacity, saturation, state.
func (s *sheet) conclude(d *Decision, p proposal) {
	switch {
	case d.Target > d.Current:
		d.Kind, s.next.LastOut = KindOut, s.o.Now
	case d.Target < d.Current:
		d.Kind, s.next.LastIn = KindIn, s.o.Now
	case len(d.Hold) > 0:
		d.Kind = KindHold
	default:
		d.Kind = KindNone
	}
	d.Capacity = Number(s.capacity(d.Target))
	d.Saturated = p.saturated
	s.noteShort(d)
	s.noteAsked(d)
	s.begin(d)
	if b := s.believed(); b != nil && s.o.lagKnown() && s.o.Lag > s.o.unforeseenLag() {
		d.NoHelp = b.words(s.o)
	}
	s.next.Blind = !s.o.lagKnown() || s.o.Hold.Unknown
	s.next.LagNew = s.prev.Blind && !s.next.Blind
	s.next.LagOver = s.o.lagKnown() && s.o.Lag > s.o.lagOver()
	s.next.Lag = 0
	if s.next.LagOver {
		s.next.Lag = s.o.Lag
	}
}
