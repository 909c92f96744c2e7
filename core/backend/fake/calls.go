package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// What a backend is asked, carried out on the table.

func (c *Cluster) plan(owner backend.Owner, job string, ws []backend.Workload) (backend.Report, error) {
	problems, err := backend.ValidateAll(job, ws)
	if err != nil {
		return backend.Report{}, err
	}
	var report backend.Report
	err = c.with(func(t *table) error {
		if err := t.owned(job, owner, false); err != nil {
			return err
		}
		free := 0
		for _, holder := range t.held() {
			if holder == "" {
				free++
			}
		}
		left, needs := free, 0
		for i, w := range ws {
			p := backend.Placement{ID: w.ID, Node: "fake"}
			e := t.newest(job, w.ID)
			switch {
			case problems[i] != nil:
				p.Reason = problems[i].Message
			case e != nil && e.Workload.ID == w.ID && !e.Released:
				p.Fits, p.Devices, p.Reason = true, e.Status.Devices, "runs already"
			case e != nil && e.Workload.ID.Generation >= w.ID.Generation:
				p.Newest, p.Reason = e.Workload.ID.Generation, "it was released or replaced"
			case w.Resources.GPUs <= left:
				p.Fits, left, needs = true, left-w.Resources.GPUs, needs+w.Resources.GPUs
			default:
				needs += w.Resources.GPUs
				p.Reason = fmt.Sprintf("needs %d slots, %d free", w.Resources.GPUs, left)
			}
			report.Placements = append(report.Placements, p)
		}
		if needs > free {
			report.Shortage = fmt.Sprintf("needs %d slots, %d free", needs, free)
		}
		return nil
	})
	return report, err
}

func (c *Cluster) ensure(owner backend.Owner, job string, ws []backend.Workload) ([]backend.Status, error) {
	problems, err := backend.ValidateAll(job, ws)
	if err != nil {
		return nil, err
	}
	out := make([]backend.Status, len(ws))
	err = c.with(func(t *table) error {
		if err := t.owned(job, owner, true); err != nil {
			return err
		}
		for i, w := range ws {
			out[i] = backend.Status{ID: w.ID, State: backend.StateFailed, Err: problems[i]}
			if problems[i] == nil {
				out[i] = t.ensureOne(job, w)
			}
		}
		return nil
	})
	return out, err
}

func (t *table) ensureOne(job string, w backend.Workload) backend.Status {
	refuse := func(e *backend.Error) backend.Status {
		return backend.Status{ID: w.ID, State: backend.StateFailed, Reason: e.Message, Err: e}
	}
	beside := false
	if old := t.newest(job, w.ID); old != nil {
		known := old.Workload.ID.Generation
		switch {
		case known > w.ID.Generation:
			return refuse(backend.Errorf(backend.Gone, "start %s of job %q: generation %d has replaced it", w.ID, job, known))
		case known == w.ID.Generation && old.Released:
			return refuse(backend.Errorf(backend.Gone, "start %s of job %q: it was released; use a higher generation", w.ID, job))
		case known == w.ID.Generation:
			return old.Status
		}
		for _, e := range t.Jobs[job] {
			if e.Workload.ID.Role != w.ID.Role || e.Workload.ID.Rank != w.ID.Rank || !e.Status.State.Live() {
				continue
			}
			if beside = w.Beside && t.Beside; !beside {
				e.Released = true
				e.finish(137, "replaced")
			}
		}
		old.Released = old.Released || !beside
	}
	e := &entry{Workload: w, Status: backend.Status{ID: w.ID, Node: "fake", Address: "127.0.0.1"}}
	program := w.Argv[0]
	code := 0
	switch program {
	case "run", "crash", "stubborn", "echo":
	case "exit":
		var err error
		if len(w.Argv) < 2 {
			err = errors.New("it needs a code")
		} else {
			code, err = strconv.Atoi(w.Argv[1])
		}
		if err != nil {
			return refuse(backend.Invalidf("argv[1]", "start %s of job %q: exit: %v", w.ID, job, err))
		}
	default:
		return refuse(backend.Invalidf("argv[0]", "start %s of job %q: the fake has no program %q", w.ID, job, program))
	}
	holders := t.held()
	for i := 0; i < len(holders) && len(e.Status.Devices) < w.Resources.GPUs; i++ {
		if holders[i] == "" {
			e.Status.Devices = append(e.Status.Devices, "slot-"+strconv.Itoa(i))
		}
	}
	if free := len(e.Status.Devices); free < w.Resources.GPUs {
		return refuse(backend.Errorf(backend.NoCapacity, "start %s of job %q: needs %d slots, %d free", w.ID, job, w.Resources.GPUs, free))
	}
	if t.Jobs[job] == nil {
		t.Jobs[job] = map[string]*entry{}
	}
	t.Jobs[job][w.ID.String()] = e
	if beside {
		e.Status.State, e.Status.Beside, e.Status.Reason = backend.StateStarting, true, "it holds its place until the generation before it has ended"
		return e.Status
	}
	t.start(e)
	e.Log = "started\n"
	switch program {
	case "exit":
		e.finish(code, "ended with "+backend.EndWords(code))
	case "crash":
		t.restart(e)
	case "echo":
		e.Log += string(w.Files["hello"]) + "\n" + w.Env["GREETING"] + "\n"
		e.finish(0, "ended with code 0")
	}
	return e.Status
}

