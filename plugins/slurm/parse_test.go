package slurm

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// Every state of squeue(1), "JOB STATE CODES", in Slurm 22.05 to 25.05, has its row.
func TestStates(t *testing.T) {
	for state, want := range map[string]phase{
		"BOOT_FAIL": phaseOver, "CANCELLED": phaseOver, "COMPLETED": phaseOver, "CONFIGURING": phasePlaced, "COMPLETING": phaseEnding, "DEADLINE": phaseOver,
		"FAILED": phaseOver, "LAUNCH_FAILED": phaseOver, "NODE_FAIL": phaseOver, "OUT_OF_MEMORY": phaseOver, "PENDING": phaseQueued, "PREEMPTED": phaseOver,
		"RUNNING": phaseRunning, "RESV_DEL_HOLD": phaseQueued, "REQUEUE_FED": phaseQueued, "REQUEUE_HOLD": phaseQueued, "REQUEUED": phaseQueued,
		"RESIZING": phaseRunning, "REVOKED": phaseOver, "SIGNALING": phaseRunning, "SPECIAL_EXIT": phaseQueued, "STAGE_OUT": phaseEnding, "STOPPED": phasePlaced,
		"SUSPENDED": phasePlaced, "TIMEOUT": phaseOver, "SOMETHING_NEW": phaseUnknown,
	} {
		got := stateOf(state)
		if got.phase != want {
			t.Errorf("%s: phase %d, want %d", state, got.phase, want)
		}
		v := view{instance: instance{id: worker(0, 1)}, inQueue: true, row: row{state: state, id: "7"}}
		if want == phaseOver {
			v.verdict = &verdict{State: state, Node: "n1"}
		}
		st := v.status()
		wantState := map[phase]backend.State{
			phaseUnknown: backend.StateUnknown, phaseQueued: backend.StatePending, phasePlaced: backend.StateStarting, phaseRunning: backend.StateStarting,
			phaseEnding: backend.StateStopping, phaseOver: backend.StateFailed,
		}[want]
		if st.State != wantState || st.Reason == "" {
			t.Errorf("%s: status %q (%q), want %q and a reason", state, st.State, st.Reason, wantState)
		}
		v.release = &release{How: "drained"}
		wantState = backend.StateStopping
		if want == phaseOver {
			wantState = backend.StateExited
		}
		if st := v.status(); st.State != wantState {
			t.Errorf("%s, released: status %q, want %q", state, st.State, wantState)
		}
	}
	if len(slurmStates) != 25 {
		t.Errorf("the table has %d states, and this test knows 25", len(slurmStates))
	}
}

