package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/core/stream/kafkatest"
	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

var (
	crowd       = flag.Int("crowd", 0, "TestCrowd's number of workers; 0 skips it")
	crowdSteady = flag.Duration("crowd-steady", 2*time.Minute, "how long TestCrowd counts calls while nothing changes, after half as long without")
)

// crowds are the clusters of TestCrowd: for a number of workers, how to start one, and what counts the calls to its controller.
var crowds = []struct {
	name  string
	start func(r *rig, workers int) (s *site, calls func() (int64, error))
}{
	{"slurm", func(r *rig, workers int) (*site, func() (int64, error)) {
		const each = 8
		s, c, _ := slurmOf(r, slurmtest.Options{Nodes: (workers + each - 1) / each, GPUsPerNode: each, CPUs: 64})
		return s, func() (int64, error) { return slurmCalls(c) }
	}},
	{"nomad", func(r *rig, workers int) (*site, func() (int64, error)) {
		const nodes = 4
		s, _, _, relay := nomadOf(r, nomadtest.Options{Clients: nodes, GPUs: (workers + nodes - 1) / nodes})
		return s, func() (int64, error) { return relay.Requests(), nil }
	}},
}

// A job with many more workers than partitions joins them all to its chief, by one order. The figures are for whoever runs it: how long that took, what each
// process holds of memory, and how often the cluster's controller is asked while nothing changes.
func TestCrowd(t *testing.T) {
	if *crowd < 2 {
		t.Skip("make crowd runs it")
	}
	for _, on := range crowds {
		t.Run(on.name, func(t *testing.T) {
			var calls func() (int64, error)
			at := &site{backend: on.name}
			at.start = func(r *rig) (s *site) {
				s, calls = on.start(r, *crowd)
				return s
			}
			r := newRig(t, kafkatest.Embedded(t), options{policy: job.PolicyKale, min: 1, max: *crowd, step: 100 * time.Millisecond, watch: 5 * time.Second, every: 10 * time.Second, site: at})
			r.run()
			r.scale(1)
			p := r.steadyTraffic(50)
			r.awaitSteady("one worker trains", 1)
			began, before := time.Now(), count(r, calls)
			r.scale(*crowd)
			r.awaitFor("all have joined", 20*time.Minute, everySecond(func() string { return joined(r, *crowd) }))
			r.await("the job trains", everySecond(r.steady(*crowd)))
			ready, expelled := lastReady(r)
			t.Logf("%d workers: %v from the order until all were ready at the chief, %d expelled; %d calls to the controller meanwhile", *crowd, ready.Sub(began).Round(10*time.Millisecond),
				expelled, count(r, calls)-before)
			pass(r, "backends ask seldom by now", *crowdSteady/2)
			before, busy, began := count(r, calls), r.processorTime(), time.Now()
			pass(r, "nothing changes", *crowdSteady)
			took := time.Since(began)
			t.Logf("while nothing changed: %.1f calls to the controller per minute", float64(count(r, calls)-before)/took.Minutes())
			for name, seconds := range r.processorTime() {
				t.Logf("%s: %.3f of a core each", name, (seconds-busy[name])/took.Seconds()/float64(max(1, len(r.memory()[name]))))
			}
			for name, held := range r.memory() {
				t.Logf("%s: %d processes, resident memory at the most %v", name, len(held), held)
			}
			r.endTraffic(p)
			r.awaitTrained("everything is trained")
			r.stop()
			r.gone()
			for _, s := range records[core.Rescale](r, state.Rescales) {
				t.Logf("%s %d → %d, from its decision to all ready %v, gap %v (known: %v)", s.Kind, s.From, s.To, ready.Sub(s.Decided).Round(10*time.Millisecond), s.Gap, s.GapKnown)
			}
			r.produced(nil)
			r.exact(100)
		})
	}
}

// everySecond asks no oftener than that: the answer about many is long.
func everySecond(ready func() (missing string)) func() (missing string) {
	var asked time.Time
	missing := ""
	return func() string {
		if time.Since(asked) > time.Second {
			asked, missing = time.Now(), ready()
		}
		return missing
	}
}

// pass lets time go by in which something is measured.
func pass(r *rig, what string, d time.Duration) {
	r.t.Helper()
	began := time.Now()
	r.awaitFor(what, 2*d, func() string {
		if left := d - time.Since(began); left > 0 {
			return left.String() + " is left"
		}
		return ""
	})
}

