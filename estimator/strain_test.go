package estimator

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// strained feeds a full load that was too short to be measured.
func strained(t *testing.T, o *Online, at time.Time, w int, rate float64) bool {
	t.Helper()
	used, err := o.Strained(Sample{At: at, Workers: w, Servers: w, Rate: rate})
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// A full load lowers the model at once and everywhere alike, until whole intervals say what capacity is, or more is trained, or it is long ago.
func TestAShortFullLoadLowersTheModel(t *testing.T) {
	pollux := Model{Form: FormPollux, Theta: []float64{0.0005, 0.0003, 0.01, 0.001, 3}, Batch: 1024}
	for _, prior := range []Model{each600, {Form: FormSync, Theta: []float64{0.1, 0.5, 0.2, 0.01}, Batch: 1000}, pollux} {
		ready := func() (*minutes, *Online) {
			o := newOnline(t, prior, OnlineOptions{PriorMax: 8})
			m := newMinutes(t, o, 1)
			m.feed(10, 4, prior.Throughput(4, 4), 0.02)
			return m, o
		}
		const share = 0.4
		at4 := prior.Throughput(4, 4)
		lowered := func(what string, o *Online, share float64) {
			t.Helper()
			for w := 1; w <= 8; w++ {
				f := share * prior.Throughput(w, w)
				near(t, string(prior.Form)+", "+what+": F", o.Model().Throughput(w, w), f, 0.05*f)
			}
		}
		m, o := ready()
		if strained(t, o, m.at, 4, 0.85*at4) {
			t.Errorf("%s: 0.85 of F was used; it may be noise", prior.Form)
		}
		lowered("not clearly less", o, 1)
		if !strained(t, o, m.at, 4, share*at4) {
			t.Errorf("%s: %v of F was not used", prior.Form, share)
		}
		lowered("clearly less", o, share)
		again := restarted(t, o, prior, OnlineOptions{PriorMax: 8})
		if d := cmp.Diff(o.State(), again.State()); d != "" || !o.Model().Equal(again.Model()) {
			t.Errorf("%s: after a restart (-before +after):\n%s", prior.Form, d)
		}
		for range 8 { // and whole intervals confirm it
			m.feed(1, 4, share*at4, 0.02)
			lowered("measured", o, share)
		}
		if o.Strain() != nil || !o.Measured(4, 4) {
			t.Errorf("%s: strain %+v though capacity was measured", prior.Form, o.Strain())
		}

		m, o = ready()
		strained(t, o, m.at, 4, share*at4)
		reached(t, o, m.at.Add(time.Minute), 4, 0.5*at4)
		lowered("more was reached", o, 1)

		m, o = ready()
		strained(t, o, m.at, 4, share*at4)
		reached(t, o, m.at.Add(9*time.Minute), 4, 0.1*at4)
		lowered("nine minutes later", o, share)
		reached(t, o, m.at.Add(10*time.Minute), 4, 0.1*at4)
		lowered("ten minutes later", o, 1)
	}
}

// A full load that is impossible is refused, from a caller as from a state.
func TestAnImpossibleFullLoadIsRefused(t *testing.T) {
	o := newOnline(t, each600, OnlineOptions{})
	for _, s := range []Sample{{Workers: 0, Rate: 1}, {Workers: 1, Rate: 0}, {Workers: 1, Rate: math.NaN()}, {Workers: 1, Rate: math.Inf(1)}} {
		if used, err := o.Strained(s); used || err == nil {
			t.Errorf("%+v was taken up", s)
		}
		x := Strain{Workers: s.Workers, Rate: s.Rate}
		if _, err := RestoreOnline(each600, OnlineOptions{}, OnlineState{Version: 1, Strain: &x}); err == nil {
			t.Errorf("%+v was taken up", x)
		}
	}
}
