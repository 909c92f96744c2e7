package core

import (
	"testing"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
	"github.com/kale-sched/kale/core/job"
)

// A plugin that dies while it is given its configuration is asked again; what it refuses it is not asked twice.
func TestConfigureBackendOutlivesThePluginsDeath(t *testing.T) {
	configured := func(b *fake.Backend) (n int) {
		for _, c := range b.Calls() {
			if c.Op == fake.OpConfigure {
				n++
			}
		}
		return n
	}
	j := &job.Job{Name: "j"}
	b := fake.New(nil, fake.NewCluster(1))
	for range 2 {
		b.FailNext(fake.OpConfigure, backend.Errorf(backend.Unavailable, "the plugin ended during the call"))
	}
	if _, err := ConfigureBackend(t.Context(), b, j, t.TempDir()); err != nil || configured(b) != 3 {
		t.Errorf("the plugin died twice: %v after %d calls, want none after 3", err, configured(b))
	}
	b = fake.New(nil, fake.NewCluster(1))
	b.FailNext(fake.OpConfigure, backend.Errorf(backend.Unauthorised, "no token"))
	if _, err := ConfigureBackend(t.Context(), b, j, t.TempDir()); err == nil || backend.CodeOf(err) != backend.Unauthorised || configured(b) != 1 {
		t.Errorf("the plugin refused: %v after %d calls, want it after 1", err, configured(b))
	}
}
