package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
)

// caller is a process of the job that asks the rig's scheduler.
type caller struct {
	rpc.RendezvousClient
	ctx context.Context
}

func (r *rig) caller(token string) caller {
	r.t.Helper()
	conn, err := dialChief(rpc.ChiefRecord{Address: r.s.meet.address})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	r.t.Cleanup(cancel)
	return caller{rpc.NewRendezvousClient(conn), metadata.AppendToOutgoingContext(ctx, rpc.TokenKey, token)}
}

func (c caller) announce(address string, incarnation uint64, timeline string) codes.Code {
	_, err := c.Announce(c.ctx, &rpc.AnnounceRequest{Job: "ctr", Chief: rpc.ChiefRecord{Address: address, Incarnation: incarnation, Timeline: timeline}.Place()})
	return status.Code(err)
}

// chief is where the scheduler says that the chief is, "ADDRESS INCARNATION", or the code of its refusal.
func (c caller) chief() string {
	p, err := c.FindChief(c.ctx, &rpc.FindChiefRequest{Job: "ctr"})
	if err != nil {
		return status.Code(err).String()
	}
	return fmt.Sprint(p.GetAddress(), " ", p.GetIncarnation())
}

// A lower incarnation never replaces a higher one, whatever their order, and nobody but a chief of the job's timeline is believed.
func TestRendezvousFences(t *testing.T) {
	r := newRig(t, rigOptions{change: func(text string) string { // a port that no other test on this machine is looking for
		return strings.Replace(text, `backend "fake"`, "network {\n listen = \"127.0.0.1:0\"\n}\nbackend \"fake\"", 1)
	}})
	c := r.caller(r.s.want.Token)
	for i, step := range []struct {
		address     string
		incarnation uint64
		timeline    string
		want        codes.Code
		chief       string // afterwards
	}{
		{"", 3, "t1", codes.InvalidArgument, "NotFound"},
		{"a", 3, "t1", codes.InvalidArgument, "NotFound"},
		{"a:1", 0, "t1", codes.InvalidArgument, "NotFound"},
		{"a:1", 3, "", codes.InvalidArgument, "NotFound"},
		{"a:1", 3, "t1", codes.OK, "a:1 3"},
		{"a:1", 3, "t1", codes.OK, "a:1 3"},
		{"z:1", 2, "t1", codes.FailedPrecondition, "a:1 3"},
		{"z:1", 3, "t1", codes.FailedPrecondition, "a:1 3"}, // an incarnation is at one place
		{"b:1", 7, "t1", codes.OK, "b:1 7"},
		{"a:1", 3, "t1", codes.FailedPrecondition, "b:1 7"},
		{"z:1", 99, "t2", codes.FailedPrecondition, "b:1 7"},
	} {
		if got := c.announce(step.address, step.incarnation, step.timeline); got != step.want {
			t.Errorf("step %d: announcing %+v gave %v, want %v", i, step, got, step.want)
		}
		if got := c.chief(); got != step.chief {
			t.Errorf("step %d: the chief is %q, want %q", i, got, step.chief)
		}
	}
	port := r.s.meet.kept.Port
	r.reopen()
	if r.s.meet.kept.Port != port || !strings.HasSuffix(r.s.meet.address, ":"+strconv.Itoa(port)) {
		t.Errorf("after a restart it listens on %s, and processes ask at port %d", r.s.meet.address, port)
	}
	c = r.caller(r.s.want.Token)
	if got := c.chief(); got != "b:1 7" {
		t.Errorf("after a restart the chief is %q", got)
	}
	if got := c.announce("a:1", 3, "t1"); got != codes.FailedPrecondition {
		t.Errorf("after a restart an old chief is let in: %v", got)
	}
	r.s.meet.forget() // as when the job has stopped
	if got := c.chief(); got != "NotFound" {
		t.Errorf("a stopped job has the chief %q", got)
	}
	if got := c.announce("c:1", 1, "t2"); got != codes.OK {
		t.Errorf("a job that was stopped does not start on another checkpoint: %v", got)
	}
}

