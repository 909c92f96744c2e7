package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/rpc"
)

const (
	// patience is how long anything is waited for. It only bounds a failure: a busy machine is slow, and slowness is not one.
	patience = 2 * time.Minute
	poll     = 50 * time.Millisecond
	// askTimeout bounds one question.
	askTimeout = 3 * time.Second
)

// await waits until ready says "", which is what is missing otherwise.
func (r *rig) await(what string, ready func() (missing string)) {
	r.t.Helper()
	r.awaitFor(what, patience, ready)
}

func (r *rig) awaitFor(what string, within time.Duration, ready func() (missing string)) {
	r.t.Helper()
	began := time.Now()
	for {
		missing := ready()
		if missing == "" {
			r.t.Logf("%s: after %v", what, time.Since(began).Round(10*time.Millisecond))
			return
		}
		if time.Since(began) > within {
			r.fatalf("waited %v until: %s; but %s", within, what, missing)
		}
		time.Sleep(poll)
	}
}

// fatalf ends the test with everything that is known of the job.
func (r *rig) fatalf(format string, args ...any) {
	r.t.Helper()
	r.t.Logf("%s", r.describe())
	r.t.Fatalf(format, args...)
}

// known is a value that a view may not know.
func known[T any](v *T) string {
	if v == nil {
		return "unknown"
	}
	return fmt.Sprint(*v)
}

// describe is the job's state for whoever has to find out why a test failed.
func (r *rig) describe() string {
	var b strings.Builder
	section := func(name string) { fmt.Fprintf(&b, "\n---- %s\n", name) }
	section("processes by the backend")
	list, complete, err := r.look.List(context.Background(), r.name())
	if err != nil || !complete {
		fmt.Fprintf(&b, "complete %v, error %v\n", complete, err)
	}
	for _, st := range list {
		fmt.Fprintf(&b, "%s %s pid %d restarts %d exit %d %s\n", st.ID, st.State, st.PID, st.Restarts, st.ExitCode, st.Reason)
	}
	section("scheduler")
	if v, err := r.view(); err != nil {
		fmt.Fprintln(&b, err)
	} else {
		s := v.Sample
		fmt.Fprintf(&b, "target %d running %s pending %s draining %d, %s records wait, problems %q\n", s.Target, known(s.Running), known(s.Pending), s.Draining, known(s.LagRecords), v.Problems)
		if v.Decision != nil {
			fmt.Fprintln(&b, v.Decision.Decision.Explain())
		}
	}
	section("chief")
	if st, err := r.chief(); err != nil {
		fmt.Fprintln(&b, err)
	} else {
		for _, m := range st.GetMembers() {
			m.Metrics = nil // histograms
		}
		st.Totals = nil
		fmt.Fprintln(&b, protojson.MarshalOptions{Multiline: true}.Format(st))
	}
	section("end of the log")
	if ends, err := r.ends(); err != nil {
		fmt.Fprintln(&b, err)
	} else {
		fmt.Fprintln(&b, ends)
	}
	logs, _ := filepath.Glob(r.site.files(r, "output.log")) // the pattern is good
	for _, path := range append([]string{r.logFile()}, logs...) {
		section(strings.TrimPrefix(path, r.dir))
		b.WriteString(tail(path, 40))
	}
	return b.String()
}

// tail is the end of a file, for people.
func tail(path string, lines int) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err.Error() + "\n"
	}
	all := bytes.SplitAfter(raw, []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines-1):], nil))
}

// list is what the backend knows of the job's processes, asked without the scheduler.
func (r *rig) list() []backend.Status {
	r.t.Helper()
	list, complete, err := r.look.List(context.Background(), r.name())
	if err != nil || !complete {
		r.t.Fatalf("list the job's processes: complete %v, error %v", complete, err)
	}
	return list
}

// process is one workload's status, by role and rank: that of its newest generation.
func (r *rig) process(role string, rank int) backend.Status {
	r.t.Helper()
	var found backend.Status
	for _, st := range r.list() {
		if st.ID.Role == role && st.ID.Rank == rank {
			found = st // ordered by generation
		}
	}
	return found
}