// Every state that the manual of the squeue that is installed here documents has its row, and so have the codes of slurmrestd's that stand beside a base state.
func TestStatesOfTheManual(t *testing.T) {
	var page []byte
	for _, path := range []string{"/usr/share/man/man1/squeue.1.gz", "/usr/local/share/man/man1/squeue.1", "/usr/share/man/man1/squeue.1", "/opt/slurm/share/man/man1/squeue.1"} {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if page = raw; strings.HasSuffix(path, ".gz") {
			z, err := gzip.NewReader(bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			if page, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		break
	}
	for _, flag := range restFlags {
		if stateOf(flag).phase == phaseUnknown {
			t.Errorf("%s is not in the table", flag)
		}
	}
	_, section, found := strings.Cut(string(page), "\n.SH \"JOB STATE CODES\"")
	if !found {
		t.Skip("squeue's manual is not here: apt-get install slurm-client (with its manual pages)")
	}
	section, _, _ = strings.Cut(section, "\n.SH ")
	states := regexp.MustCompile(`(?m)^\\fB[A-Z]{1,3}\s+([A-Z_]+)\\fR`).FindAllStringSubmatch(section, -1)
	if len(states) < 20 {
		t.Fatalf("only %d states were found in the manual: the test reads it wrongly", len(states))
	}
	for _, m := range states {
		if stateOf(m[1]).phase == phaseUnknown {
			t.Errorf("%s is in squeue's manual and not in the table", m[1])
		}
	}
	t.Logf("%d states", len(states))
}

func TestExplain(t *testing.T) {
	for reason, want := range map[string]string{
		"None": "", "(Resources)": "Resources: nothing that it fits on is free", "QOSMaxGRESPerUser": "QOSMaxGRESPerUser: a limit of its QOS is reached (sacctmgr show qos)",
		"QOSMaxWallDurationPerJobLimit":      "QOSMaxWallDurationPerJobLimit: its time limit is above its QOS's: lower time (sacctmgr show qos)",
		"QOSGrpGRES":                         "QOSGrpGRES: the QOS as a whole has reached its limit (sacctmgr show qos)",
		"ReqNodeNotAvail, UnavailableNodes:": "ReqNodeNotAvail, UnavailableNodes:: the nodes that it could run on are down, drained or reserved", "Unheard": "Unheard",
	} {
		if got := explain(reason); got != want {
			t.Errorf("explain(%q) = %q, want %q", reason, got, want)
		}
	}
}

func TestParseLimit(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"30": 30 * time.Minute, "2:30": 150 * time.Second, "1:02:03": time.Hour + 2*time.Minute + 3*time.Second, "1-0": 24 * time.Hour,
		"2-03:04": 51*time.Hour + 4*time.Minute, "1-00:00:05": 24*time.Hour + 5*time.Second, "12h": 12 * time.Hour, "00:00": 0, "08": 8 * time.Minute,
		"2982251-04:18:00": endless + 4*time.Hour + 18*time.Minute, "4294441698": endless,
	} {
		if got, err := parseLimit(s); err != nil || got != want {
			t.Errorf("parseLimit(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "UNLIMITED", "INVALID", "N/A", "1:2:3:4", "-5", "1-", "99999999999999999999"} {
		if got, err := parseLimit(s); err == nil {
			t.Errorf("parseLimit(%q) = %v", s, got)
		}
	}
}

func TestParseQueue(t *testing.T) {
	line := func(fields ...string) string { return lineMark + strings.Join(fields, fieldMark) + "\n" }
	out := line("12", "kale:j:worker-0-g1", "RUNNING", "None", "n1", "2026-01-02T03:04:05", "2:00:00", "2026-01-02T05:04:05", "kale abc") +
		line("13", "somebody's", "RUNNING", "None", "n1", "2026-01-02T03:04:05", "2:00:00", "2026-01-02T05:04:05", "kale abc") +
		line("14", "kale:j:worker-1-g1", "PENDING", "Resources", "", "N/A", "UNLIMITED", "N/A", "the site says: kale def\nand more") +
		line("15", "kale:j:worker-1-g1", "PENDING", "Resources", "", "N/A", "UNLIMITED", "N/A", "(null)") + lineMark + "cut off" + fieldMark +
		"\n" + line("12", "kale:j:worker-2-g1", "PENDING", "Priority", "", "N/A", "1-0", "N/A", "kale ghi") +
		line("16", "kale:j:worker-3-g1", "RUNNING", "None", "n1", "2026-01-02T03:04:05", "2:00:00", "2026-01-02T03:05:00", "kale jkl") + // somebody has set its end
		line("17", "kale:j:worker-4-g1", "RUNNING", "None", "n1", "2026-01-02T03:04:05", "365-00:00:00", "2027-01-02T03:04:05", "kale mno") +
		// What Slurm shows of jobs without a limit, and of one whose end was set.
		line("18", "kale:j:worker-5-g1", "RUNNING", "None", "n1", "2026-01-02T03:04:05", "UNLIMITED", "NONE", "kale pqr") +
		line("19", "kale:j:worker-6-g1", "RUNNING", "None", "n1", "2026-01-02T03:04:05", "UNLIMITED", "2026-01-02T03:05:00", "kale stu") +
		line("20", "kale:j:worker-7-g1", "RUNNING", "None", "n1", "2026-01-02T03:04:05", "2982251-04:18:00", "2026-01-02T03:05:00", "kale vwx")
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := []row{
		{id: "12", name: "kale:j:worker-0-g1", nonce: "abc", state: "RUNNING", reason: "None", nodes: "n1", started: started, deadline: started.Add(2 * time.Hour), cause: backend.EndWalltime},
		{id: "14", name: "kale:j:worker-1-g1", nonce: "def", state: "PENDING", reason: "Resources"},
		{id: "12", name: "kale:j:worker-2-g1", nonce: "ghi", state: "PENDING", reason: "Priority"},
		{id: "16", name: "kale:j:worker-3-g1", nonce: "jkl", state: "RUNNING", reason: "None", nodes: "n1", started: started, deadline: started.Add(55 * time.Second), cause: backend.EndPreemption},
		{id: "17", name: "kale:j:worker-4-g1", nonce: "mno", state: "RUNNING", reason: "None", nodes: "n1", started: started},
		{id: "18", name: "kale:j:worker-5-g1", nonce: "pqr", state: "RUNNING", reason: "None", nodes: "n1", started: started},
		{id: "19", name: "kale:j:worker-6-g1", nonce: "stu", state: "RUNNING", reason: "None", nodes: "n1", started: started, deadline: started.Add(55 * time.Second), cause: backend.EndPreemption},
		{id: "20", name: "kale:j:worker-7-g1", nonce: "vwx", state: "RUNNING", reason: "None", nodes: "n1", started: started, deadline: started.Add(55 * time.Second), cause: backend.EndPreemption},
	}
	if diff := cmp.Diff(want, parseQueue(out, ""), cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("parseQueue (-want +got):\n%s", diff)
	}
}

func TestPick(t *testing.T) {
	rows := []row{{id: "12", state: "PENDING"}, {id: "9", state: "RUNNING"}, {id: "8", state: "COMPLETED"}, {id: "100", state: "COMPLETING"}}
	for claim, want := range map[string]string{"": "9", "12": "12", "8": "8", "77": "9"} {
		best, found, surplus := pick(rows, claim)
		if !found || best.id != want {
			t.Errorf("pick with claim %q = %+v, want %s", claim, best, want)
		}
		for _, s := range surplus {
			if s.id == want || s.id == "8" || s.id == "100" {
				t.Errorf("pick with claim %q calls %s surplus", claim, s.id)
			}
		}
	}
	if _, found, _ := pick(nil, ""); found {
		t.Error("pick found something in nothing")
	}
}

func TestParseNodes(t *testing.T) {
	const out = `NodeName=n1 Arch=x86_64 CPUAlloc=3 CPUEfctv=64 CPUTot=64 Gres=gpu:a100:2(S:0-1),gpu:h200:2,fpga:1 GresUsed=gpu:a100:1(IDX:1),gpu:h200:2(IDX:2-3) NodeAddr=10.0.0.1 NodeHostName=n1 OS=Linux 6.1 #1 SMP State=fake RealMemory=64000 AllocMem=192 Partitions=gpu,all BootTime=2026-01-02T03:00:00 SlurmdStartTime=2026-01-02T03:04:05 Reason=State=DOWN by me
NodeName=n2 CPUAlloc=0 CPUTot=8 Gres=gpu:4 GresUsed=gpu:2 NodeAddr=n2 State=IDLE+DRAIN RealMemory=1000 AllocMem=0 Partitions=gpu BootTime=None SlurmdStartTime=None Reason=a new kernel, see ops@site [on call] [root@2026-01-02T06:00:00]
NodeName=n3 CPUAlloc=0 CPUTot=8 Gres=(null) GresUsed=gpu:0 State=IDLE+CLOUD+POWERED_DOWN RealMemory=1000 AllocMem=0 Partitions=all

`
	got := parseNodes(out)
	if len(got) != 3 {
		t.Fatalf("parseNodes = %+v", got)
	}
	want := []gpu{{0, "a100", false}, {1, "a100", true}, {2, "h200", true}, {3, "h200", true}}
	if diff := cmp.Diff(want, got[0].gpus, cmp.AllowUnexported(gpu{})); diff != "" {
		t.Errorf("n1's GPUs (-want +got):\n%s", diff)
	}
	if n := got[0]; n.cpus != 64 || n.cpusUsed != 3 || n.memoryMB != 64000 || n.memoryUsedMB != 192 || n.address != "10.0.0.1" || !n.since.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) || !got[1].since.IsZero() {
		t.Errorf("n1 = %+v", n)
	}
	want = []gpu{{0, "", true}, {1, "", true}, {2, "", false}, {3, "", false}}
	if diff := cmp.Diff(want, got[1].gpus, cmp.AllowUnexported(gpu{})); diff != "" {
		t.Errorf("n2's GPUs (-want +got):\n%s", diff)
	}
	for i, usable := range []bool{true, false, true} {
		if got[i].usable() != usable {
			t.Errorf("%s in state %s: usable %v", got[i].name, got[i].state, !usable)
		}
	}
	if got[0].drained() || !got[1].drained() || got[2].drained() || !got[1].reasonAt.Equal(time.Date(2026, 1, 2, 6, 0, 0, 0, time.UTC)) || !got[0].reasonAt.IsZero() {
		t.Errorf("drains: %+v", got)
	}
	got[1].leaked = 2
	const wrong = "Slurm counts 2 GPUs of node n2 as used, and shows no job there that has any: scontrol reconfigure, by an administrator, gives them back"
	if diff := cmp.Diff([]string{wrong}, settings{}.faults(got)); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	if r := (captured{nodes: got[1:2]}).room(&job{}); r.without() != "" { // which is drained
		t.Errorf("the room says %q", r.without())
	}
	if got[1].state = "IDLE"; (captured{nodes: got}).room(&job{}).lacks(settings{}, backend.Resources{GPUs: 9}) != "needs 9 GPUs, 3 free ("+wrong+")" {
		t.Errorf("it lacks %q", (captured{nodes: got}).room(&job{}).lacks(settings{}, backend.Resources{GPUs: 9}))
	}
	for state, seems := range map[string]bool{"IDLE+PLANNED": true, "IDLE*": true, "IDLE+COMPLETING": false, "MIXED": false, "ALLOCATED": false, "DOWN": false} {
		n := got[1]
		if n.state = state; n.seemsIdle() != seems {
			t.Errorf("in state %s: seems idle %v", state, n.seemsIdle())
		}
	}
	got[1].state = "IDLE+DRAIN"
	s := settings{partition: "all,other"}
	if !s.suits(got[0]) || s.suits(got[1]) || !s.suits(got[2]) {
		t.Error("a partition is not kept to")
	}
}

func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		says string
		want backend.Code
		open bool
	}{
		{"sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed: Invalid partition name specified", backend.Blocked, false},
		{"sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified", backend.Unauthorised, false},
		{"sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", backend.NoCapacity, false},
		{"sbatch: error: Batch job submission failed: Requested node configuration is not available", backend.Blocked, false},
		{"sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", 0, true},
		{"sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", 0, true},
		{"", 0, true},
	} {
		got := refused(&slurmError{asking: "sbatch", said: tt.says, err: errors.New("exit status 1")})
		if (got == nil) != tt.open || got != nil && got.Code != tt.want {
			t.Errorf("sbatch saying %q = %v", tt.says, got)
		}
	}
	if got := refused(&slurmError{asking: "sbatch", err: &exec.Error{Name: "sbatch", Err: exec.ErrNotFound}}); got == nil || got.Code != backend.Blocked || !strings.Contains(got.Message, "bin_dir") {
		t.Errorf("no sbatch = %v", got)
	}
	for says, want := range map[string]string{
		"squeue: error: s_p_parse_file: unable to read \"/etc/slurm/slurm.conf\": Permission denied\nsqueue: error: ClusterName needs to be specified\nsqueue: fatal: Unable to process configuration file": "/etc/slurm/slurm.conf: permission denied",
		"squeue: error: s_p_parse_file: cannot stat file /etc/slurm/slurm.conf: No such file or directory, retrying in 1sec up to 60sec":                                                                    "/etc/slurm/slurm.conf: no such file or directory",
		"squeue: error: _establish_config_source: failed to fetch config\nsqueue: fatal: Could not establish a configuration source":                                                                        "there is no slurm.conf here",
	} {
		err := &slurmError{asking: "squeue", said: says, err: errors.New("exit status 1")}
		if got := refused(err); got == nil || got.Code != backend.Blocked || !strings.Contains(got.Message, "SLURM_CONF") || !strings.HasPrefix(lackingConf(err), want) {
			t.Errorf("squeue saying %q = %v, %q", says, got, lackingConf(err))
		}
	}
	dial := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, tt := range []struct {
		err      slurmError
		code     backend.Code
		says     string
		saysNone string
	}{
		{slurmError{asking: restName + ": GET /jobs", said: "Authentication failure"}, backend.Unauthorised, "token_file", "munged"},
		{slurmError{asking: "squeue", said: "Protocol authentication error"}, backend.Unauthorised, "munged", "token"},
		{slurmError{asking: restName + ": GET /jobs", err: errNoToken}, backend.Unavailable, "read anew each time", "munged"},
		{slurmError{asking: restName + ": GET /jobs", err: dial}, backend.Unavailable, "start slurmrestd", "token"},
	} {
		if got := refused(&tt.err); got == nil || got.Code != tt.code || !strings.Contains(got.Message, tt.says) || strings.Contains(got.Message, tt.saysNone) {
			t.Errorf("refused(%v) = %v; want %v, %q and not %q", &tt.err, got, tt.code, tt.says, tt.saysNone)
		}
	}
	if got := refused(nil); got != nil {
		t.Errorf("no error = %v", got)
	}
}

