package core

import (
	"slices"
	"testing"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/rpc"
)

// What a job had trained, what became of the records that it could not train, and the names of its processes are known after it has stopped.
func TestTotalsOutliveTheStop(t *testing.T) {
	for name, force := range map[string]bool{"in order": false, "by force": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.job.Stream.DeadLetter = "dead"
			r.started(2)
			r.chief.with(func(st *rpc.JobStatus) {
				for _, sv := range st.Servers {
					sv.Metrics.TrainedRecords, sv.Metrics.DeadRecords = 1200, 7
				}
				st.TrainedRecords, st.DeadRecords, st.LostOffsets = 1200, 7, 3
			})
			r.beat()
			if v := r.s.View(); v.DeadLetter != "dead" || v.Dead == nil || *v.Dead != 7 {
				t.Errorf("while it runs: %v dead, in %q", v.Dead, v.DeadLetter)
			}
			if err := r.s.obey(t.Context(), command{Order: Order{Kind: "stop", Force: force}}); err != nil {
				t.Fatal(err)
			}
			r.stops()
			if err := r.s.Close(); err != nil {
				t.Fatal(err)
			}
			g, err := GlanceAt(t.Context(), r.state, r.job.Name, nil)
			if err != nil {
				t.Fatal(err)
			}
			if g.State != StateStopped || g.Trained == nil || *g.Trained != 1200 || g.Past != force {
				t.Errorf("%s: trained %v, past %v", g.State, g.Trained, g.Past)
			}
			if g.Dead == nil || *g.Dead != 7 || g.Lost == nil || *g.Lost != 3 {
				t.Errorf("under the names of a job that runs: dead %v, lost %v", g.Dead, g.Lost)
			}
			if got := *g.Totals; got != (Totals{Chief: 1, Trained: 1200, Dead: 7, Lost: 3, DeadLetter: "dead", Final: !force}) {
				t.Errorf("totals %+v", got)
			}
			if want := []backend.ID{server(0, 1), server(1, 1), worker(0, 1), worker(1, 1)}; !slices.Equal(g.Processes, want) {
				t.Errorf("processes %v, want %v", g.Processes, want)
			}
			r.open("run")
		})
	}
}
