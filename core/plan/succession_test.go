package plan

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// elsewhere is a policy that New did not make: only Decide is known of it.
type elsewhere struct{ Policy }

// A succession decides as the policy does with its state written and read again, word for word, over hours of ups and downs with outages.
func TestSuccession(t *testing.T) {
	t.Parallel()
	load := func(at time.Duration) float64 {
		return 170_000 + 110_000*math.Sin(at.Hours()) + 9_000*math.Sin(37*at.Hours())
	}
	for _, name := range Names() {
		l, p := newLoop(load), policy(t, name)
		s, other := NewSuccession(p), NewSuccession(elsewhere{p})
		moves, decisions := 0, 200
		if name == "cost" { // it takes its time
			decisions = 80
		}
		for i := range decisions {
			o := l.observe()
			if i == decisions/2 {
				o.Now = time.Time{} // an observation that nothing can be decided on leaves the state alone
			}
			d, got, same := p.Decide(o), s.Decide(o), other.Decide(o)
			if len(d.State) == 0 || got.State != nil || same.State != nil {
				t.Fatalf("%s: states of %d, %d and %d bytes", name, len(d.State), len(got.State), len(same.State))
			}
			if d.Target != d.Current {
				moves++
			}
			l.step(d)
			d.State = nil
			if diff := cmp.Diff(d.Explain(), got.Explain()); diff != "" || d.Target != got.Target {
				t.Fatalf("%s, decision %d:\n%s", name, i, diff)
			}
			if diff := cmp.Diff(d.Explain(), same.Explain()); diff != "" {
				t.Fatalf("%s from elsewhere, decision %d:\n%s", name, i, diff)
			}
		}
		// Again takes the last decision back: made twice, nothing is different after it.
		o := l.observe()
		if first, again := s.Decide(o), s.Again(o); first.Explain() != again.Explain() {
			t.Errorf("%s: decided again:\n%s", name, cmp.Diff(first.Explain(), again.Explain()))
		}
		if first, again := other.Decide(o), other.Again(o); first.Explain() != again.Explain() {
			t.Errorf("%s from elsewhere: decided again:\n%s", name, cmp.Diff(first.Explain(), again.Explain()))
		}
		o.Now = o.Now.Add(time.Minute)
		o.State = nil
		if one, two := s.Decide(o), other.Decide(o); one.Explain() != two.Explain() {
			t.Errorf("%s after deciding again:\n%s", name, cmp.Diff(one.Explain(), two.Explain()))
		}
		if moves == 0 && name != "static" {
			t.Errorf("%s never moved", name)
		}
	}
}
