package nomad

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// What a workload is not to show to those who may only read jobs: its files and its environment.
func TestSecretsAreNotInTheJob(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "  env = { BLOCK_SECRET = \"hidden-in-the-block\" }\n")
	id := workerID(0, 1)
	w := r.workload("j", id, conformance.Steady)
	w.Files = map[string][]byte{"spec.json": []byte("hidden-in-a-file"), "empty": nil, "binary": {0, 1, 2, 0xff, '\n', '\''}}
	w.Env["QUOTED"] = "it's ${NOMAD_ALLOC_ID} and $HOME\nhidden-in-the-environment"
	w.Argv[2] = `trap 'exit 0' TERM; ls -l "$KALE_ALLOC_DIR" | awk '{print $1, $NF}'; cat "$KALE_ALLOC_DIR/binary" | od -An -tx1; echo "$QUOTED" '${NOMAD_ALLOC_ID} %{ if }'; ` + w.Argv[2]
	ensure(t, n, "j", w)
	conformance.WaitFor(t, n, "j", id, "runs", in(backend.StateRunning))
	job, _, err := r.raw(t).Jobs().Info(nomadJob("j", id), nil)
	if err != nil {
		t.Fatal(err)
	}
	allocs, _, err := r.raw(t).Jobs().Allocations(nomadJob("j", id), true, nil)
	if err != nil || len(allocs) != 1 {
		t.Fatalf("allocations: %v, %v", allocs, err)
	}
	raw, err := json.Marshal([]any{job, allocs})
	if err != nil {
		t.Fatal(err)
	}
	if i := strings.Index(string(raw), "hidden-in"); i >= 0 {
		t.Errorf("the job or its allocation shows a secret: …%s…", raw[max(0, i-60):i+30])
	}
	var log string
	conformance.Eventually(t, "it has started", func() error {
		log = logOf(t, n, "j", id)
		if !strings.Contains(log, "started") {
			return fmt.Errorf("its log is %q", log)
		}
		return nil
	})
	for _, want := range []string{
		"-rw------- spec.json", "-rw------- empty", " 00 01 02 ff 0a 27", "it's ${NOMAD_ALLOC_ID} and $HOME\nhidden-in-the-environment ${NOMAD_ALLOC_ID} %{ if }\n",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the workload printed %q, want %q in it", log, want)
		}
	}
	conformance.Drop(t, n, "j")
	for _, path := range payloadPaths(nomadJob("j", id)) {
		if v, _, err := r.raw(t).Variables().Peek(path, nil); err != nil || v != nil {
			t.Errorf("after the release the variable %s is %v, %v; want none", path, v, err)
		}
	}
}

// What workloads were given goes with them, however they end: by people's hands too, whether that is before they are replaced or before they are released.
func TestSecretsGoWithTheWorkload(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	jobs := r.raw(t).Jobs()
	ways := []func(id backend.ID){
		func(id backend.ID) { r.scale(t, "j", id, 0) },
		func(id backend.ID) { r.lose(t, "j", id) },
		func(id backend.ID) {
			if _, _, err := jobs.Deregister(nomadJob("j", id), true, nil); err != nil {
				t.Fatal(err)
			}
		},
		func(backend.ID) {}, // it goes on until it is replaced or released
	}
	alike := r.configured(t, "j-worker", "") // its variables begin as j's do
	other := r.workload("j-worker", workerID(0, 1), conformance.Steady)
	ensure(t, alike, "j-worker", other)
	keeps := func(want ...string) {
		t.Helper()
		conformance.Eventually(t, "Nomad keeps the variables of what is there, and no others", func() error {
			if _, _, err := n.List(t.Context(), "j"); err != nil {
				return err
			}
			found, _, err := r.raw(t).Variables().PrefixList("nomad/jobs/", nil)
			if err != nil {
				return err
			}
			var got []string
			for _, v := range found {
				got = append(got, strings.TrimPrefix(v.Path, "nomad/jobs/"))
			}
			return diffError(append(want, nomadJob("j-worker", other.ID)), got)
		})
	}
	var ids []backend.ID
	for generation := uint64(1); generation <= 2; generation++ {
		var ws []backend.Workload
		var names []string
		ids = nil
		for rank := range ways {
			w := r.workload("j", workerID(rank, generation), conformance.Steady)
			w.Files = map[string][]byte{"token": []byte("secret")}
			w.Resources.GPUs = 0
			ws, ids, names = append(ws, w), append(ids, w.ID), append(names, nomadJob("j", w.ID))
		}
		conformance.Eventually(t, "all are accepted", func() error {
			sts, err := n.Ensure(t.Context(), "j", ws)
			for i := range sts {
				if sts[i].Err != nil {
					err = errors.Join(err, sts[i].Err)
				}
			}
			return err
		})
		for _, id := range ids {
			conformance.WaitFor(t, n, "j", id, "runs", in(backend.StateRunning))
		}
		keeps(names...)
		for rank, end := range ways {
			end(ids[rank])
		}
		for _, id := range ids[:len(ids)-1] {
			conformance.WaitFor(t, n, "j", id, "has ended", in(backend.StateFailed))
		}
	}
	if err := n.Release(t.Context(), "j", ids, backend.Forced); err != nil {
		t.Fatal(err)
	}
	keeps()
	conformance.Drop(t, n, "j")
	conformance.Drop(t, alike, "j-worker")
}

