package core

import (
	"strings"
	"testing"

	"github.com/kale-sched/kale/core/backend"
)

// What a stop said of its last snapshot is past when the job trains again, and holds as long as it does not.
func TestWhatWasUnwrittenIsPast(t *testing.T) {
	d := newDesired("t")
	d.Unwritten = "at noon"
	if d.open(false); d.Unwritten == "" {
		t.Error("it is forgotten before anything was trained")
	}
	if d.trains(); d.Unwritten != "" || !d.Trained {
		t.Errorf("when it trains: %+v", d)
	}
	d.Unwritten = "at one"
	if d.trains(); d.Unwritten == "" {
		t.Error("a stop's own word is forgotten by its next look")
	}
}

// A stop during which all that runs of the job ends writes no last snapshot, and says so; an ordinary one writes it, and says nothing.
func TestStopOfWhatEndsMeanwhile(t *testing.T) {
	for name, ends := range map[string]bool{"all goes on": false, "all ends": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.started(1)
			r.beats(2)
			r.order("stop", 0)
			if ends {
				for _, st := range r.list() {
					if err := r.cluster.SetState("ctr", st.ID, backend.StateFailed, "its node failed"); err != nil {
						t.Fatal(err)
					}
				}
				r.chief.stop()
			}
			r.stops()
			const want = " the last snapshot was not written: all that ran of the job had ended before; the job goes on from what its servers had written last"
			notes := 0
			for _, n := range r.s.want.HandOvers {
				if strings.Contains(n.Text, strings.TrimSpace(want)) {
					notes++
				}
			}
			if got := r.s.Unwritten(); strings.HasSuffix(got, want) != ends || (got != "") != ends || (notes == 1) != ends {
				t.Errorf("%d notes of it, and it says %q", notes, got)
			}
		})
	}
}
