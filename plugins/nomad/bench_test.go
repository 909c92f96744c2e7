package nomad

import (
	"os"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
)

// Two hundred workers without compute, on four nodes: how long from asking until all run, what one look at them costs,
// and how long until all are gone. Each costs two helper processes of Nomad's, so it takes 8 GB of memory.
func BenchmarkTwoHundredWorkers(b *testing.B) {
	if why := nomadtest.Missing(); why != "" {
		b.Skip(why)
	}
	const workers = 200
	c, err := nomadtest.Start(b.Context(), nomadtest.Options{Clients: 4, GPUs: workers / 4})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := c.Stop(); err != nil {
			b.Error(err)
		}
	}()
	r := rig{cluster: c, namespace: "bench", dir: c.Shared()}
	if err := os.MkdirAll(r.dir, 0o777); err != nil {
		b.Fatal(err)
	}
	if err := c.Namespace(r.namespace); err != nil {
		b.Fatal(err)
	}
	n := New(nil)
	defer func() { _ = n.Close() }() // it never fails
	if diags, err := n.Configure(b.Context(), r.config("j")); err != nil || diags.HasErrors() {
		b.Fatal(diags, err)
	}
	for generation := uint64(1); b.Loop(); generation++ {
		var ws []backend.Workload
		for rank := range workers {
			w := r.workload("j", workerID(rank, generation), conformance.Steady)
			w.Resources.GPUs = 1
			ws = append(ws, w)
		}
		began := time.Now()
		ensure(b, n, "j", ws...)
		b.ReportMetric(time.Since(began).Seconds(), "s/ensure")
		conformance.Eventually(b, "all run", func() error {
			all, _, err := n.List(b.Context(), "j")
			if err != nil {
				return err
			}
			for _, st := range all {
				if st.State != backend.StateRunning {
					return waiting(st.ID.String() + " is " + string(st.State) + ": " + st.Reason)
				}
			}
			return nil
		})
		b.ReportMetric(time.Since(began).Seconds(), "s/all-running")
		began = time.Now()
		if _, _, err := n.List(b.Context(), "j"); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/list")
		began = time.Now()
		conformance.Drop(b, n, "j")
		b.ReportMetric(time.Since(began).Seconds(), "s/all-gone")
	}
}

// waiting is why something has not come about yet.
type waiting string

func (w waiting) Error() string { return string(w) }