// awaitLog waits until the workload has written this.
func awaitLog(t testing.TB, b backend.Backend, job string, id backend.ID, want string) {
	t.Helper()
	conformance.Eventually(t, "its log says so", func() error {
		if log := logOf(t, b, job, id); !strings.Contains(log, want) {
			return fmt.Errorf("it is %q, want %q in it", log, want)
		}
		return nil
	})
}

func logOf(t testing.TB, b backend.Backend, job string, id backend.ID) string {
	t.Helper()
	r, err := b.Logs(t.Context(), job, id, backend.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var text strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		text.Write(buf[:n])
		if err != nil {
			return text.String()
		}
	}
}

// Files that are too large for Nomad's variables arrive all the same, as long as they can be compressed; what cannot is refused
// when it is planned and when it is asked for, and says what to do.
func TestLargeFiles(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	w := r.workload("j", workerID(0, 1), conformance.Steady)
	w.Files = map[string][]byte{"spec.json": bytes.Repeat([]byte(`{"feature": 12345678}`), 50_000), ".hidden": []byte("dot"), "empty": nil}
	w.Argv[2] = `trap 'exit 0' TERM; cd "$KALE_ALLOC_DIR"; for f in spec.json .hidden empty; do ls -l $f | cut -c1-10; wc -c < $f; done; cksum < spec.json; ` + w.Argv[2]
	ensure(t, n, "j", w)
	conformance.WaitFor(t, n, "j", w.ID, "runs", in(backend.StateRunning))
	want := "-rw-------\n1050000\n-rw-------\n3\n-rw-------\n0\n" + cksum(t, w.Files["spec.json"]) + "\n"
	conformance.Eventually(t, "it has its files", func() error {
		if log := logOf(t, n, "j", w.ID); !strings.HasPrefix(log, want) {
			return fmt.Errorf("it printed %q, want %q at first", log, want)
		}
		return nil
	})
	huge := r.workload("j", workerID(1, 1), conformance.Steady)
	noise := make([]byte, 150_000)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise) // it never fails
	huge.Files = map[string][]byte{"model": noise}
	report, err := n.Plan(t.Context(), "j", []backend.Workload{huge})
	if err != nil || report.Placements[0].Fits || !strings.Contains(report.Placements[0].Reason, "shared folder") {
		t.Errorf("Plan = %+v, %v; want that it cannot be, and what to do", report, err)
	}
	sts, err := n.Ensure(t.Context(), "j", []backend.Workload{huge})
	if err != nil || sts[0].Err == nil || sts[0].Err.Code != backend.InvalidField || sts[0].Err.Field != "workloads[0].files" || !strings.Contains(sts[0].Reason, "(150 KB)") {
		t.Errorf("Ensure = %+v, %v; want code %q", sts, err, backend.InvalidField)
	}
	conformance.Drop(t, n, "j")
}

