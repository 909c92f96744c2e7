package slurm

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// foreseeing is the command line with the ends that preemptions with a grace set to jobs without a time limit: squeue shows none of these, only when the preemption
// began. It is safe for concurrent use.
type foreseeing struct {
	cli

	mu     sync.Mutex
	graces map[string]graces // by cluster
}

// graces are how long a cluster lets jobs run on that it preempts.
type graces struct {
	at   time.Time // when it was asked for them
	qos  bool      // they are by QOS; else by partition
	last map[string]time.Duration
}

// gracesKept is for how long a cluster is not asked again for its graces, which its administrator sets.
const gracesKept = 5 * time.Minute

func (c *foreseeing) jobs(ctx context.Context) ([]row, error) {
	rows, err := c.cli.jobs(ctx)
	if err != nil {
		return nil, err
	}
	for _, cluster := range c.each() {
		ids := endlessJobs(rows, cluster.clusters)
		if len(ids) == 0 {
			continue
		}
		g := c.gracesOf(ctx, cluster)
		if len(g.last) == 0 {
			continue
		}
		out, _, err := cluster.run(ctx, askTimeout, "", "squeue", "--noheader", "--jobs="+strings.Join(ids, ","), "--Format="+preemptFormat)
		if err != nil {
			continue // asked again with the next look; a job that has gone meanwhile is an error too
		}
		ends := parsePreempted(out, g)
		for i, r := range rows {
			if end, ok := ends[r.id]; ok && r.cluster == cluster.clusters && r.deadline.IsZero() {
				rows[i].deadline, rows[i].cause = end, backend.EndPreemption
			}
		}
	}
	return rows, nil
}

// endlessJobs are those of a cluster that run and have no end that is known.
func endlessJobs(rows []row, cluster string) (ids []string) {
	for _, r := range rows {
		if r.cluster == cluster && r.phase() == phaseRunning && r.deadline.IsZero() {
			ids = append(ids, r.id)
		}
	}
	return ids
}

// gracesOf gives a cluster's graces; none where it preempts nobody, or does not say.
func (c *foreseeing) gracesOf(ctx context.Context, cluster cli) graces {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.graces[cluster.clusters]
	if !g.at.IsZero() && time.Since(g.at) < gracesKept {
		return g
	}
	if c.graces == nil {
		c.graces = map[string]graces{}
	}
	c.graces[cluster.clusters] = cluster.askGraces(ctx)
	return c.graces[cluster.clusters]
}

func (c cli) askGraces(ctx context.Context) graces {
	g := graces{at: time.Now()}
	config, _, err := c.run(ctx, askTimeout, "", "scontrol", "--oneliner", "show", "config")
	if err != nil {
		return g
	}
	switch configValue(config, "PreemptType") {
	case "preempt/partition_prio":
		if out, _, err := c.run(ctx, askTimeout, "", "scontrol", "--all", "--oneliner", "show", "partitions"); err == nil {
			g.last = partitionGraces(out)
		}
	case "preempt/qos":
		c.clusters = "" // sacctmgr has no such option
		if out, _, err := c.run(ctx, askTimeout, "", "sacctmgr", "--parsable2", "--noheader", "show", "qos", "format=Name,GraceTime"); err == nil {
			g.qos, g.last = true, qosGraces(out)
		}
	}
	return g
}

// partitionGraces reads the graces from what scontrol shows of partitions, one a line.
func partitionGraces(out string) map[string]time.Duration {
	last := map[string]time.Duration{}
	for line := range strings.Lines(out) {
		names, seconds := fieldOf(line, "PartitionName"), fieldOf(line, "GraceTime")
		if len(names) == 0 || len(seconds) == 0 {
			continue
		}
		if n, err := strconv.Atoi(seconds[0]); err == nil && n > 0 {
			last[names[0]] = time.Duration(n) * time.Second
		}
	}
	return last
}

// qosGraces reads them from what sacctmgr shows of QOS: "normal|00:00:30".
func qosGraces(out string) map[string]time.Duration {
	last := map[string]time.Duration{}
	for line := range strings.Lines(out) {
		name, grace, _ := strings.Cut(strings.TrimSpace(line), "|")
		if d, err := parseLimit(grace); err == nil && d > 0 {
			last[name] = d
		}
	}
	return last
}

// preemptFormat is what squeue is asked for: --format has no letter for it. The widths are of the longest that there are.
const preemptFormat = "JobID:24,PreemptTime:24,Partition:256,QOS:256"

// parsePreempted reads the ends of those jobs that are being preempted, by their number.
func parsePreempted(out string, g graces) map[string]time.Time {
	ends := map[string]time.Time{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 3 || parseTime(f[1]).IsZero() {
			continue
		}
		by := f[2]
		if g.qos {
			by = f[len(f)-1]
		}
		if grace, ok := g.last[by]; ok {
			ends[f[0]] = parseTime(f[1]).Add(grace)
		}
	}
	return ends
}
