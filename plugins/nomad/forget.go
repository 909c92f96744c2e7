package nomad

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/kale-sched/kale/core/backend"
)

// Forget implements backend.Backend: it purges the Nomad jobs of what has ended, with what was given to them, and takes them out of the ledger.
func (n *nomad) Forget(ctx context.Context, job, role string) ([]string, error) {
	s, err := n.jobs.Of(ctx, job)
	if err != nil {
		return nil, err
	}
	removed, err := n.forget(ctx, s, job, role)
	if err != nil {
		return nil, backend.Staying(err, "the Nomad jobs %s… and the variable %s", jobPrefix(job), ledgerPath(job))
	}
	return removed, nil
}

func (n *nomad) forget(ctx context.Context, s settings, job, role string) (removed []string, err error) {
	p, err := s.look(ctx, job)
	if err != nil {
		return nil, err
	}
	if refusal := s.owner.Refuse(job, p.ledger.owner); refusal != nil {
		return nil, refusal
	}
	all := purged(p)
	for _, v := range p.views {
		all = append(all, v.kept())
	}
	ids, err := backend.Forgettable(job, role, all)
	if err != nil {
		return nil, err
	}
	if err := n.sweep(ctx, s, job, p.ledger); err != nil {
		return nil, err
	}
	var g errgroup.Group
	g.SetLimit(atOnce)
	purge := 0
	for _, v := range p.views {
		if !slices.Contains(ids, v.id) {
			continue
		}
		purge++
		g.Go(func() error {
			opts, cancel := s.write(ctx)
			defer cancel()
			if _, _, err := s.client.Jobs().Deregister(v.job.ID, true, opts); err != nil && !notFound(err) {
				return failed(err, capSubmit, "purge the Nomad job %s", v.job.ID)
			}
			return s.deletePayload(ctx, job, v.id)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if purge > 0 {
		removed = append(removed, fmt.Sprintf("%d Nomad jobs with their logs, %s…", purge, jobPrefix(job)))
	}
	stays := map[string]bool{}
	for _, st := range all {
		if st.LeftProbe() {
			stays[seat(st.ID)] = true
		}
	}
	cut, err := s.cutLedger(ctx, job, role, stays, p.ledger)
	if cut {
		removed = append(removed, "the variable "+ledgerPath(job))
	}
	return removed, err
}

// kept is a workload as Forget sees it, who has to know also of what a List has forgotten and a node that is away may still run.
func (v view) kept() backend.Status {
	st := v.status(func(*api.AllocationListStub) (ending, bool) { return ending{}, false })
	switch {
	case v.over():
		st.State = backend.StateExited
	case !st.State.Live(): // Nomad would start it again
		st.State = backend.StateStopping
	}
	if v.leftAway() {
		st.Reason = "when the node is back, or purged (POST /v1/node/ID/purge of Nomad's API), that is known"
		st.Away = true
	}
	return st
}

// cutLedger takes the seats of a role, but for those that stay, out of the ledger, unless it is another one by now, and deletes it with the last of them.
func (s settings) cutLedger(ctx context.Context, job, role string, stays map[string]bool, l ledger) (deleted bool, err error) {
	if l.index == 0 {
		return false, nil
	}
	changed := backend.Errorf(backend.Conflict, "remove what is kept of job %q: the ledger %s was changed meanwhile; is a scheduler at work on this job?", job, ledgerPath(job))
	of := func(place string) bool {
		id, err := backend.ParseID(place + "-g1")
		return !stays[place] && (role == "" || err == nil && id.Role == role)
	}
	left := false
	for place := range l.entries {
		left = left || !of(place)
	}
	if !left {
		opts, cancel := s.write(ctx)
		defer cancel()
		_, err := s.client.Variables().CheckedDelete(ledgerPath(job), l.index, opts)
		var raced api.ErrCASConflict
		switch {
		case errors.As(err, &raced):
			return false, changed
		case err != nil && !notFound(err):
			return false, failed(err, capVariables, "delete the ledger %s of job %q", ledgerPath(job), job)
		}
		return true, nil
	}
	_, err = s.changeLedger(ctx, job, func(now *ledger) bool {
		before := len(now.entries)
		for place, e := range l.entries {
			if of(place) && now.entries[place] == e {
				delete(now.entries, place)
			}
		}
		return len(now.entries) < before
	})
	return false, err
}
