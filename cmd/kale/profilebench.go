package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/profile"
	"github.com/kale-sched/kale/core/rpc"
)

// bench is profile.Bench: a job with a name, a checkpoint and a state of its own, of which nothing is left, on the real job's backend. Its scheduler is the
// one of kale run.
type bench struct {
	a       *app
	l       *loaded // the real job
	lg      *slog.Logger
	trainer string
	env     map[string]string
	start   job.Start // where it begins to read
	most    int       // workers

	cur *benchJob // nil: none runs
}

// benchJob is one that was started.
type benchJob struct {
	job     *job.Job
	dir     string // its state
	backend *backend.Client
	sched   *core.Scheduler
	end     context.CancelFunc
	ran     chan error
}

// benchName is how they are called: the drawn end keeps them from being anybody's job.
var benchName = regexp.MustCompile(`^[a-z0-9-]+-profile-[0-9a-f]{8}$`)

// benchRoot is where they keep their state, each in a folder of its name: one that is found there was not swept.
func benchRoot(l *loaded) string { return filepath.Join(l.dir, "profile") }

// benchOf is the job that measures a job.
func benchOf(j *job.Job, name string, servers, workers, most int, start job.Start) *job.Job {
	c := *j
	c.Name = name
	c.Stream.Start, c.Stream.NoCommit = start, true
	c.Stream.DeadLetter, c.Stream.OnUndecodable, c.Stream.OnLost = "", job.OnLostSkip, job.OnLostSkip // the real job has told of them
	c.Workers.Min, c.Workers.Max = 1, most
	c.Servers.Count = servers
	c.Throughput = job.Throughput{Form: "async", Theta: []float64{1 / guessedRate(j), 0, 0}, Source: "assumed"}
	c.Forecast.Model, c.Forecast.History, c.Forecast.Horizon = job.ForecastSeasonal, 2*c.Forecast.Interval, 2*c.Forecast.Interval // it forecasts nothing
	c.Autoscale.Policy, c.Autoscale.Params = job.PolicyStatic, map[string]float64{"workers": float64(workers)}
	c.Autoscale.Mode, c.Autoscale.PlaceTimeout = job.ModeLive, 24*time.Hour
	c.Autoscale.Watch = min(c.Autoscale.Watch, time.Second)
	c.Autoscale.Tick = min(c.Autoscale.Tick, time.Second)
	c.Checkpoint.Every = 24 * time.Hour // nothing is to be restored
	// The real job's scheduler has the ports that the file names.
	if host, _, err := net.SplitHostPort(c.Network.Listen); err == nil {
		c.Network.Listen = net.JoinHostPort(host, "0")
	}
	if host, _, err := net.SplitHostPort(c.Network.Advertise); err == nil {
		c.Network.Advertise = net.JoinHostPort(host, "0")
	}
	return &c
}

// guessedRate is what one worker is believed to train before it was measured, records/s.
func guessedRate(j *job.Job) float64 {
	if m := core.Prior(j); m.Validate() == nil {
		if f := m.Throughput(1, j.Servers.Count); f > 0 {
			return f
		}
	}
	if s := j.Workers.EmulateStep; s > 0 {
		return float64(j.Model.Batch) / s.Seconds()
	}
	return 5000 // as kale init guesses
}

// Start implements profile.Bench.
func (b *bench) Start(ctx context.Context, servers, workers int) error {
	var raw [4]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return fmt.Errorf("draw a name: %w", err)
	}
	const longest = 40 // of a job's name, so that names of processes stay within what clusters take
	name := b.l.Name[:min(len(b.l.Name), longest)] + "-profile-" + hex.EncodeToString(raw[:])
	dir := filepath.Join(benchRoot(b.l), name)
	if err := os.MkdirAll(dir, 0o700); err != nil { // from here on a run that dies is swept by the next one
		return fmt.Errorf("make a folder for the measuring job: %w", err)
	}
	return b.open(ctx, dir, benchOf(b.l.Job, name, servers, workers, b.most, b.start), false)
}

