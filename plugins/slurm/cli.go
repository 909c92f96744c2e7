package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// cli is the controller by Slurm's command line.
type cli struct {
	binDir   string // empty: $PATH
	clusters string // a list; empty: the one of slurm.conf
}

func (c cli) path(name string) string {
	if c.binDir == "" {
		return name
	}
	return filepath.Join(c.binDir, name)
}

// run runs one client. What the environment says about formats and filters is kept from it; times are in UTC.
func (c cli) run(ctx context.Context, timeout time.Duration, stdin, name string, args ...string) (stdout, stderr string, err error) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if c.clusters != "" {
		args = append([]string{"--clusters=" + c.clusters}, args...)
	}
	cmd := exec.CommandContext(bounded, c.path(name), args...)
	cmd.Env = clientEnviron(backend.CleanEnviron())
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = time.Second
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err = cmd.Run()
	stderr = strings.TrimSpace(complaint.String())
	if err == nil {
		return out.String(), stderr, nil
	}
	if bounded.Err() != nil {
		err = fmt.Errorf("no answer within %v (is slurmctld down? try: scontrol ping): %w", timeout, bounded.Err())
	}
	return out.String(), stderr, &slurmError{asking: name, said: stderr, err: err}
}

// clientEnviron leaves out the variables that change what Slurm's clients do or print, and sets those that fix it.
func clientEnviron(env []string) []string {
	var out []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		drop := name == "TZ" || name == "LC_ALL" || name == "SLURM_TIME_FORMAT" || name == "SLURM_BITSTR_LEN" || name == "SLURM_CLUSTERS"
		for _, prefix := range []string{"SBATCH_", "SQUEUE_", "SCANCEL_", "SINFO_", "SALLOC_", "SRUN_", "SLURM_JOB_", "SLURM_STEP_"} {
			drop = drop || strings.HasPrefix(name, prefix)
		}
		if !drop {
			out = append(out, kv)
		}
	}
	return append(out, "TZ=UTC", "LC_ALL=C", "SLURM_TIME_FORMAT=standard")
}

// at gives the client for one of the clusters.
func (c cli) at(cluster string) cli {
	if cluster != "" {
		c.clusters = cluster
	}
	return c
}

// each gives a client for each of the clusters: for programs that take only one at a time.
func (c cli) each() []cli {
	var out []cli
	for cluster := range strings.SplitSeq(c.clusters, ",") {
		out = append(out, c.at(cluster))
	}
	return out
}

// The fields of a line, parted by a character that no field has; lines begin with another, since comments may have line ends.
const (
	lineMark    = "\x1e"
	fieldMark   = "\x1f"
	queueFormat = lineMark + "%i" + fieldMark + "%j" + fieldMark + "%T" + fieldMark + "%r" + fieldMark + "%N" + fieldMark + "%S" + fieldMark + "%l" + fieldMark + "%e" + fieldMark + "%k"
	queueFields = 9
)

func (c cli) jobs(ctx context.Context) ([]row, error) {
	var all []row
	for _, c := range c.each() { // one by one: squeue does not say with --noheader which cluster a line is of, and numbers come in every cluster
		out, _, err := c.run(ctx, askTimeout, "", "squeue", "--noheader", "--states=all", "--user="+strconv.Itoa(os.Getuid()), "--format="+queueFormat)
		if err != nil {
			return nil, err
		}
		all = append(all, parseQueue(out, c.clusters)...)
	}
	return all, nil
}

func (c cli) nodes(ctx context.Context) ([]node, error) {
	var all []node
	for _, c := range c.each() {
		out, _, err := c.run(ctx, askTimeout, "", "scontrol", "--details", "--oneliner", "show", "nodes")
		if err != nil {
			return nil, err
		}
		nodes := parseNodes(out)
		for i := range nodes {
			nodes[i].cluster = c.clusters
		}
		all = append(all, nodes...)
	}
	return all, nil
}

func (c cli) submit(ctx context.Context, within time.Duration, b batch) (jobRef, error) {
	out, _, err := c.run(ctx, within, b.script(), "sbatch", "--parsable")
	if err != nil {
		return jobRef{}, err
	}
	return parseSubmitted(out)
}

func (c cli) test(ctx context.Context, b batch) (partition string, err error) {
	_, said, err := c.run(ctx, askTimeout, b.script(), "sbatch", "--test-only")
	return parseTested(said), err
}

func (c cli) signal(ctx context.Context, sig string, job jobRef) error {
	_, _, err := c.at(job.cluster).run(ctx, cancelTimeout, "", "scancel", "--quiet", "--batch", "--signal="+sig, job.id)
	return err
}

func (c cli) cancel(ctx context.Context, jobs ...jobRef) error {
	byCluster := map[string][]string{}
	for _, j := range jobs {
		byCluster[j.cluster] = append(byCluster[j.cluster], j.id)
	}
	var errs []error
	for cluster, ids := range byCluster {
		_, _, err := c.at(cluster).run(ctx, cancelTimeout, "", "scancel", append([]string{"--quiet"}, ids...)...)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sacctFields are what sacct is asked for, in its order.
const sacctFields = "JobIDRaw,Cluster,JobName,State,ExitCode,NodeList,Submit,Reason"

func (c cli) ended(ctx context.Context, since time.Time, jobs []jobRef) ([]ending, error) {
	var ids []string
	for _, j := range jobs {
		ids = append(ids, j.id)
	}
	slices.Sort(ids)
	out, stderr, err := c.run(ctx, askTimeout, "", "sacct", "--parsable2", "--noheader", "--allocations", "--duplicates",
		"--starttime="+since.UTC().Format(timeForm), "--jobs="+strings.Join(slices.Compact(ids), ","), "--format="+sacctFields)
	if err != nil {
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) || strings.Contains(stderr, "accounting storage is disabled") {
			return nil, fmt.Errorf("%w: %w", errNoAccounting, err)
		}
		return nil, err
	}
	return parseAccounts(out, c.clusters != ""), nil
}
