package forecast

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Whether a gate would use another primary is asked without changing it: one that is to be better than the fallback must have no greater error, else the gate's tolerance counts.
func TestGateTakes(t *testing.T) {
	s := exactDemo().Until(exactDemo().At(900))
	for _, c := range []struct {
		name                string
		factor              float64 // of the new primary; the fallback's is 1.05
		better, takes, none bool
	}{
		{"better", 1.04, true, true, false},
		{"worse, within the tolerance", 1.054, false, true, false},
		{"worse, within the tolerance, where it has to be better", 1.054, true, false, false},
		{"worse", 1.5, false, false, false},
		{"not scored", 1.5, true, true, true},
	} {
		g := newGate(t, scripted{"old", always(1.5)}, scripted{"seasonal", always(1.05)})
		live(t, g, s, 500, 900)
		if !g.FallenBack() {
			t.Fatal("the old primary is in use")
		}
		before := g.State()
		model := scripted{"new", always(c.factor)}
		var made []Forecast
		for _, at := range g.Moments(s) {
			f, err := model.Forecast(s.Until(at), 20)
			if err != nil {
				t.Fatal(err)
			}
			made = append(made, f)
		}
		if c.none {
			made = nil
		}
		takes, own, usual := g.Takes(model, made, s, 20, c.better)
		if takes != c.takes || c.none != (own.Bins == 0) || c.none != (usual.Bins == 0) {
			t.Errorf("%s: takes %v, by errors of %v and %v", c.name, takes, own, usual)
		}
		if d := cmp.Diff(before, g.State()); d != "" {
			t.Errorf("%s: the gate has changed: %s", c.name, d)
		}
		g.Replace(model)
		for _, f := range made {
			g.Fill(f)
		}
		if _, v, err := g.Forecast(s.End(), s, 20); err != nil || c.takes && v.FallenBack {
			t.Errorf("%s: taken, it is not used: %+v, %v", c.name, v, err)
		}
	}
}