// cksum gives what the program of that name prints of the content.
func cksum(t *testing.T, content []byte) string {
	t.Helper()
	cmd := exec.Command("cksum")
	cmd.Stdin = bytes.NewReader(content)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// Nomad's agents take a hundred connections from one address: what is read of nodes, again and again, holds none of them.
func TestReadingHoldsNoConnections(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	w := r.workload("j", workerID(0, 1), conformance.Steady)
	ensure(t, n, "j", w)
	conformance.WaitFor(t, n, "j", w.ID, "runs", in(backend.StateRunning))
	logOf(t, n, "j", w.ID)
	before := sockets(t)
	for range 40 {
		logOf(t, n, "j", w.ID)
	}
	if after := sockets(t); after > before+10 {
		t.Errorf("the process has %d sockets, after it had %d and read a log forty times", after, before)
	}
	conformance.Drop(t, n, "j")
}

// sockets counts those that this process has open.
func sockets(t *testing.T) (count int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			count++
		}
	}
	return count
}

// A full cluster: what waits says for what, and what was asked for is placed when there is room.
func TestFullCluster(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	big := func(rank int) backend.Workload {
		w := r.workload("j", workerID(rank, 1), conformance.Steady)
		w.Resources.GPUs = gpusPerNode
		return w
	}
	ensure(t, n, "j", big(0), big(1))
	for rank := range 2 {
		st := conformance.WaitFor(t, n, "j", workerID(rank, 1), "runs", in(backend.StateRunning))
		if len(st.Devices) != gpusPerNode || st.Address == "" || st.Node == "" || st.Submitted.IsZero() {
			t.Errorf("what runs is %+v; want its devices, node, address and time of submission", st)
		}
	}
	ensure(t, n, "j", big(2))
	conformance.WaitFor(t, n, "j", workerID(2, 1), "says what it waits for", func(st backend.Status) bool {
		return st.State == backend.StatePending && strings.HasPrefix(st.Reason, "needs 2 GPUs, 0 free")
	})
	report, err := n.Plan(t.Context(), "j", []backend.Workload{big(3)})
	if err != nil || report.Fits() || !strings.HasPrefix(report.Shortage, "needs 2 GPUs, 0 free") {
		t.Errorf("Plan = %+v, %v; want a shortage of 2 GPUs", report, err)
	}
	if err := n.Release(t.Context(), "j", []backend.ID{workerID(0, 1)}, backend.Drained); err != nil {
		t.Fatal(err)
	}
	conformance.WaitFor(t, n, "j", workerID(2, 1), "runs in the place of what was released", in(backend.StateRunning))
	conformance.Drop(t, n, "j")
}

// The server is killed while it is asked: what was asked for twice is there once, and nothing that ran was touched.
func TestServerKilledInMidCall(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	standing := r.workload("j", workerID(0, 1), conformance.Steady)
	ensure(t, n, "j", standing)
	conformance.WaitFor(t, n, "j", standing.ID, "runs", in(backend.StateRunning))
	asked := make(chan error, 1)
	newcomer := r.workload("j", workerID(1, 1), conformance.Steady)
	go func() {
		_, err := n.Ensure(t.Context(), "j", []backend.Workload{newcomer})
		asked <- err
	}()
	r.cluster.KillServer()
	if err := <-asked; err != nil && backend.CodeOf(err) != backend.Unavailable {
		t.Errorf("Ensure while the server was killed: %v; want code %q", err, backend.Unavailable)
	}
	if statuses, complete, err := n.List(t.Context(), "j"); err == nil || complete || len(statuses) > 0 || backend.CodeOf(err) != backend.Unavailable {
		t.Errorf("List without a server = %v, complete %v, %v; want an error with code %q", statuses, complete, err, backend.Unavailable)
	}
	if err := r.cluster.StartServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "it is asked for again", func() error {
		sts, err := n.Ensure(t.Context(), "j", []backend.Workload{standing, newcomer})
		if err != nil {
			return err
		}
		for _, st := range sts {
			if st.Err != nil {
				return st.Err
			}
		}
		return nil
	})
	for _, w := range []backend.Workload{standing, newcomer} {
		conformance.WaitFor(t, n, "j", w.ID, "runs", in(backend.StateRunning))
		r.started(t, "j", w.ID, 1)
	}
	conformance.Drop(t, n, "j")
}