// The token is needed for every method, and must be this job's.
func TestRendezvousRefusesStrangers(t *testing.T) {
	r := newRig(t, rigOptions{})
	calls := map[string]func(c caller, job string) error{
		"FindChief": func(c caller, job string) error {
			_, err := c.FindChief(c.ctx, &rpc.FindChiefRequest{Job: job})
			return err
		},
		"Announce": func(c caller, job string) error {
			_, err := c.Announce(c.ctx, &rpc.AnnounceRequest{Job: job, Chief: rpc.ChiefRecord{Address: "x:1", Incarnation: 1, Timeline: "t1"}.Place()})
			return err
		},
		"Alive": func(c caller, job string) error {
			_, err := c.Alive(c.ctx, &rpc.AliveRequest{Job: job, Role: "worker", Generation: 1})
			return err
		},
	}
	for name, call := range calls {
		for _, token := range []string{"", "x", r.s.want.Token[1:], r.s.want.Token + "x"} {
			if err := call(r.caller(token), "ctr"); status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s with the token %q: %v, want UNAUTHENTICATED", name, token, err)
			}
		}
		if err := call(r.caller(r.s.want.Token), "other"); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s for another job: %v, want PERMISSION_DENIED", name, err)
		}
	}
	r.s.meet.mu.Lock()
	defer r.s.meet.mu.Unlock()
	if r.s.meet.kept.Chief != (rpc.ChiefRecord{}) || len(r.s.meet.alive) != 0 {
		t.Errorf("a stranger was believed: %+v, %v", r.s.meet.kept, r.s.meet.alive)
	}
}

// The checkpoint folder comes first, and both agree by incarnation.
func TestFolderAndRendezvousAgree(t *testing.T) {
	r := newRig(t, rigOptions{})
	rec := func(address string, incarnation uint64, timeline string) rpc.ChiefRecord {
		return rpc.ChiefRecord{Address: address, Incarnation: incarnation, Timeline: timeline}
	}
	unreadable := errors.New("stale file handle")
	for i, step := range []struct {
		folder rpc.ChiefRecord
		err    error
		want   string
	}{
		{rec("", 0, ""), rpc.ErrNoChief, ""},
		{rec("a:1", 3, "t1"), nil, "a:1"},
		{rec("", 0, ""), unreadable, "a:1"},
		{rec("b:1", 5, "t1"), nil, "b:1"},
		{rec("a:1", 3, "t1"), nil, "b:1"}, // a folder that shows what was
		{rec("c:1", 1, "t2"), nil, "c:1"}, // another checkpoint
		{rec("", 0, ""), rpc.ErrNoChief, "c:1"},
	} {
		got, err := r.s.meet.find(step.folder, step.err)
		if got.Address != step.want || (err != nil) != (step.want == "") || step.want == "" && !errors.Is(err, step.err) {
			t.Errorf("step %d: %+v, %v; want %q", i, got, err, step.want)
		}
		if step.want != "" {
			if told := r.caller(r.s.want.Token).chief(); !strings.HasPrefix(told, step.want+" ") {
				t.Errorf("step %d: processes are told %q, want %q", i, told, step.want)
			}
		}
	}
}

