package nomad

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/kale-sched/kale/core/backend"
)

// entry is what the ledger knows of one role and rank.
type entry struct {
	Generation uint64      `json:"g"`           // the highest that was ever accepted
	Released   backend.How `json:"r,omitempty"` // how that generation was released; 0 when it was not
}

// ledger is the variable kale/JOB: what was accepted and what was released, whatever has become of the Nomad jobs.
type ledger struct {
	index   uint64 // of the variable, 0 when there is none
	entries map[string]entry
	owner   backend.Owner // whose the job's name is
}

// ownerItem is the variable's item with the owner. No role is called so.
const ownerItem = "_owner"

// refuse gives a Conflict where the name is another job's and something of that was not released.
func (l ledger) refuse(s settings, job string) error {
	refusal := s.owner.Refuse(job, l.owner)
	if refusal == nil {
		return nil
	}
	for _, e := range l.entries {
		if e.Released == 0 {
			return refusal
		}
	}
	return nil
}

// seat names a role and rank in the ledger.
func seat(id backend.ID) string { return id.Role + "-" + strconv.Itoa(id.Rank) }

// released reports whether the ID may never start again.
func (l ledger) released(id backend.ID) bool {
	e, ok := l.entries[seat(id)]
	return ok && (e.Generation > id.Generation || e.Generation == id.Generation && e.Released != 0)
}

const (
	capVariables = `variables "read", "write", "list" and "destroy" on "kale/*" and "nomad/jobs/kale-*"`
	capSubmit    = `the namespace capability "submit-job"`
	capRead      = `the namespace capabilities "read-job" and "list-jobs"`
	capLifecycle = `the namespace capability "alloc-lifecycle"`
	capLogs      = `the namespace capabilities "read-logs" and "read-fs"`
	capNodes     = `node { policy = "read" }`
)

func (s settings) readLedger(ctx context.Context, job string) (ledger, error) {
	q, cancel := s.read(ctx)
	defer cancel()
	v, _, err := s.client.Variables().Peek(ledgerPath(job), q)
	if err != nil {
		return ledger{}, failed(err, capVariables, "read the ledger %s of job %q", ledgerPath(job), job)
	}
	l := ledger{entries: map[string]entry{}}
	if v == nil {
		return l, nil
	}
	l.index = v.ModifyIndex
	for place, raw := range v.Items {
		if place == ownerItem {
			if err := json.Unmarshal([]byte(raw), &l.owner); err != nil {
				return ledger{}, backend.Errorf(backend.Blocked, "read whose the name %q is: the item %q of the variable %s is %q: %w; who wrote it?", job, place, ledgerPath(job), raw, err)
			}
			continue
		}
		var e entry
		if err := json.Unmarshal([]byte(raw), &e); err != nil {
			return ledger{}, backend.Errorf(backend.Blocked, "read the ledger of job %q: the entry %q of the variable %s is %q: %w; who wrote it?", job, place, ledgerPath(job), raw, err)
		}
		l.entries[place] = e
	}
	return l, nil
}

// ledgerTries bounds how often a change is tried anew because another caller was faster.
const ledgerTries = 20

// changeLedger reads the ledger, lets change alter it, and writes it if change says so, again and again until nobody
// else wrote in between. It gives the ledger as it stands then. A ledger that is another job's is left alone.
func (s settings) changeLedger(ctx context.Context, job string, change func(*ledger) bool) (ledger, error) {
	for try := range ledgerTries {
		l, err := s.readLedger(ctx, job)
		if err == nil {
			err = l.refuse(s, job)
		}
		if err != nil || !change(&l) {
			return l, err
		}
		items := map[string]string{}
		for place, e := range l.entries {
			raw, err := json.Marshal(e)
			if err != nil { // plain data
				panic("nomad: write a ledger entry: " + err.Error())
			}
			items[place] = string(raw)
		}
		if l.owner.ID != "" {
			raw, err := json.Marshal(l.owner)
			if err != nil { // plain data
				panic("nomad: write a ledger's owner: " + err.Error())
			}
			items[ownerItem] = string(raw)
		}
		w, cancel := s.write(ctx)
		_, _, err = s.client.Variables().CheckedUpdate(&api.Variable{Namespace: s.namespace, Path: ledgerPath(job), ModifyIndex: l.index, Items: items}, w)
		cancel()
		var raced api.ErrCASConflict
		switch {
		case err == nil:
			return l, nil
		case !errors.As(err, &raced):
			return ledger{}, failed(err, capVariables, "write the ledger %s of job %q", ledgerPath(job), job)
		}
		select {
		case <-ctx.Done():
			return ledger{}, failed(ctx.Err(), capVariables, "write the ledger of job %q", job)
		case <-time.After(time.Duration(try) * 5 * time.Millisecond):
		}
	}
	return ledger{}, backend.Errorf(backend.Conflict, "write the ledger of job %q: others changed it %d times meanwhile; is another scheduler at work on this job?", job, ledgerTries)
}

// writePayload puts the workload's files and environment where only its task reads them. What is there already stays:
// the first specification wins.
func (s settings) writePayload(ctx context.Context, job string, w backend.Workload) *backend.Error {
	paths := payloadPaths(nomadJob(job, w.ID))
	p, problem := s.parcel(w, len(paths))
	if problem != nil {
		return problem
	}
	for i, items := range p.variables {
		opts, cancel := s.write(ctx)
		_, _, err := s.client.Variables().CheckedCreate(&api.Variable{Namespace: s.namespace, Path: paths[i], Items: items}, opts)
		cancel()
		var there api.ErrCASConflict
		if err != nil && !errors.As(err, &there) {
			return failed(err, capVariables, "write the files of %s", w.ID)
		}
	}
	return nil
}

// deletePayload removes what writePayload wrote. What is not there is no error.
func (s settings) deletePayload(ctx context.Context, job string, id backend.ID) error {
	var all []error
	for _, path := range payloadPaths(nomadJob(job, id)) {
		opts, cancel := s.write(ctx)
		_, err := s.client.Variables().Delete(path, opts)
		cancel()
		if err != nil && !notFound(err) {
			all = append(all, failed(err, capVariables, "delete the files of %s", id))
		}
	}
	if len(all) > 0 {
		return fmt.Errorf("%w", all[0])
	}
	return nil
}

// sweep removes the files and environments of all that was released or replaced, however it has ended: also of what people stopped or purged, of which no release
// is left to be carried out. What stays is another job's, or of what may run. It looks once for each change of the ledger; what fails is tried again.
func (n *nomad) sweep(ctx context.Context, s settings, job string, l ledger) error {
	n.mu.Lock()
	done := n.swept[job] == l.index
	n.mu.Unlock()
	if done {
		return nil
	}
	q, cancel := s.read(ctx)
	found, _, err := s.client.Variables().PrefixList(payloadPaths(jobPrefix(job))[0], q)
	cancel()
	if err != nil {
		return failed(err, capVariables, "list the files of job %q that Nomad keeps", job)
	}
	gone := map[backend.ID]bool{}
	for _, v := range found {
		name, _, _ := strings.Cut(strings.TrimPrefix(v.Path, payloadPaths(jobPrefix(job))[0]), "/")
		if id, err := backend.ParseID(name); err == nil && l.released(id) { // not in the ledger: another job's, whose name begins alike
			gone[id] = true
		}
	}
	var g errgroup.Group
	g.SetLimit(atOnce)
	for id := range gone {
		g.Go(func() error { return s.deletePayload(ctx, job, id) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.swept[job] = l.index
	return nil
}
