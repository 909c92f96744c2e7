package slurm

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// waiter is a job of anybody's that waits in Slurm's queue.
type waiter struct {
	id         string
	partitions string // where it may go, parted by commas
	reason     string
	priority   int64 // 0: it is held
}

// idleReasons are those of jobs that come before nobody for as long as they have them: held, or waiting for another job or for a time.
var idleReasons = []string{"JobHeld", "Dependency", "BeginTime", "launch failed requeued held"}

// competes reports whether the job may be given its place before one that is submitted to the partitions now, with the block's priority where it has one.
func (w waiter) competes(partitions []string, s settings) bool {
	switch {
	case w.priority <= 0 || s.priority != nil && w.priority < int64(*s.priority):
		return false
	case slices.ContainsFunc(idleReasons, func(r string) bool { return strings.HasPrefix(w.reason, r) }):
		return false
	}
	return slices.ContainsFunc(strings.Split(w.partitions, ","), func(p string) bool { return slices.Contains(partitions, p) })
}

// ahead says which jobs of others wait where the job's would be submitted: what is free may go to them first, since Slurm gives a new job its priority only when
// it has it. standard is the partition of jobs that name none. It is empty where nobody waits there, and where that cannot be told: the partition is not known, or
// which of several clusters it will be.
func (j *job) ahead(ctx context.Context, c captured, standard string) string {
	where := j.partitions(c.nodes, standard)
	if where == "" || strings.Contains(j.set.way.clusters, ",") {
		return ""
	}
	all, err := j.queue.ctl.pending(ctx, where)
	if err != nil {
		j.lg.Info("whether jobs of others come first cannot be asked", "err", err)
		return ""
	}
	ours := map[string]bool{}
	for _, v := range c.views[j] {
		for _, r := range append([]row{v.row}, v.surplus...) {
			ours[r.id] = true
		}
	}
	partitions, others := strings.Split(where, ","), 0
	for _, w := range all {
		if !ours[w.id] && w.competes(partitions, j.set) {
			others++
		}
	}
	noun := "partition "
	if len(partitions) > 1 {
		noun = "partitions "
	}
	switch others {
	case 0:
		return ""
	case 1:
		return "1 other job waits in " + noun + where + " and may come first"
	default:
		return fmt.Sprintf("%d other jobs wait in %s and may come first", others, noun+where)
	}
}

// partitions gives those that the job's may go to, parted by commas; empty where that is not known.
func (j *job) partitions(nodes []node, standard string) string {
	if known := cmp.Or(j.set.partition, standard); known != "" {
		return known
	}
	var all []string
	for _, n := range nodes {
		all = append(all, n.partitions...)
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) == 1 {
		return all[0]
	}
	return ""
}

// testedIn is where sbatch --test-only says which partition a job would run in.
var testedIn = regexp.MustCompile(`(?m) in partition (\S+)$`)

// parseTested gives the partition that sbatch --test-only names, "" where it names none.
func parseTested(out string) string {
	if m := testedIn.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return ""
}

const (
	pendingFormat = lineMark + "%i" + fieldMark + "%P" + fieldMark + "%Q" + fieldMark + "%r"
	pendingFields = 4
)

func (c cli) pending(ctx context.Context, partitions string) ([]waiter, error) {
	out, _, err := c.run(ctx, askTimeout, "", "squeue", "--noheader", "--states=PENDING", "--partition="+partitions, "--format="+pendingFormat)
	if err != nil {
		return nil, err
	}
	return parsePending(out), nil
}

// parsePending reads squeue's output of what waits. An array whose tasks wait is one line.
func parsePending(out string) []waiter {
	var all []waiter
	for i, record := range strings.Split(out, lineMark) {
		f := strings.SplitN(strings.TrimRight(record, "\n"), fieldMark, pendingFields)
		if i > 0 && len(f) == pendingFields {
			priority, err := strconv.ParseInt(f[2], 10, 64)
			if err != nil {
				priority = 1 // it is not held for all that is known
			}
			all = append(all, waiter{id: f[0], partitions: f[1], priority: priority, reason: f[3]})
		}
	}
	return all
}

func (r *rest) pending(ctx context.Context, _ string) ([]waiter, error) {
	queue, err := everybodys[restWaiter](ctx, r)
	if err != nil {
		return nil, err
	}
	var all []waiter
	for _, j := range queue {
		if j.State.state() == "PENDING" {
			all = append(all, j.waiter())
		}
	}
	return all, nil
}

// restWaiter is a job in the queue, of anybody's.
type restWaiter struct {
	ID        restNumber  `json:"job_id"`
	State     restStrings `json:"job_state"`
	Reason    string      `json:"state_reason"`
	Partition string      `json:"partition"`
	Priority  restNumber  `json:"priority"`
}

func (j restWaiter) waiter() waiter {
	w := waiter{id: strconv.FormatInt(j.ID.value, 10), partitions: j.Partition, priority: j.Priority.value, reason: j.Reason}
	if !j.Priority.set {
		w.priority = 1 // as above
	}
	return w
}