// A scheduler that cannot read the checkpoint folder finds the chief by its announcement, also one that moved while the scheduler was away.
func TestChiefIsFoundWithoutTheFolder(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	place := func() rpc.ChiefRecord {
		rec, err := rpc.FindChief(r.job.Checkpoint.Dir, r.job.Name)
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	hide := func() {
		if err := os.RemoveAll(filepath.Join(r.job.Checkpoint.Dir, r.job.Name, "chief")); err != nil {
			t.Fatal(err)
		}
	}
	hide()
	r.beat()
	if r.s.seen.chiefErr != nil {
		t.Fatalf("a chief that is known was lost: %v", r.s.seen.chiefErr)
	}
	if err := r.s.Close(); err != nil { // the scheduler is down
		t.Fatal(err)
	}
	r.chief.start()
	moved := place()
	hide()
	r.open("run")
	r.beat()
	if r.s.seen.chiefErr == nil {
		t.Fatal("the chief's old address answers")
	}
	c := r.caller(r.s.want.Token)
	if got := c.announce(moved.Address, moved.Incarnation, moved.Timeline); got != codes.OK {
		t.Fatal(got)
	}
	r.beat()
	if r.s.seen.chiefErr != nil || r.s.seen.chief.GetChief() != moved.Incarnation {
		t.Fatalf("the chief is not found where it announced itself: %v", r.s.seen.chiefErr)
	}
	if got, want := c.chief(), fmt.Sprint(moved.Address, " ", moved.Incarnation); got != want {
		t.Errorf("processes are told %q, want %q", got, want)
	}
}

// A process that has dialled in is shown before the chief knows of it.
func TestProcessesThatDialInAreShown(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.order("scale", 2)
	r.until("workers run", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1"))
	c := r.caller(r.s.want.Token)
	say := func(phase rpc.Phase, trouble string) {
		t.Helper()
		resp, err := c.Alive(c.ctx, &rpc.AliveRequest{Job: "ctr", Role: "worker", Rank: 1, Generation: 1, Phase: phase, Trouble: trouble})
		if err != nil || resp.GetNextMs() <= 0 {
			t.Fatal(resp, err)
		}
		r.beat()
	}
	shows := func(member, reason string) {
		t.Helper()
		for _, w := range r.s.View().Workers {
			if w.Rank == 1 && (w.Member != member || w.Reason != reason) {
				t.Errorf("worker 1 is %q, %q; want %q, %q", w.Member, w.Reason, member, reason)
			}
		}
	}
	r.chief.serverUp(0)
	r.beat()
	shows("not joined", "")
	say(rpc.Phase_PHASE_STARTING, "")
	shows("started", "")
	say(rpc.Phase_PHASE_DIALLING, "no route to host")
	shows("started, dialling chief", "no route to host")
	r.chief.stop() // also while the scheduler sees no chief itself
	say(rpc.Phase_PHASE_DIALLING, "no route to host")
	shows("started, dialling chief", "no route to host")
	r.chief.start()
	r.joinAll()
	r.beat()
	shows("ready", "")
	r.s.meet.mu.Lock()
	r.s.meet.alive[worker(1, 1)] = dialled{phase: rpc.Phase_PHASE_DIALLING, at: time.Now().Add(-2 * aliveFor)}
	r.s.meet.mu.Unlock()
	if _, ok := r.s.meet.heard(worker(1, 1)); ok {
		t.Error("a process that has been silent for long still counts as alive")
	}
	for _, bad := range []*rpc.AliveRequest{{Job: "ctr"}, {Job: "ctr", Role: "worker", Rank: -1, Generation: 1}, {Job: "ctr", Role: "W", Generation: 1}} {
		if _, err := c.Alive(c.ctx, bad); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v, want INVALID_ARGUMENT", bad, err)
		}
	}
}

// What is kept of processes is bounded.
func TestRendezvousMemoryIsBounded(t *testing.T) {
	r := newRig(t, rigOptions{})
	for i := range mostAlive + 10 {
		if _, err := r.s.meet.Alive(t.Context(), &rpc.AliveRequest{Job: "ctr", Role: "worker", Rank: int32(i), Generation: 1, Trouble: strings.Repeat("x", 10000)}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first := r.s.meet.alive[worker(0, 1)]
			first.at = first.at.Add(-time.Second)
			r.s.meet.alive[worker(0, 1)] = first
		}
	}
	if n := len(r.s.meet.alive); n != mostAlive {
		t.Errorf("%d processes are kept, want %d", n, mostAlive)
	}
	if _, ok := r.s.meet.alive[worker(0, 1)]; ok {
		t.Error("the one that was heard of longest ago was kept")
	}
	if n := len(r.s.meet.alive[worker(mostAlive, 1)].trouble); n > tailRunes {
		t.Errorf("%d characters of trouble are kept", n)
	}
}

func TestAdvertise(t *testing.T) {
	for name, c := range map[string]struct {
		network job.Network
		broker  string
		want    string
	}{
		"as told":                       {job.Network{Advertise: "login-1:7700", Listen: ":1"}, "127.0.0.1:9", "login-1:7700"},
		"as told, port listened on":     {job.Network{Advertise: "login-1:0"}, "127.0.0.1:9", "login-1:81"},
		"the host that is listened on":  {job.Network{Listen: "10.0.0.5:0"}, "127.0.0.1:9", "10.0.0.5:81"},
		"the address on the interface":  {job.Network{Interface: "127.0.0.0/8"}, "no.such.host.invalid:9", "127.0.0.1:81"},
		"the route to a broker":         {job.Network{}, "127.0.0.1:9", "127.0.0.1:81"},
		"anywhere is the route":         {job.Network{Listen: "[::]:0"}, "127.0.0.1:9", "127.0.0.1:81"},
		"the nodes' interface only":     {job.Network{Interface: "no-such-if"}, "127.0.0.1:9", "127.0.0.1:81"},
		"IPv6 hosts stand in brackets":  {job.Network{Listen: "[2001:db8::1]:0"}, "127.0.0.1:9", "[2001:db8::1]:81"},
		"no route: this machine's name": {job.Network{}, "no.such.host.invalid:9", ""},
	} {
		got, err := advertise(t.Context(), &job.Job{Network: c.network, Stream: job.Stream{Brokers: []string{c.broker}}}, 81)
		if c.want == "" {
			host, err := os.Hostname()
			if err != nil {
				t.Fatal(err)
			}
			c.want = net.JoinHostPort(host, "81")
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}

// On one machine nothing listens, and trainers keep to the loopback interface; elsewhere they are told where to ask.
func TestTrainersAreToldWhereToAsk(t *testing.T) {
	r := newRig(t, rigOptions{change: func(text string) string {
		return strings.Replace(text, `backend "fake"`, "network {\n interface = \"10.0.0.0/8\"\n ports = \"20000-20999\"\n}\nbackend \"fake\"", 1)
	}})
	back := &rpc.TrainSpec{}
	if err := protojson.Unmarshal(r.s.loads.worker(0, 1).Files[specFile], back); err != nil {
		t.Fatal(err)
	}
	n := back.GetNetwork()
	if n.GetRendezvous() != r.s.meet.address || n.GetRendezvous() == "" || n.GetInterface() != "10.0.0.0/8" || n.GetFirstPort() != 20000 || n.GetLastPort() != 20999 {
		t.Errorf("trainers are told %v, and the scheduler listens at %q", n, r.s.meet.address)
	}
	local := *r.job
	local.Network, local.Backend.Name = job.Network{}, job.BackendLocal
	meet, err := openRendezvous(t.Context(), r.s.lg, &local, "x", r.s.store, false)
	if err != nil || meet.address != "" || meet.srv != nil || networkSpec(&local, meet.address) != nil {
		t.Errorf("a job on one machine listens: %+v, %v", meet, err)
	}
	meet.close()
}

// A port that others have is an error where the job file names it. A port of the last time that others have is given up, since training must go on.
func TestPortIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	r := newRig(t, rigOptions{})
	fixed := *r.job
	fixed.Network.Listen = taken.Addr().String()
	if _, err := openRendezvous(t.Context(), r.s.lg, &fixed, "x", r.s.store, false); err == nil || !strings.Contains(err.Error(), "give each job a network.listen of its own") {
		t.Errorf("error %v", err)
	}
	free := *r.job
	free.Network.Listen = "127.0.0.1:0"
	heard := rpc.ChiefRecord{Address: "127.0.0.1:1", Incarnation: 1}
	for _, tt := range []struct {
		chief rpc.ChiefRecord
		ends  bool
		level string
	}{
		{rpc.ChiefRecord{}, false, "DEBUG"}, // where none was ever heard of nobody knows the port
		{heard, false, "WARN"},
		{heard, true, "INFO"}, // what is stopped needs no chief for long
		{rpc.ChiefRecord{}, true, "DEBUG"},
	} {
		if err := r.s.store.Put(rendezvousKey, meeting{Port: taken.Addr().(*net.TCPAddr).Port, Chief: tt.chief}); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		meet, err := openRendezvous(t.Context(), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), &free, "x", r.s.store, tt.ends)
		if err != nil {
			t.Fatal(err)
		}
		defer meet.close()
		var kept meeting
		if _, err := r.s.store.Get(rendezvousKey, &kept); err != nil || meet.address != fmt.Sprint("127.0.0.1:", kept.Port) || meet.address == taken.Addr().String() {
			t.Errorf("it listens at %s and keeps port %d, %v", meet.address, kept.Port, err)
		}
		if !strings.Contains(log.String(), "level="+tt.level+" msg=\"the port that running trainers know is taken") {
			t.Errorf("with the chief %+v, to be stopped: %v, it says %q", tt.chief, tt.ends, &log)
		}
	}
}

// Two schedulers that were killed come back in whatever order: each listens where it did, since each tries first what its own state has.
func TestPortsAreNotSwapped(t *testing.T) {
	type scheduler struct {
		r    *rig
		meet *rendezvous
		port int
	}
	open := func(s *scheduler) {
		free := *s.r.job
		free.Network.Listen = "127.0.0.1:0"
		var err error
		if s.meet, err = openRendezvous(t.Context(), s.r.s.lg, &free, "x", s.r.s.store, false); err != nil {
			t.Fatal(err)
		}
	}
	both := []*scheduler{{r: newRig(t, rigOptions{})}, {r: newRig(t, rigOptions{})}}
	for _, s := range both {
		open(s)
		s.port = s.meet.kept.Port
	}
	for _, s := range both {
		s.meet.close()
	}
	slices.Reverse(both)
	for _, s := range both {
		open(s)
		defer s.meet.close()
		if s.meet.kept.Port != s.port || !strings.HasSuffix(s.meet.address, ":"+strconv.Itoa(s.port)) {
			t.Errorf("it listens on %s, and did at port %d", s.meet.address, s.port)
		}
	}
}

// A server that cannot start and cannot write that down, because the checkpoint folder takes nothing, says it to the scheduler: the job is stuck, with the cause.
func TestServerTellsTheSchedulerWhyItCannotStart(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.chief.with(func(s *rpc.JobStatus) { s.Servers[1].Info.Up = false })
	c := r.caller(r.s.want.Token)
	why := "load the job's state: no space left on device"
	if _, err := c.Alive(c.ctx, &rpc.AliveRequest{Job: "ctr", Role: "ps", Rank: 1, Generation: 1, Phase: rpc.Phase_PHASE_STARTING, Trouble: why}); err != nil {
		t.Fatal(err)
	}
	r.beat()
	v := r.s.View()
	if v.State != StateStuck || v.Stuck != "parameter server 1 cannot start" || !slices.Contains(v.Problems, "parameter server 1 cannot start: "+why) {
		t.Errorf("%s, %q: %q", v.State, v.Stuck, v.Problems)
	}
}
