package nomad

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/kale-sched/kale/core/backend"
)

// driftVerdict is what others did to a Nomad job of ours, as of one version of it.
type driftVerdict struct {
	index uint64 // JobModifyIndex of what was looked at
	text  string // for people; empty when it is as it was submitted
	back  bool   // others ended it, and that is not met yet: nothing is to take its place
	ended string // for people, of what others scaled to none, in place of how its process ended
	// adopted: others ended it, and it is on record as released.
	adopted bool
	// remarks are what was changed and brought back, as far as Nomad remembers it.
	remarks []backend.Remark
}

// How a Nomad job differs that somebody stopped, or scaled to none.
const (
	wasStopped = "it was stopped"
	wasScaled  = "it was scaled to 0"
)

// meetDrift compares the Nomad jobs with what was submitted, once for each change of them, and meets what others changed
// as the settings say. It gives, by ID, what is to be said of it. What cannot be found out now is found out later.
func (n *nomad) meetDrift(ctx context.Context, s settings, job string, p picture) map[backend.ID]driftVerdict {
	var mu sync.Mutex // guards found
	found := map[backend.ID]driftVerdict{}
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, v := range p.views {
		if v.released {
			continue
		}
		n.mu.Lock()
		old, known := n.known[v.job.ID]
		n.mu.Unlock()
		if known && old.index == v.job.JobModifyIndex {
			mu.Lock()
			found[v.id] = old
			mu.Unlock()
			continue
		}
		g.Go(func() error {
			verdict, err := n.judge(ctx, s, job, v)
			if verdict.index = v.job.JobModifyIndex; err != nil {
				n.lg.Debug("cannot tell whether others changed a Nomad job, or meet that", "nomad_job", v.job.ID, "err", err)
				verdict = driftVerdict{back: verdict.back || s.drift != driftReport && v.job.Stop} // at the next look
			}
			mu.Lock()
			found[v.id] = verdict
			mu.Unlock()
			if err != nil {
				return nil
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			n.known[v.job.ID] = verdict
			return nil
		})
	}
	_ = g.Wait() // none of them fails
	return found
}

// submittedTag marks the version that was submitted, once others have changed it: Nomad (from 1.9) does not forget a version that has a tag, and the last six.
const submittedTag = "kale-submitted"

// judge looks at one Nomad job that has changed since it was last looked at.
func (n *nomad) judge(ctx context.Context, s settings, job string, v view) (driftVerdict, error) {
	none, text := driftVerdict{}, ""
	q, cancel := s.read(ctx)
	defer cancel()
	now, _, err := s.client.Jobs().Info(v.job.ID, q)
	if err != nil {
		return none, failed(err, capRead, "read the Nomad job of %s", v.id)
	}
	if now.Version == nil || *now.Version == 0 {
		return none, nil // nobody changed it: ours is its first version
	}
	versions, _, _, err := s.client.Jobs().Versions(v.job.ID, false, q)
	if err != nil {
		return none, failed(err, capRead, "read the versions of the Nomad job of %s", v.id)
	}
	// The first one, or where there were so many changes that Nomad has forgotten it, the oldest it knows, which may be another's.
	versions = slices.DeleteFunc(versions, func(j *api.Job) bool { return j.Version == nil })
	if len(versions) == 0 {
		return none, backend.Errorf(backend.Unavailable, "read the versions of the Nomad job of %s: Nomad knows none", v.id)
	}
	submitted := slices.MinFunc(versions, func(a, b *api.Job) int { return cmp.Compare(*a.Version, *b.Version) })
	sure := *submitted.Version == 0
	if at := slices.IndexFunc(versions, func(j *api.Job) bool { return j.VersionTag != nil && j.VersionTag.Name == submittedTag }); at >= 0 {
		submitted, sure = versions[at], true
	}
	changed := differences(submitted, now)
	if len(changed) == 0 {
		if s.drift == driftRestore {
			none.remarks = restorations(submitted, versions)
		}
		return none, nil
	}
	if ours, err := s.isReleased(ctx, job, v.id); err != nil || ours { // since the look: it was Kale that stopped it
		return none, err
	}
	stopped, scaled := slices.Contains(changed, wasStopped), slices.Contains(changed, wasScaled)
	if others := slices.DeleteFunc(slices.Clone(changed), func(c string) bool { return c == wasStopped || c == wasScaled }); len(others) > 0 { // that it was ended its state says
		text = "its Nomad job was changed, and not by Kale: " + strings.Join(others, ", ")
	}
	ended := ""
	if scaled {
		ended = "its Nomad job was scaled to 0, and not by Kale"
	}
	n.lg.Warn("somebody changed a Nomad job", "job", job, "id", v.id.String(), "nomad_job", v.job.ID, "changed", changed, "drift", s.drift)
	switch s.drift {
	case driftRestore:
		if !sure {
			return driftVerdict{ended: ended, text: joined(text, "it is not restored: Nomad has forgotten what was submitted")}, nil
		}
		err := n.restore(ctx, s, job, v, *submitted.Version, *now.Version)
		if err != nil && needsAPerson(err) {
			return driftVerdict{ended: ended, text: joined(text, "it cannot be restored: "+backend.AsError(err).Message)}, nil
		}
		return driftVerdict{ended: ended, text: joined(text, "it is being restored"), back: stopped || scaled}, err
	case driftAdopt:
		if !stopped && !scaled {
			return none, nil
		}
		err := s.adopt(ctx, job, v)
		return driftVerdict{back: err != nil, adopted: err == nil}, err
	}
	return driftVerdict{ended: ended, text: text}, nil
}

// restorations tells what others changed and when that was brought back, by the versions that Nomad remembers. It does not tell who they were.
func restorations(submitted *api.Job, versions []*api.Job) (out []backend.Remark) {
	versions = slices.SortedFunc(slices.Values(versions), func(a, b *api.Job) int { return cmp.Compare(*a.Version, *b.Version) })
	at := func(j *api.Job) time.Time {
		if j.SubmitTime == nil {
			return time.Time{}
		}
		return time.Unix(0, *j.SubmitTime)
	}
	var changed []string
	var since time.Time
	for _, j := range versions {
		switch now := differences(submitted, j); {
		case len(now) > 0:
			if changed == nil {
				since = at(j)
			}
			changed = now
		case changed != nil:
			back := at(j)
			out = append(out, backend.Remark{At: back, Text: fmt.Sprintf("somebody changed its Nomad job at %s (%s); Kale restored it at %s",
				since.Format(time.TimeOnly), strings.Join(changed, ", "), back.Format(time.TimeOnly))})
			changed = nil
		}
	}
	return out
}

// needsAPerson says that trying again does not help.
func needsAPerson(err error) bool {
	code := backend.CodeOf(err)
	return code == backend.Unauthorised || code == backend.Blocked
}

// isReleased says whether a workload is given up by now. Who stops its Nomad job for that writes it down first.
func (s settings) isReleased(ctx context.Context, job string, id backend.ID) (bool, error) {
	l, err := s.readLedger(ctx, job)
	return l.released(id), err
}

// restore brings back what was submitted, unless somebody was faster once more.
func (n *nomad) restore(ctx context.Context, s settings, job string, v view, submitted, version uint64) error {
	opts, cancel := s.write(ctx)
	defer cancel()
	if _, err := s.client.Jobs().TagVersion(v.job.ID, submitted, submittedTag, "what Kale submitted", opts); err != nil {
		n.lg.Debug("cannot have Nomad remember what was submitted", "nomad_job", v.job.ID, "err", err)
	}
	if _, _, err := s.client.Jobs().Revert(v.job.ID, submitted, &version, opts, "", ""); err != nil {
		return failed(err, capSubmit, "restore the Nomad job of %s", v.id)
	}
	gone, err := s.isReleased(ctx, job, v.id)
	if err != nil || !gone {
		return err
	}
	if _, _, err := s.client.Jobs().Deregister(v.job.ID, false, opts); err != nil && !notFound(err) { // it was given up meanwhile
		return failed(err, capSubmit, "stop %s", v.id)
	}
	return nil
}

// adopt takes what others did for what is wanted: a workload that they ended was released.
func (s settings) adopt(ctx context.Context, job string, v view) error {
	_, err := s.changeLedger(ctx, job, func(l *ledger) bool {
		e, known := l.entries[seat(v.id)]
		if !known || e.Generation != v.id.Generation || e.Released != 0 {
			return false
		}
		l.entries[seat(v.id)] = entry{Generation: e.Generation, Released: backend.Drained}
		return true
	})
	return err
}

// differences says what differs between what was submitted and what is there, both as Nomad gives them back. Which nodes it
// keeps off is ours to change (steer).
func differences(submitted, now *api.Job) []string {
	var out []string
	before, after := *submitted, *now
	letGo(&before)
	letGo(&after)
	submitted, now = &before, &after
	note := func(what string, a, b any) {
		if x, y := asJSON(a), asJSON(b); x != y {
			out = append(out, fmt.Sprintf("%s %s → %s", what, x, y))
		}
	}
	if now.Stop != nil && *now.Stop {
		out = append(out, wasStopped)
	}
	note("priority", submitted.Priority, now.Priority)
	note("datacenters", submitted.Datacenters, now.Datacenters)
	note("node pool", submitted.NodePool, now.NodePool)
	if len(submitted.Constraints)+len(now.Constraints) > 0 { // none is written in two ways
		note("constraints", submitted.Constraints, now.Constraints)
	}
	for _, key := range slices.Sorted(maps.Keys(merged(submitted.Meta, now.Meta))) {
		note("meta."+key, entryOf(submitted.Meta, key), entryOf(now.Meta, key))
	}
	if len(submitted.TaskGroups) != 1 || len(now.TaskGroups) != 1 || len(now.TaskGroups[0].Tasks) != len(submitted.TaskGroups[0].Tasks) {
		return append(out, "its groups or tasks")
	}
	a, b := *submitted.TaskGroups[0], *now.TaskGroups[0]
	if b.Count != nil && *b.Count == 0 && (a.Count == nil || *a.Count > 0) {
		out = append(out, wasScaled)
	} else {
		note("count", a.Count, b.Count)
	}
	note("resources", a.Tasks[0].Resources, b.Tasks[0].Resources)
	if asJSON(a.Tasks[0].Config) != asJSON(b.Tasks[0].Config) {
		out = append(out, "what it runs")
	}
	x, y := *a.Tasks[0], *b.Tasks[0]
	a.Count, b.Count, x.Resources, y.Resources, x.Config, y.Config = nil, nil, nil, nil, nil, nil
	a.Tasks, b.Tasks = []*api.Task{&x}, []*api.Task{&y}
	if asJSON(a) != asJSON(b) {
		out = append(out, "other settings of its group")
	}
	return out
}

// entryOf gives a map's value, nil where there is none.
func entryOf(m map[string]string, key string) *string {
	v, has := m[key]
	if !has {
		return nil
	}
	return &v
}

// merged has the keys of both.
func merged(a, b map[string]string) map[string]string {
	out := maps.Clone(b)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, a)
	return out
}

func asJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil { // plain data
		panic("nomad: write a part of a job as JSON: " + err.Error())
	}
	return string(raw)
}