// A client is lost, its worker is replaced, and the client comes back: the old worker ends, the new one stays, and at no
// time did both have the same GPU. The processes write themselves who they are.
func TestClientLostAndBack(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	old := r.workload("j", workerID(0, 1), conformance.Steady)
	old.Resources.GPUs = gpusPerNode
	beats := filepath.Join(r.dir, "beats")
	old.Argv[2] = `echo started; trap 'exit 0' TERM; while :; do echo "$$" > ` + beats + `.$$; sleep 0.1; done`
	ensure(t, n, "j", old)
	before := conformance.WaitFor(t, n, "j", old.ID, "runs", in(backend.StateRunning))
	node := r.nodeOf(t, "j", old.ID)
	r.cluster.KillClient(node)
	back := false
	defer func() {
		if !back {
			_ = r.cluster.StartClient(t.Context(), node) // for the tests that follow; this one has failed
		}
	}()
	conformance.WaitFor(t, n, "j", old.ID, "is unknown, with the reason", func(st backend.Status) bool {
		return st.State == backend.StateUnknown && strings.Contains(st.Reason, before.Node)
	})
	successor := r.workload("j", workerID(0, 2), conformance.Steady)
	successor.Resources.GPUs = gpusPerNode
	conformance.Eventually(t, "a higher generation is accepted", func() error {
		sts, err := n.Ensure(t.Context(), "j", []backend.Workload{successor})
		if err == nil && sts[0].Err != nil {
			err = sts[0].Err
		}
		return err
	})
	after := conformance.WaitFor(t, n, "j", successor.ID, "runs", in(backend.StateRunning))
	if after.Node == before.Node {
		t.Errorf("the successor is on %s too, on which the old one may run", after.Node)
	}
	if err := r.cluster.StartClient(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	back = true
	conformance.Eventually(t, "the old process is gone", func() error { return stillBeating(beats) })
	conformance.Eventually(t, "only the successor is listed", func() error {
		all, _, err := n.List(t.Context(), "j")
		if err == nil && (len(all) != 1 || all[0].ID != successor.ID || all[0].State != backend.StateRunning) {
			err = fmt.Errorf("there is %+v", all)
		}
		return err
	})
	conformance.Eventually(t, "new workloads may be placed on the node that is back", func() error {
		s, err := n.jobs.Of(t.Context(), "j")
		if err != nil {
			return err
		}
		p, err := s.look(t.Context(), "j")
		if err == nil && len(avoid(p)) > 0 {
			err = fmt.Errorf("they are kept off it: %v", avoid(p))
		}
		return err
	})
	r.started(t, "j", successor.ID, 1)
	conformance.Drop(t, n, "j")
}

// stillBeating reports whether some process still renews its file.
func stillBeating(beats string) error {
	files, err := filepath.Glob(beats + ".*")
	if err != nil {
		return err
	}
	for _, f := range files {
		first, err := os.Stat(f)
		if err != nil {
			return err
		}
		time.Sleep(300 * time.Millisecond) // three beats
		second, err := os.Stat(f)
		if err != nil {
			return err
		}
		if second.ModTime().After(first.ModTime()) {
			return fmt.Errorf("%s is being renewed", f)
		}
	}
	return nil
}

// A process that ignores every request leaves nothing on the node, children included.
func TestNothingIsLeftOfWhatIsKilled(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	w := r.workload("j", workerID(0, 1), conformance.Steady)
	beats := filepath.Join(r.dir, "beats")
	beat := `while :; do echo x > ` + beats + `.$1; sleep 0.1; done`
	w.Argv[2] = `trap '' TERM; echo started; (set -- child; ` + beat + `) & set -- parent; ` + beat
	w.StopGrace = time.Hour
	ensure(t, n, "j", w)
	conformance.WaitFor(t, n, "j", w.ID, "runs", in(backend.StateRunning))
	conformance.Eventually(t, "both beat", func() error {
		files, err := filepath.Glob(beats + ".*")
		if err == nil && len(files) != 2 {
			err = fmt.Errorf("there is %v", files)
		}
		return err
	})
	if err := n.Release(t.Context(), "j", []backend.ID{w.ID}, backend.Drained); err != nil {
		t.Fatal(err)
	}
	conformance.WaitFor(t, n, "j", w.ID, "stops", in(backend.StateStopping))
	if err := stillBeating(beats); err == nil {
		t.Error("a drain with a grace of an hour ended it at once")
	}
	conformance.Drop(t, n, "j")
	if err := stillBeating(beats); err != nil {
		t.Errorf("after a forced release: %v", err)
	}
}

// Somebody asks for two copies of a worker: the second never runs, and is not taken for the worker. The first goes on, is said to, and it is its log that is
// read; what was changed is said for as long as it is so.
func TestSecondCopyNeverRuns(t *testing.T) {
	for _, tt := range []struct{ drift, reason string }{
		{driftReport, "its Nomad job was changed, and not by Kale: count 1 → 2"}, {driftRestore, ""}, {driftAdopt, ""},
	} {
		t.Run(tt.drift, func(t *testing.T) {
			r := newRig(t)
			n := r.configured(t, "j", fmt.Sprintf("  drift = %q\n", tt.drift))
			w := r.workload("j", workerID(0, 1), conformance.Steady)
			ensure(t, n, "j", w)
			first := conformance.WaitFor(t, n, "j", w.ID, "runs", in(backend.StateRunning))
			awaitLog(t, n, "j", w.ID, "started")
			r.scale(t, "j", w.ID, 2)
			conformance.Eventually(t, "the second allocation has ended", func() error {
				allocs, _, err := r.raw(t).Jobs().Allocations(nomadJob("j", w.ID), true, nil)
				if err != nil {
					return err
				}
				for _, a := range allocs {
					if strings.HasSuffix(a.Name, "[1]") && a.ClientStatus == api.AllocClientStatusComplete {
						return nil
					}
				}
				return fmt.Errorf("there are %d allocations", len(allocs))
			})
			first.Reason = tt.reason
			asBefore := func() error {
				all, complete, err := n.List(t.Context(), "j")
				if restores := tt.drift == driftRestore; err == nil && len(all) == 1 {
					told := all[0].Remarks
					if len(told) > 1 || restores != (len(told) == 1) || restores && !strings.Contains(told[0].Text, "(count 1 → 2); Kale restored it") {
						return fmt.Errorf("its remarks are %+v", told)
					}
					all[0].Remarks = nil
				}
				if err == nil {
					err = diffError([]backend.Status{first}, all)
				}
				if err == nil && !complete {
					err = errors.New("the list is not complete")
				}
				return err
			}
			conformance.Eventually(t, "the first is listed as it was, with what was changed", asBefore)
			awaitLog(t, n, "j", w.ID, "started")
			if report, err := n.Plan(t.Context(), "j", []backend.Workload{w}); err != nil || !report.Fits() || report.Placements[0].Node != first.Node {
				t.Errorf("Plan = %+v, %v; want it on %s", report, err, first.Node)
			}
			r.scale(t, "j", w.ID, 1)
			first.Reason = ""
			conformance.Eventually(t, "the count is as it was, and so is all else", asBefore)
			r.started(t, "j", w.ID, 1)
			if err := n.Release(t.Context(), "j", []backend.ID{w.ID}, backend.Drained); err != nil {
				t.Fatal(err)
			}
			conformance.Drop(t, n, "j")
		})
	}
}

// diffError gives where got is not want.
func diffError(want, got any) error {
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("(-want +got):\n%s", diff)
	}
	return nil
}

// scale asks for so many copies of the workload, as a person does on the command line.
func (r rig) scale(t testing.TB, job string, id backend.ID, count int) {
	t.Helper()
	if _, _, err := r.raw(t).Jobs().Scale(nomadJob(job, id), groupName, &count, "by hand", false, nil, nil); err != nil {
		t.Fatal(err)
	}
}
