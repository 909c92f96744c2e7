package e2e_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/kale-sched/kale/cmd/kale/chaos"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// leakKind is what Slurm brings about itself: after its controller was killed and has read an older state it may (22.05 does) count GPUs of jobs that have ended for
// ever, so that nodes are idle and have none free. An administrator who sees that gives scontrol reconfigure.
const leakKind chaos.Kind = "gpus-leak"

const (
	leakEvery = time.Second
	leakLooks = 3 // of which each must see the leak: a count may be behind
)

// leakFault is the number of the first leak in a journal, above all that are drawn.
const leakFault = 1 << 20

// leaks looks for GPUs that no job has any more, from when the controller was first killed on, and does what an administrator would.
func leaks(c *slurmtest.Cluster) func(*storm) {
	next, seen, since, fault := time.Time{}, 0, time.Time{}, chaos.Fault{Number: leakFault, Kind: leakKind}
	return func(k *storm) {
		now := time.Now()
		if _, killed := k.busy[slurmctld]; !killed || k.busy[slurmctld] || now.Before(next) {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		lost, err := leaked(ctx, c)
		switch next = time.Now().Add(leakEvery); {
		case err != nil: // slurmctld is busy
		case lost == "" && seen >= leakLooks:
			k.journal.Heal(time.Now(), fault)
			fault.Number++
			seen = 0
		case lost == "":
			seen = 0
		case seen == 0:
			seen, since = 1, now
		default:
			if seen++; seen == leakLooks {
				k.journal.Strike(since, fault, "%s; scontrol reconfigure is given", lost)
			}
			if seen < leakLooks {
				return
			}
			if _, err := c.Run(ctx, "scontrol", "reconfigure"); err != nil {
				k.journal.Note(time.Now(), "%v", err)
			}
		}
	}
}

var gresUsed = regexp.MustCompile(`NodeName=(\S+).*? GresUsed=gpu:[^:( ]*:(\d+)`)

// leaked says which nodes count more GPUs than the jobs on them have; "": none does.
func leaked(ctx context.Context, c *slurmtest.Cluster) (string, error) {
	nodes, err := c.Run(ctx, "scontrol", "show", "node", "--details", "--oneliner")
	if err != nil {
		return "", err
	}
	jobs, err := c.Run(ctx, "squeue", "--noheader", "--array", "--states=RUNNING,COMPLETING,CONFIGURING,SUSPENDED,STAGE_OUT,SIGNALING", "--format=%N %b")
	if err != nil {
		return "", err
	}
	has := map[string]int{}
	for line := range strings.Lines(jobs) {
		node, gres, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.Atoi(gres[strings.LastIndex(gres, ":")+1:]); err == nil {
			has[node] += n
		}
	}
	var out []string
	for _, m := range gresUsed.FindAllStringSubmatch(nodes, -1) {
		if n, _ := strconv.Atoi(m[2]); n > has[m[1]] {
			out = append(out, fmt.Sprintf("Slurm counts %d GPUs of node %s as used and its jobs have %d", n, m[1], has[m[1]]))
		}
	}
	return strings.Join(out, ", "), nil
}