// open launches the plugin and opens the job's scheduler, and lets it run unless it is only to be ended.
func (b *bench) open(ctx context.Context, dir string, j *job.Job, stop bool) error {
	c := &benchJob{job: j, dir: dir}
	b.cur = c
	path, diags := b.a.plugin(b.l)
	err := b.a.diagnose(b.l.files, diags)
	if err == nil {
		c.backend, err = backend.Launch(ctx, b.lg, path, backend.Options{SocketDir: dir})
	}
	if err != nil {
		return err
	}
	c.sched, diags, err = core.Open(ctx, core.Options{
		Job: j, StateDir: dir, BackendDir: b.l.dir, Backend: c.backend, Trainer: b.trainer, Env: b.env, Log: b.lg, Stop: stop,
	})
	if shown := b.a.diagnose(b.l.files, diags); err == nil {
		err = shown
	}
	if err != nil || stop {
		return err
	}
	// Ends with b.End, which waits for it.
	run, end := context.WithCancel(context.WithoutCancel(ctx))
	c.end, c.ran = end, make(chan error, 1)
	go func() { c.ran <- c.sched.Run(run) }()
	return nil
}

// Scale implements profile.Bench.
func (b *bench) Scale(ctx context.Context, workers int) error {
	return b.cur.sched.Do(ctx, core.Order{Kind: "scale", Target: workers})
}

// Look implements profile.Bench.
func (b *bench) Look(context.Context) (profile.Look, error) {
	select {
	case err := <-b.cur.ran:
		b.cur.ran <- err // for End
		return profile.Look{}, fmt.Errorf("the scheduler of the measuring job ended: %w", err)
	default:
	}
	return lookOf(b.cur.sched.View()), nil
}

// lookOf is what a profile needs of a view.
func lookOf(v *core.View) profile.Look {
	if v == nil {
		return profile.Look{Backlog: -1}
	}
	l := profile.Look{
		At: v.Sample.At, Backlog: -1, Problems: v.Problems,
		Settled: v.Rescale == nil && v.Sample.Unknown == "" && v.Chief != nil && !v.Chief.GetRepairing(),
	}
	for _, m := range v.Chief.GetMembers() {
		switch m.GetState() {
		case rpc.MemberState_MEMBER_STATE_READY, rpc.MemberState_MEMBER_STATE_JOINING, rpc.MemberState_MEMBER_STATE_DRAINING:
			w := m.GetMetrics()
			l.Members = append(l.Members, profile.Member{
				ID: fmt.Sprintf("%d.%d", m.GetRank(), m.GetGeneration()), Ready: m.GetState() == rpc.MemberState_MEMBER_STATE_READY,
				Records: w.GetRecords(), Steps: w.GetSteps(), Seconds: w.GetWallSeconds(), Saturated: w.GetSaturated(),
			})
		}
	}
	waiting, known := int64(0), len(v.Chief.GetPartitions()) > 0
	for _, p := range v.Chief.GetPartitions() {
		known = known && p.GetEnd() >= 0
		waiting += max(0, p.GetEnd()-p.GetApplied())
	}
	if known {
		l.Backlog = waiting
	}
	return l
}

// sweepTimeout bounds the end of a measuring job.
const sweepTimeout = 2 * time.Minute

// End implements profile.Bench.
func (b *bench) End(ctx context.Context) error {
	c := b.cur
	if c == nil {
		return nil
	}
	b.cur = nil
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	var err error
	if c.end != nil {
		c.end()
		err = <-c.ran
	}
	if err != nil {
		b.lg.Warn("the scheduler of the measuring job ended badly", "err", err)
	}
	if c.sched != nil {
		for {
			if err = c.sched.Kill(ctx); err == nil || ctx.Err() != nil {
				break
			}
			b.lg.Warn("the measuring job is not released yet; trying again", "err", err)
		}
		err = errors.Join(err, c.sched.Close())
	}
	if c.backend != nil {
		if err == nil && c.sched != nil {
			if _, e := c.backend.Forget(ctx, c.job.Name, ""); e != nil && backend.CodeOf(e) != backend.Unsupported {
				err = fmt.Errorf("remove what the backend keeps of it: %w", e)
			}
		}
		err = errors.Join(err, c.backend.Close())
	}
	if err != nil {
		return fmt.Errorf("end the measuring job %q: %w; the next kale profile of this job tries again", c.job.Name, err)
	}
	return b.remove(ctx, c)
}

