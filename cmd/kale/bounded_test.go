package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// ponders is a backend that takes so long to list, or as long as it is waited for.
type ponders struct {
	backend.Backend
	takes time.Duration
}

func (p *ponders) List(ctx context.Context, _ string) ([]backend.Status, bool, error) {
	select {
	case <-time.After(p.takes):
		return nil, true, nil
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
}

// What is done between two questions to a cluster, such as to ask a slow forecast model, is not taken from the time in which the cluster is to answer; what its answers take is.
func TestBoundedCountsOnlyWhatIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, err buffer
		a := &app{out: &out, err: &err, patience: 2 * time.Second}
		of := &ponders{takes: time.Second}
		b := a.bounded(of, &job.Job{})
		for range 3 {
			if _, _, err := b.List(t.Context(), "ctr"); err != nil {
				t.Fatalf("a cluster that answers within a second: %v", err)
			}
			time.Sleep(time.Minute)
		}
		of.takes = time.Hour
		began := time.Now()
		_, _, e := b.List(t.Context(), "ctr")
		if took := time.Since(began); took != 7*time.Second || e == nil || !strings.Contains(e.Error(), "it has not answered all that it was asked within 10s") {
			t.Errorf("one that hangs after 3 s of answers is waited for for %v: %v", took, e)
		}
		began = time.Now()
		if _, _, e := b.List(t.Context(), "ctr"); e == nil || time.Since(began) > 0 {
			t.Errorf("then it is waited for again, for %v: %v", time.Since(began), e)
		}
	})
}
