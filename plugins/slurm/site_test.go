package slurm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// site is a backend inside the test, with one job configured.
type site struct {
	*testing.T
	*rig
	b        backend.Backend
	job      string
	submitIn time.Duration // 0: as in earnest
	launchIn time.Duration // 0: as in earnest
}

func newSite(t *testing.T, extra string) *site {
	t.Helper()
	r := newRig(t)
	r.extra = extra
	s := &site{T: t, rig: r, job: "j"}
	s.b = s.open()
	return s
}

// newOwnSite is a site on a cluster that nothing else of the tests runs on; extra is more of its block.
func newOwnSite(t *testing.T, o slurmtest.Options, extra string) (*site, *slurmtest.Cluster) {
	t.Helper()
	own, err := slurmtest.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &site{T: t, job: "j", rig: &rig{dir: own.Shared(), extra: fmt.Sprintf("%s\nbin_dir = %q", extra, own.Bin())}}
	s.b = s.open()
	return s, own
}

func (s *site) open() backend.Backend {
	s.Helper()
	b := New(conformance.Logger(s.T)).(*slurm)
	if s.submitIn > 0 {
		b.submitIn = s.submitIn
	}
	if s.launchIn > 0 {
		b.launchIn = s.launchIn
	}
	s.Cleanup(func() {
		if err := b.Close(); err != nil {
			s.Error(err)
		}
	})
	diags, err := b.Configure(s.Context(), s.config(s.job))
	if err == nil {
		err = diags.Err()
	}
	if err != nil {
		s.Fatal(err)
	}
	return b
}

func worker(rank int, generation uint64) backend.ID {
	return backend.ID{Role: backend.RoleWorker, Rank: rank, Generation: generation}
}

func (s *site) gpuWorkload(id backend.ID, p conformance.Program, gpus int) backend.Workload {
	w := s.workload(s.job, id, p)
	w.Resources.GPUs = gpus
	return w
}

func (s *site) ensure(w backend.Workload) backend.Status {
	s.Helper()
	st, err := s.b.Ensure(s.Context(), s.job, []backend.Workload{w})
	if err != nil {
		s.Fatal(err)
	}
	return st[0]
}

func (s *site) waitFor(id backend.ID, what string, ok func(backend.Status) bool) backend.Status {
	s.Helper()
	return conformance.WaitFor(s, s.b, s.job, id, "is "+what, ok)
}

func (s *site) waitState(id backend.ID, want backend.State) backend.Status {
	s.Helper()
	return s.waitFor(id, string(want), func(st backend.Status) bool { return st.State == want })
}

func (s *site) slurm(name string, args ...string) string {
	s.Helper()
	out, err := s.on.Run(s.Context(), name, args...)
	if err != nil {
		s.Fatal(err)
	}
	return strings.TrimSpace(out)
}