// pids are the processes of all live workloads.
func (r *rig) pids() map[string]int {
	out := map[string]int{}
	for _, st := range r.list() {
		if st.State.Live() {
			out[st.ID.String()] = st.PID
		}
	}
	return out
}

// view is the scheduler's picture.
func (r *rig) view() (*core.View, error) {
	c, err := r.api()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	return c.Status(ctx)
}

// chief is the chief's picture, asked without the scheduler.
func (r *rig) chief() (*rpc.JobStatus, error) {
	at, err := rpc.FindChief(r.spec.GetCheckpointDir(), r.name())
	if err != nil {
		return nil, err
	}
	r.addresses[at.Address] = true
	st, err := r.askChief(at.Address)
	for _, m := range st.GetMembers() {
		r.addresses[m.GetAddress()] = true
	}
	for _, s := range st.GetServers() {
		if a := s.GetInfo().GetAddress(); a != "" {
			r.addresses[a] = true
		}
	}
	return st, err
}

// askChief asks the chief at an address for its status, with the job's token.
func (r *rig) askChief(address string) (st *rpc.JobStatus, err error) {
	err = r.callChief(address, func(ctx context.Context, c rpc.ChiefClient) error {
		st, err = c.Status(ctx, &rpc.StatusRequest{})
		return err
	})
	return st, err
}

func (r *rig) callChief(address string, f func(context.Context, rpc.ChiefClient) error) error {
	if err := r.readToken(); err != nil {
		return err
	}
	return callChief(address, r.token, askTimeout, f)
}

// callChief makes a call at the chief, with the job's token.
func callChief(address, token string, within time.Duration, f func(context.Context, rpc.ChiefClient) error) error {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "kale-token", token), within)
	defer cancel()
	return f(ctx, rpc.NewChiefClient(conn))
}

// readToken finds the job's token where its processes find it.
func (r *rig) readToken() error {
	if r.token != "" {
		return nil
	}
	if r.site.spec != nil {
		raw, err := r.site.spec(r)
		if err != nil {
			return err
		}
		return r.takeToken(raw)
	}
	specs, err := filepath.Glob(r.site.files(r, filepath.Join("alloc", "spec.json")))
	if err != nil || len(specs) == 0 {
		return fmt.Errorf("no process of the job has been started yet: %w", err)
	}
	raw, err := os.ReadFile(specs[0])
	if err != nil {
		return err
	}
	return r.takeToken(raw)
}

func (r *rig) takeToken(raw []byte) error {
	var spec rpc.TrainSpec
	if err := protojson.Unmarshal(raw, &spec); err != nil {
		return err
	}
	r.token = spec.GetToken()
	return nil
}