func TestParseSubmitted(t *testing.T) {
	for out, want := range map[string]jobRef{"12\n": {"12", ""}, "12;far\n": {"12", "far"}, "sbatch: a message of the site\n12\n": {"12", ""}} {
		if got, err := parseSubmitted(out); err != nil || got != want {
			t.Errorf("parseSubmitted(%q) = %q, %v", out, got, err)
		}
	}
	for _, out := range []string{"", "Submitted", "\n"} {
		if got, err := parseSubmitted(out); err == nil {
			t.Errorf("parseSubmitted(%q) = %q", out, got)
		}
	}
}

func TestClientEnviron(t *testing.T) {
	got := clientEnviron([]string{"PATH=/bin", "SBATCH_PARTITION=x", "SQUEUE_FORMAT=y", "SLURM_CONF=/c", "SLURM_JWT=t", "SLURM_JOB_ID=1", "TZ=Asia/Tokyo", "SLURM_TIME_FORMAT=relative"})
	want := []string{"PATH=/bin", "SLURM_CONF=/c", "SLURM_JWT=t", "TZ=UTC", "LC_ALL=C", "SLURM_TIME_FORMAT=standard"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("clientEnviron (-want +got):\n%s", diff)
	}
}

// Nodes on which workloads fail at once are left out for a while, unless most nodes are such.
func TestBadNodes(t *testing.T) {
	j := &job{name: "j", lg: conformance.Logger(t), starts: &backend.Starts{}, queue: newQueue(nil, defaultPoll), set: settings{dir: t.TempDir()}}
	j.queue.restored["n9"] = time.Now()
	one := func(role string, r report, v *verdict) view {
		return view{instance: instance{id: backend.ID{Role: role, Generation: 1}}, report: r, verdict: v}
	}
	failed := func(node string, ago time.Duration, quick bool) view {
		at := time.Now().Add(-ago)
		return one(backend.RoleWorker, report{State: backend.StateFailed, Node: node, Quick: quick, Finished: at}, &verdict{State: "COMPLETED", Node: node, At: at.Add(time.Second)})
	}
	quick := report{State: backend.StateFailed, Node: "n1", Quick: true, Finished: time.Now()}
	runs := func(role string, r report) view {
		r.Node = "n1"
		return one(role, r, nil)
	}
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	older, newer := report{State: backend.StateRunning, First: ago(3 * time.Minute)}, report{State: backend.StateRunning, First: ago(20 * time.Second)}
	of := func(nodes ...string) *room {
		r := &room{}
		for _, n := range nodes {
			r.nodes = append(r.nodes, spot{node: node{name: n}, suits: true})
		}
		return r
	}
	fell := func(node string, ago time.Duration) view {
		return view{report: report{State: backend.StateRunning, Node: node}, verdict: &verdict{State: "NODE_FAIL", Node: node, At: time.Now().Add(-ago)}}
	}
	down := func(node string, ago time.Duration) view {
		v := fell(node, ago)
		v.verdict.Ordered = true
		return v
	}
	four, away := of("n1", "n2", "n3", "n4"), of("n1", "n2", "n3", "n4")
	for i := range away.nodes[1:] {
		away.nodes[i+1].suits = false
	}
	for _, tt := range []struct {
		name  string
		views []view
		room  *room
		want  []string
	}{
		{"none", nil, four, nil},
		{"once is no habit", []view{failed("n1", 0, true)}, four, nil},
		{"twice is", []view{failed("n1", 0, true), failed("n1", time.Minute, true)}, four, []string{"n1"}},
		{"long ago", []view{failed("n1", 0, true), failed("n1", time.Hour, true)}, four, nil},
		{"twice is, before Slurm says that the jobs are over", []view{one(backend.RoleWorker, quick, nil), one(backend.RoleWorker, quick, nil)}, four, []string{"n1"}},
		{"not at once", []view{failed("n1", 0, false), failed("n1", 0, false)}, four, nil},
		{"a worker runs there since", []view{failed("n1", time.Minute, true), failed("n1", time.Minute, true), runs(backend.RoleWorker, newer)}, four, nil},
		{"a worker has run there from before", []view{failed("n1", time.Minute, true), failed("n1", time.Minute, true), runs(backend.RoleWorker, older)}, four, []string{"n1"}},
		{"a worker runs there since, and two failed after it began", []view{failed("n1", time.Minute, true), failed("n1", 0, true), failed("n1", 0, true), runs(backend.RoleWorker, newer)}, four, []string{"n1"}},
		{"a worker has only begun there", []view{failed("n1", time.Minute, true), failed("n1", time.Minute, true), runs(backend.RoleWorker, report{State: backend.StateRunning, First: ago(time.Second)})}, four, []string{"n1"}},
		{"a worker crashes there again", []view{failed("n1", time.Minute, true), failed("n1", time.Minute, true), runs(backend.RoleWorker, report{State: backend.StateRunning, First: newer.First, Finished: ago(time.Second)})}, four, []string{"n1"}},
		{"a worker waits there to start again", []view{failed("n1", time.Minute, true), failed("n1", time.Minute, true), runs(backend.RoleWorker, report{State: backend.StateStarting, First: newer.First})}, four, []string{"n1"}},
		{"a server runs there, which says nothing of workers", []view{failed("n1", time.Minute, true), failed("n1", time.Minute, true), runs(backend.RoleServer, newer)}, four, []string{"n1"}},
		{"a server runs there since the node fell", []view{fell("n1", time.Minute), fell("n1", 20*time.Minute), runs(backend.RoleServer, newer)}, four, nil},
		{"all that ran on a node went with it", []view{fell("n1", 3*time.Second), fell("n1", 0), fell("n1", time.Second)}, four, nil},
		{"a node that fell twice", []view{fell("n1", 0), fell("n1", 20*time.Minute), fell("n1", 20*time.Minute)}, four, []string{"n1"}},
		{"a node that was set down twice", []view{down("n1", 0), down("n1", 20*time.Minute)}, four, nil},
		{"a node that fell twice, and was put into use again", []view{fell("n9", time.Second), fell("n9", 20*time.Minute)}, of("n1", "n9"), nil},
		{"a node that fails anew since it was put into use", []view{failed("n9", -time.Second, true), failed("n9", -time.Second, true)}, of("n1", "n9"), []string{"n9"}},
		{"one of four, of which the others have not answered yet", []view{failed("n1", 0, true), failed("n1", 0, true)}, away, []string{"n1"}},
		{"most nodes", []view{failed("n1", 0, true), failed("n1", 0, true)}, of("n1"), nil},
	} {
		if diff := cmp.Diff(tt.want, nodesOf(j.badNodes(tt.views, tt.room))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// The end of a job without a limit that is being preempted is not in the queue's own line: it is the begin of the preemption and the grace.
func TestParsePreempted(t *testing.T) {
	parts := partitionGraces("PartitionName=low AllowGroups=ALL Default=YES GraceTime=45 Hidden=NO\nPartitionName=high GraceTime=0 Hidden=NO\n")
	if diff := cmp.Diff(map[string]time.Duration{"low": 45 * time.Second}, parts); diff != "" {
		t.Errorf("partitionGraces (-want +got):\n%s", diff)
	}
	qos := qosGraces("normal|00:00:00\nscavenge|00:02:00\n")
	if diff := cmp.Diff(map[string]time.Duration{"scavenge": 2 * time.Minute}, qos); diff != "" {
		t.Errorf("qosGraces (-want +got):\n%s", diff)
	}
	out := "12   2026-01-02T03:04:05   low   scavenge\n13   N/A   low   scavenge\n14   2026-01-02T03:04:05   high   normal\n"
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		g    graces
		want time.Time
	}{{graces{last: parts}, began.Add(45 * time.Second)}, {graces{last: qos, qos: true}, began.Add(2 * time.Minute)}} {
		if diff := cmp.Diff(map[string]time.Time{"12": tt.want}, parsePreempted(out, tt.g)); diff != "" {
			t.Errorf("parsePreempted (-want +got):\n%s", diff)
		}
	}
}

func TestHosts(t *testing.T) {
	for list, want := range map[string][]string{
		"": {""}, "n1": {"n1"}, "n1, n2": {"n1", "n2"}, "n[1-3]": {"n1", "n2", "n3"}, "a,n[08-10,12]x,b": {"a", "n08x", "n09x", "n10x", "n12x", "b"},
		"r[1-2]c[1-2]": {"r1c1", "r1c2", "r2c1", "r2c2"}, "n[1-": {"n[1-"}, "n[a-b]": {"n[a-b]"}, "n[1-999999999]": {"n[1-999999999]"},
	} {
		if diff := cmp.Diff(want, hosts(list)); diff != "" {
			t.Errorf("hosts(%q) (-want +got):\n%s", list, diff)
		}
	}
}

// Where it is not known until when a node is left out, no time is made up.
func TestHowLongANodeIsLeftOut(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	for want, until := range map[string]time.Time{"that is over": {}, at.Format(time.RFC3339): at} {
		if got := (exclusion{node: "n1", until: until}).lasts(); got != want {
			t.Errorf("until %v: %q, want %q", until, got, want)
		}
	}
}