func (c *Cluster) list(owner backend.Owner, job string) ([]backend.Status, error) {
	var out []backend.Status
	err := c.with(func(t *table) error {
		if err := t.owned(job, owner, false); err != nil {
			return err
		}
		for _, e := range t.Jobs[job] {
			if !e.gone() {
				out = append(out, e.Status)
			}
		}
		return nil
	})
	slices.SortFunc(out, func(a, b backend.Status) int { return a.ID.Compare(b.ID) })
	return out, err
}

func (c *Cluster) release(owner backend.Owner, job string, ids []backend.ID, how backend.How) error {
	return c.with(func(t *table) error {
		if err := t.owned(job, owner, false); err != nil {
			return err
		}
		for _, id := range ids {
			e := t.Jobs[job][id.String()]
			if e == nil || e.gone() {
				continue
			}
			e.Released = true
			if e.Status.State.Live() {
				e.Status.State = backend.StateStopping
			}
			switch {
			case how == backend.Forced:
				e.finish(137, "forced")
			case e.Workload.Argv[0] != "stubborn":
				e.finish(0, "drained")
			case e.KillAt.IsZero():
				grace := e.Workload.StopGrace
				if grace == 0 {
					grace = backend.DefaultStopGrace
				}
				e.KillAt = time.Now().Add(grace)
			}
		}
		return nil
	})
}

func (c *Cluster) forget(owner backend.Owner, job, role string) (removed []string, err error) {
	err = c.with(func(t *table) error {
		if refusal := owner.Refuse(job, t.Owners[job]); refusal != nil {
			return refusal
		}
		var all []backend.Status
		for _, e := range t.Jobs[job] {
			all = append(all, e.Status)
		}
		ids, err := backend.Forgettable(job, role, all)
		if err != nil {
			return err
		}
		for _, id := range ids {
			delete(t.Jobs[job], id.String())
		}
		if len(t.Jobs[job]) == 0 {
			delete(t.Jobs, job)
			delete(t.Owners, job)
		}
		if len(ids) > 0 {
			removed = []string{fmt.Sprintf("%d workloads and their logs", len(ids))}
		}
		return nil
	})
	return removed, err
}

func (c *Cluster) inventory() (backend.Inventory, error) {
	var inv backend.Inventory
	err := c.with(func(t *table) error {
		inv.QueueWait, inv.Excluded, inv.Faults = t.Queue, t.Excluded, t.Faults
		for i, holder := range t.held() {
			inv.Total++
			if holder == "" {
				inv.Free++
			}
			inv.Devices = append(inv.Devices, backend.Device{ID: "slot-" + strconv.Itoa(i), Node: "fake", HeldBy: holder})
		}
		return nil
	})
	return inv, err
}

// logs gives the log as it is and, when it is to be followed, what is added until ctx or the workload ends.
func (c *Cluster) logs(ctx context.Context, job string, id backend.ID, opts backend.LogOptions) (io.ReadCloser, error) {
	read := func() (text string, live bool, err error) {
		err = c.change(job, id, func(e *entry) { text, live = e.Log, e.Status.State.Live() })
		return text, live, err
	}
	text, live, err := read()
	if err != nil {
		return nil, err
	}
	past := lastLines(text, opts.Tail)
	if !opts.Follow {
		return io.NopCloser(strings.NewReader(past)), nil
	}
	r, w := io.Pipe()
	// Ends with ctx, the reader or the workload; owns w.
	go func() {
		seen := len(text)
		_, err := io.WriteString(w, past)
		for err == nil && live && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(watchEvery):
			}
			if text, live, err = read(); err == nil && len(text) > seen {
				_, err = io.WriteString(w, text[seen:])
				seen = len(text)
			}
		}
		w.CloseWithError(err)
	}()
	return r, nil
}

func lastLines(text string, n int) string {
	if n == 0 {
		return text
	}
	if n < 0 {
		return ""
	}
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return strings.Join(lines[max(0, len(lines)-n):], "")
}