// remove removes what a measuring job has left on disk, its state last: while that is there, the next run sweeps again.
func (b *bench) remove(ctx context.Context, c *benchJob) error {
	left := []string{core.CheckpointFolder(c.job)}
	entries, _ := os.ReadDir(c.job.Checkpoint.Dir) // none: nothing is left there
	for _, e := range entries {                    // who had the job, and where its processes were
		if strings.HasPrefix(e.Name(), "."+c.job.Name+".") {
			left = append(left, filepath.Join(c.job.Checkpoint.Dir, e.Name()))
		}
	}
	if b.l.Backend.Name == job.BackendLocal {
		left = append(left, filepath.Join(b.l.dir, b.l.Backend.Name, "backend-local", "jobs", c.job.Name)) // logs
	}
	for _, dir := range append(left, c.dir) {
		err := os.RemoveAll(dir)
		for err != nil && ctx.Err() == nil { // a process that has just ended may have written a last file
			if wait(ctx, 100*time.Millisecond) == nil {
				err = os.RemoveAll(dir)
			}
		}
		if err != nil {
			return fmt.Errorf("remove what the measuring job %q has left: %w", c.job.Name, err)
		}
	}
	_ = os.Remove(benchRoot(b.l)) // unless another one is in it
	return nil
}

// sweep ends and removes measuring jobs of runs that died. state.ErrLocked is in the error's chain where one of them still runs.
func (b *bench) sweep(ctx context.Context) (swept []string, err error) {
	entries, err := os.ReadDir(benchRoot(b.l))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if !e.IsDir() || !benchName.MatchString(e.Name()) {
			continue
		}
		dir := filepath.Join(benchRoot(b.l), e.Name())
		j := benchOf(b.l.Job, e.Name(), b.l.Servers.Count, 1, 1, b.start)
		if err := b.open(ctx, dir, j, true); err != nil {
			c := b.cur
			b.cur = nil
			if c.sched != nil {
				err = errors.Join(err, c.sched.Close())
			}
			if c.backend != nil {
				err = errors.Join(err, c.backend.Close())
			}
			return swept, err
		}
		if err := b.End(ctx); err != nil {
			return swept, err
		}
		swept = append(swept, e.Name())
	}
	return swept, err
}

// room says what is missing for so many servers and workers beside what runs, "" when nothing is, and how many of the workers would fit.
func (b *bench) room(ctx context.Context, servers int, workers []int) (missing string, fit int, err error) {
	cl, err := b.a.launch(ctx, b.lg, b.l)
	if err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, cl.Close()) }()
	j := benchOf(b.l.Job, b.l.Name+"-profile-00000000", servers, 1, b.most, b.start)
	diags, err := core.ConfigureBackend(ctx, cl, j, b.l.dir)
	if err == nil {
		err = b.a.diagnose(b.l.files, diags)
	}
	if err != nil {
		return "", 0, err
	}
	o := core.Options{Job: j, Backend: cl, Trainer: b.trainer, Env: b.env, Log: b.lg}
	for _, w := range slices.Backward(workers) {
		report, err := core.CouldPlace(ctx, o, w)
		if err != nil && backend.CodeOf(err) == backend.Unsupported {
			return missing, w, nil
		}
		if err == nil {
			err = b.a.diagnose(b.l.files, report.Mistakes.HCL())
		}
		if err != nil {
			return missing, 0, err
		}
		short := core.Shortage(report)
		if short == "" {
			return missing, w, nil
		}
		if missing == "" {
			missing = short
		}
	}
	return missing, 0, nil
}