func count(r *rig, calls func() (int64, error)) int64 {
	r.t.Helper()
	n, err := calls()
	if err != nil {
		r.fatalf("count the calls to the controller: %v", err)
	}
	return n
}

// joined says why not so many workers are ready.
func joined(r *rig, workers int) string {
	st, err := r.chief()
	if err != nil {
		return err.Error()
	}
	ready := 0
	for _, m := range st.GetMembers() {
		if m.GetState() == rpc.MemberState_MEMBER_STATE_READY {
			ready++
		}
	}
	if ready != workers {
		return fmt.Sprintf("%d of %d are ready", ready, workers)
	}
	return ""
}

// lastReady is when the last worker was ready by the chief's clock, and how many the chief has expelled.
func lastReady(r *rig) (at time.Time, expelled int) {
	r.t.Helper()
	st, err := r.chief()
	if err != nil {
		r.fatalf("%v", err)
	}
	for _, m := range st.GetMembers() {
		if ready := time.UnixMilli(m.GetReadyUnixMs()); ready.After(at) {
			at = ready
		}
		if m.GetState() == rpc.MemberState_MEMBER_STATE_EXPELLED {
			expelled++
		}
	}
	return at, expelled
}

// slurmCalls counts what clients asked slurmctld, by its own statistics; what its nodes say to it is none of these.
func slurmCalls(c *slurmtest.Cluster) (int64, error) {
	out, err := c.Run(context.Background(), "sdiag")
	if err != nil {
		return 0, err
	}
	// "REQUEST_JOB_INFO ( 2003) count:12 ave_time:..."
	total, found := int64(0), false
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		i := strings.Index(line, "count:")
		if i < 0 || len(f) == 0 {
			continue
		}
		if strings.Contains(line, "by user") || !strings.HasPrefix(f[0], "REQUEST_") && !strings.HasPrefix(f[0], "MESSAGE_") {
			if found {
				break // the next table counts them again, by user
			}
			continue
		}
		found = true
		n, err := strconv.ParseInt(strings.Fields(line[i+len("count:"):])[0], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read sdiag: %q: %w", line, err)
		}
		switch f[0] {
		case "REQUEST_COMPLETE_BATCH_SCRIPT", "REQUEST_STEP_COMPLETE", "REQUEST_COMPLETE_PROLOG", "REQUEST_STATS_INFO", "REQUEST_PING":
		default:
			if strings.HasPrefix(f[0], "REQUEST_") {
				total += n
			}
		}
	}
	if !found {
		return 0, errors.New("sdiag shows no calls")
	}
	return total, nil
}

// kind is what a process of a rig is, for figures.
func kind(cmdline string) string {
	f := strings.Fields(cmdline)
	if len(f) == 0 {
		return ""
	}
	name := filepath.Base(f[0])
	if name == "kale-trainer" && len(f) > 1 {
		name += " " + f[1]
	}
	return name
}

// mebibytes are amounts of memory, of which the smallest, the median and the largest are shown.
type mebibytes []int

func (m mebibytes) String() string {
	if len(m) == 0 {
		return "none"
	}
	sum := 0
	least, most := m[0], m[0]
	for _, v := range m {
		sum, least, most = sum+v, min(least, v), max(most, v)
	}
	return fmt.Sprintf("%d MiB in the mean, %d to %d", sum/len(m), least, most)
}

// memory is the highest resident memory of each of the rig's processes so far, by kind.
func (r *rig) memory() map[string]mebibytes {
	out := map[string]mebibytes{}
	for pid, cmdline := range processes(r.dir) {
		f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		if err != nil {
			continue // it has ended
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if v, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
				if kib, err := strconv.Atoi(strings.Fields(v)[0]); err == nil {
					out[kind(cmdline)] = append(out[kind(cmdline)], kib>>10)
				}
			}
		}
		f.Close()
	}
	return out
}

// processorTime is what the rig's processes have used of processors so far, in seconds, by kind.
func (r *rig) processorTime() map[string]float64 {
	const ticks = 100 // per second, on every Linux (USER_HZ)
	out := map[string]float64{}
	for pid, cmdline := range processes(r.dir) {
		raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if err != nil {
			continue // it has ended
		}
		f := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
		for _, i := range []int{11, 12} { // utime, stime
			if len(f) > i {
				n, _ := strconv.Atoi(f[i])
				out[kind(cmdline)] += float64(n) / ticks
			}
		}
	}
	return out
}