// snapshot makes every server write a snapshot.
func (r *rig) snapshot() {
	r.t.Helper()
	r.await("all servers have written a snapshot", func() string {
		at, err := rpc.FindChief(r.spec.GetCheckpointDir(), r.name())
		if err == nil {
			err = r.callChief(at.Address, func(ctx context.Context, c rpc.ChiefClient) error {
				_, err := c.Snapshot(ctx, &rpc.SnapshotRequest{})
				return err
			})
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

// admin makes a client for the brokers. The caller closes it.
func (r *rig) admin() *kadm.Client {
	r.t.Helper()
	cl, err := kgo.NewClient(r.kafka.Client()...)
	if err != nil {
		r.t.Fatal(err)
	}
	return kadm.NewClient(cl)
}

// ends are the topic's last stable offsets.
func (r *rig) ends() (map[int32]int64, error) {
	adm := r.admin()
	defer adm.Close()
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	listed, err := adm.ListCommittedOffsets(ctx, r.topic)
	if err == nil {
		err = listed.Error()
	}
	out := map[int32]int64{}
	listed.Each(func(l kadm.ListedOffset) { out[l.Partition] = l.Offset })
	return out, err
}

// applied are the partitions' trained watermarks.
func applied(st *rpc.JobStatus) map[int32]int64 {
	out := map[int32]int64{}
	for _, p := range st.GetPartitions() {
		out[p.GetPartition()] = p.GetApplied()
	}
	return out
}

// awaitTrained waits until everything is trained that is in the log now.
func (r *rig) awaitTrained(what string) {
	r.t.Helper()
	var want map[int32]int64
	r.await(what, func() string {
		if want == nil {
			ends, err := r.ends()
			if err != nil {
				return err.Error()
			}
			want = ends
		}
		return r.untrained(want)
	})
}

// untrained says what lies below the given offsets and is not trained, or "".
func (r *rig) untrained(want map[int32]int64) string {
	st, err := r.chief()
	if err != nil {
		return err.Error()
	}
	have := applied(st)
	for _, p := range slices.Sorted(maps.Keys(want)) {
		if have[p] < want[p] {
			return fmt.Sprintf("partition %d is trained to %d of %d", p, have[p], want[p])
		}
	}
	return ""
}

// awaitSteady waits until the job trains in order again: all servers and the given number of workers are there, every partition has a reader,
// nothing is being repaired, and all that was in the log at the beginning of the wait is trained.
func (r *rig) awaitSteady(what string, workers int) {
	r.t.Helper()
	r.await(what, r.steady(workers))
}

// steady gives what says why a job does not train in order, or "".
func (r *rig) steady(workers int) func() (missing string) {
	var want map[int32]int64
	return func() string {
		st, err := r.chief()
		if err != nil {
			return err.Error()
		}
		if why := unsteady(st, workers); why != "" {
			return why
		}
		if want == nil {
			if want, err = r.ends(); err != nil {
				want = nil
				return err.Error()
			}
		}
		return r.untrained(want)
	}
}

// unsteady says why a job does not train in order, or "".
func unsteady(st *rpc.JobStatus, workers int) string {
	ready := 0
	for _, m := range st.GetMembers() {
		switch m.GetState() {
		case rpc.MemberState_MEMBER_STATE_READY:
			ready++
		case rpc.MemberState_MEMBER_STATE_JOINING, rpc.MemberState_MEMBER_STATE_DRAINING:
			return fmt.Sprintf("%s is %s", m.GetMember(), rpc.MemberStateName(m.GetState()))
		}
	}
	if ready != workers {
		return fmt.Sprintf("%d of %d workers are ready", ready, workers)
	}
	for _, s := range st.GetServers() {
		if !s.GetInfo().GetUp() {
			return fmt.Sprintf("server %d is not up", s.GetInfo().GetIndex())
		}
	}
	for _, p := range st.GetPartitions() {
		if p.GetHolder() == "" {
			return fmt.Sprintf("partition %d has no reader", p.GetPartition())
		}
	}
	if st.GetInGrace() || st.GetRepairing() || len(st.GetProblems()) > 0 {
		return fmt.Sprintf("grace %v, repairing %v, problems %v", st.GetInGrace(), st.GetRepairing(), st.GetProblems())
	}
	return ""
}

// processes finds the processes, other than this one, that a rig below root has started, with their command lines: by the environment that they
// inherited, their arguments or their working directory.
func processes(root string) map[int]string {
	found := map[int]string{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return found
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() && belongs(pid, root) {
			cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // it may have ended just now
			found[pid] = strings.TrimSpace(strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return found
}

// belongs says whether a process was started by a rig below root. One that has ended and waits for its parent to take note is none.
func belongs(pid int, root string) bool {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	env, err := os.ReadFile(filepath.Join(proc, "environ"))
	if err != nil {
		return false
	}
	cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline")) // empty when it has ended just now
	cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
	return bytes.Contains(env, []byte(marker+"="+root)) || bytes.Contains(cmdline, []byte(root)) || strings.HasPrefix(cwd, root)
}

// plugin is the process of the scheduler's backend plugin, 0 when there is none.
func (r *rig) plugin() int {
	r.t.Helper()
	return r.pluginOf(r.sched.cmd.Process.Pid)
}

// pluginOf is the process of the backend plugin of a command of kale.
func (r *rig) pluginOf(kale int) int {
	for pid, cmdline := range processes(r.dir) {
		if parent(pid) == kale && strings.Contains(cmdline, "kale-backend-"+r.site.backend) {
			return pid
		}
	}
	return 0
}

// parent is a process's parent, 0 when it has ended.
func parent(pid int) int {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	ppid, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return ppid
}
