package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/cmd/internal/probe"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
)

// Two looks at one job at the same time leave each other's probes alone; what a look left that was killed is removed by a later one, when it is over.
func TestLooksBesideEachOther(t *testing.T) {
	p := patient(t)
	p.ProbeLimit, p.Trainer = time.Minute, "run" // which is what the fake knows
	b := fake.New(nil, fake.NewCluster(9))
	p.configure(t.Context(), b)
	look := func(over time.Time, ranks int) *expedition {
		t.Helper()
		e := &expedition{p: p, b: b, run: leavable(over), over: over, ranks: ranks}
		e.clear(t.Context())
		if err := e.send(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(probe.Folder(p.Job.Checkpoint.Dir, e.run), 0o755); err != nil {
			t.Fatal(err)
		}
		return e
	}
	live := func() (out []string) {
		t.Helper()
		list, _, err := b.List(t.Context(), p.Job.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range list {
			if st.State.Live() {
				out = append(out, fmt.Sprint(st.ID.Role, "-", st.ID.Rank))
			}
		}
		return out
	}
	left := func() int {
		t.Helper()
		found, err := filepath.Glob(probe.Folder(p.Job.Checkpoint.Dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	killed := look(time.Now().Add(-time.Hour), 0)
	first := look(p.over(), 4)
	if diff := cmp.Diff([]string{"doctor-4"}, live()); diff != "" || left() != 1 {
		t.Errorf("after one that was killed long ago there are (-want +got):\n%s and %d folders; one is the present one's", diff, left())
	}
	look(p.over(), 8)
	if diff := cmp.Diff([]string{"doctor-4", "doctor-8"}, live()); diff != "" || left() != 2 {
		t.Errorf("of two at the same time there are (-want +got):\n%s and %d folders", diff, left())
	}
	if st, err := b.Ensure(t.Context(), p.Job.Name, []backend.Workload{{ID: killed.probes[0].id, Argv: []string{"run"}}}); err != nil || st[0].Err == nil {
		t.Errorf("the probe of the one that was killed was not released: %+v, %v", st, err)
	}
	if left, err := first.letGo(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v: %v", left, err)
	}
	if diff := cmp.Diff([]string{"doctor-8"}, live()); diff != "" {
		t.Errorf("when the first is over there are (-want +got):\n%s", diff)
	}
}

// A look's probes have ranks that no other has at the same time, of a few: backends remember each of them.
func TestRanksOfLooks(t *testing.T) {
	var taken []backend.ID
	for range looksAtOnce {
		first := freeRanks(taken)
		if first < 0 || first%probe.Most != 0 || first >= looksAtOnce*probe.Most || slices.ContainsFunc(taken, func(id backend.ID) bool { return id.Rank/probe.Most == first/probe.Most }) {
			t.Fatalf("%d beside %v", first, taken)
		}
		taken = append(taken, backend.ID{Role: "doctor", Rank: first + len(taken)%probe.Most, Generation: 1})
	}
	if first := freeRanks(taken); first < 0 || first%probe.Most != 0 || first >= looksAtOnce*probe.Most {
		t.Errorf("where all are taken: %d", first)
	}
}
