package chief

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/spans"
)

// watched is a chief that watches a topic of an embedded broker.
type watched struct {
	*Chief
	adm *kadm.Client
	cl  *kgo.Client
	log *logged

	mu     sync.Mutex
	pinned map[int32]int64
}

type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) contains(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), s)
}

func watch(t *testing.T) *watched {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "clicks"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	w := &watched{adm: kadm.NewClient(cl), cl: cl, log: &logged{}}
	topics, err := w.adm.ListTopics(t.Context(), "clicks")
	if err != nil {
		t.Fatal(err)
	}
	id := topics["clicks"].ID.String()
	w.Chief = New(slog.New(slog.NewTextHandler(w.log, nil)), Options{
		Job: "ctr", Timeline: "T", TopicID: id, Incarnation: 1, Servers: 1, Starts: map[int32]int64{0: 0, 1: 0}, Fresh: true,
	}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- w.Watch(ctx, WatchOptions{Admin: w.adm, Topic: "clicks", Group: "kale-ctr", Every: 10 * time.Millisecond, Pin: func(starts map[int32]int64) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.pinned = maps.Clone(starts)
			return nil
		}})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *watched) until(t *testing.T, what string, ok func(*rpc.JobStatus) bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		st, err := w.Status(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if ok(proto.CloneOf(st)) {
			return
		}
	}
	st, _ := w.Status(t.Context(), nil)
	t.Fatalf("never: %s; status %v", what, st)
}

// Rule 16: a partition that is added later starts at 0, pinned before it is leased.
func TestRule16AddedPartitionStartsAtZeroPinned(t *testing.T) {
	w := watch(t)
	if _, err := w.adm.UpdatePartitions(t.Context(), 3, "clicks"); err != nil {
		t.Fatal(err)
	}
	w.until(t, "partition 2 is known", func(st *rpc.JobStatus) bool { return len(st.GetPartitions()) == 3 })
	w.mu.Lock()
	defer w.mu.Unlock()
	if start, ok := w.pinned[2]; !ok || start != 0 || len(w.pinned) != 3 {
		t.Errorf("pinned %v, want partition 2 at 0 beside the others", w.pinned)
	}
}

// Rule 17: a topic that was deleted and created again is detected, reported, and nothing of it is leased.
func TestRule17RecreatedTopicHaltsTheJob(t *testing.T) {
	w := watch(t)
	if _, err := w.adm.DeleteTopics(t.Context(), "clicks"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.adm.CreateTopics(t.Context(), 2, 1, nil, "clicks"); err != nil {
		t.Fatal(err)
	}
	w.until(t, "the problem is reported", func(st *rpc.JobStatus) bool {
		return len(st.GetProblems()) == 1 && st.GetProblems()[0].GetKind() == rpc.PartitionProblem_KIND_RECREATED
	})
	resp, err := w.Join(t.Context(), &rpc.JoinRequest{Member: "worker-0", Generation: 1, Address: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.ServerBeat(t.Context(), &rpc.ServerBeatRequest{Fence: &rpc.Fence{Timeline: "T", Server: 1}, Seq: 1}); err != nil {
		t.Fatal(err)
	}
	d, err := w.Beat(t.Context(), &rpc.BeatRequest{Fence: &rpc.Fence{Timeline: "T", Chief: 1}, Member: "worker-0", Session: resp.GetSession(), Seq: 1, State: rpc.MemberState_MEMBER_STATE_READY})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.GetGrants()) != 0 || !d.GetPaused() {
		t.Errorf("grants %v, paused %v: nothing of the new topic may be read", d.GetGrants(), d.GetPaused())
	}
}

// Rule 11: what is committed to Kafka is the durable watermark, not the applied one.
func TestRule11CommitsTheDurableOffset(t *testing.T) {
	w := watch(t)
	_, err := w.ServerBeat(t.Context(), &rpc.ServerBeatRequest{
		Fence: &rpc.Fence{Timeline: "T", Server: 1}, Seq: 1,
		Applied: []*rpc.OffsetSet{{Partition: 0, Watermark: 900}}, Touched: []*rpc.OffsetSet{{Partition: 0, Watermark: 950}},
		Durable: []*rpc.OffsetSet{{Partition: 0, Watermark: 400}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.until(t, "offset 400 is committed", func(*rpc.JobStatus) bool {
		offsets, err := w.adm.FetchOffsets(t.Context(), "kale-ctr")
		o, ok := offsets.Lookup("clicks", 0)
		return err == nil && ok && o.At == 400
	})
}

// Rule 16: retention that comes near what is still to be trained is warned of, once.
func TestRule16WarnsBeforeRetentionGetsThere(t *testing.T) {
	w := watch(t)
	for i := range 1000 {
		w.cl.Produce(t.Context(), &kgo.Record{Topic: "clicks", Partition: 0, Value: []byte{byte(i)}}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := w.cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := w.ServerBeat(t.Context(), &rpc.ServerBeatRequest{
		Fence: &rpc.Fence{Timeline: "T", Server: 1}, Seq: 1, Applied: []*rpc.OffsetSet{{Partition: 0, Watermark: 100}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.until(t, "the end is seen", func(st *rpc.JobStatus) bool { return st.GetPartitions()[0].GetEnd() == 1000 })
	if w.log.contains("retention") {
		t.Fatal("warned although the log is whole")
	}
	del := kadm.Offsets{}
	del.AddOffset("clicks", 0, 90, -1)
	if _, err := w.adm.DeleteRecords(t.Context(), del); err != nil {
		t.Fatal(err)
	}
	w.until(t, "the warning, which is in the status too", func(st *rpc.JobStatus) bool {
		return w.log.contains("retention is about to remove") && slices.ContainsFunc(st.GetProblems(), func(p *rpc.PartitionProblem) bool {
			return p.GetKind() == rpc.PartitionProblem_KIND_RETENTION_NEAR && p.GetPartition() == 0 && p.GetNeeded() == 100 && p.GetLogStart() == 90
		})
	})
}

// Rule 16: retention is near when there is a backlog, its progress is known, and nothing of it is gone. A chief that has just begun warns of nothing that it does not know.
func TestRule16WhenRetentionIsNear(t *testing.T) {
	for name, c := range map[string]struct {
		logStart, trained, end int64
		want                   bool
	}{
		"within a tenth of the backlog": {90, 100, 1000, true},
		"right at it":                   {100, 100, 1000, true},
		"far below":                     {5, 100, 1000, false},
		"the log is whole":              {0, 0, 1000, false},
		"already past it":               {3900, 2000, 4000, false},
		"the end is not known":          {90, 100, -1, false},
		"nothing waits":                 {1000, 1000, 1000, false},
		"what is trained is not known":  {90, -1, 1000, false},
	} {
		m := newTestMachine(1, 1)
		if c.trained >= 0 {
			report(t, m, at(0), 0, 1, map[int32]*spans.Set{0: set(0, c.trained)})
		}
		p := m.partitions[0]
		p.logStart, p.end = c.logStart, c.end
		if got := m.retentionNear(p); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	m := newTestMachine(1, 1)
	if got := m.retentionWords(false); !strings.HasSuffix(got, ", or give the job more workers") {
		t.Error(got)
	}
}

// While a job is paused no worker meets the hole that retention leaves: the chief tells of it, until one does.
func TestRule16RetentionTakesFromAPausedJob(t *testing.T) {
	m := newTestMachine(1, 1)
	report(t, m, at(0), 0, 1, map[int32]*spans.Set{0: set(0, 100)})
	p := m.partitions[0]
	p.logStart, p.position, p.end = 150, 120, 1000
	problems := func() []*rpc.PartitionProblem { return m.status(at(0)).GetProblems() }
	if got := problems(); len(got) != 0 {
		t.Errorf("while workers read: %v", got)
	}
	m.paused = true
	got := problems()
	if len(got) != 1 || got[0].GetKind() != rpc.PartitionProblem_KIND_RETENTION_NEAR || got[0].GetNeeded() != 100 || got[0].GetLogStart() != 150 ||
		!strings.HasPrefix(got[0].GetDetail(), "retention removes records that are not trained yet; kale resume "+m.opt.Job+" goes on training; or raise the topic's retention.ms") {
		t.Errorf("while it is paused: %v", got)
	}
	p.logStart = 110 // a worker holds these
	if got := problems(); len(got) != 0 {
		t.Errorf("of what was read: %v", got)
	}
}

// A snapshot that is asked for is over when every server has written one since.
func TestSnapshotWaitsForEveryServer(t *testing.T) {
	c := New(nil, Options{Job: "ctr", Timeline: "T", Incarnation: 1, Servers: 1, Starts: map[int32]int64{0: 0}, Fresh: true}, nil)
	seq := uint64(0)
	beat := func(done uint64) *rpc.ServerDirective {
		seq++
		d, err := c.ServerBeat(t.Context(), &rpc.ServerBeatRequest{
			Fence: &rpc.Fence{Timeline: "T", Server: 1}, Seq: seq, SnapshotDone: done, Durable: []*rpc.OffsetSet{{Partition: 0, Watermark: 7}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	beat(0)
	type answer struct {
		*rpc.SnapshotResponse
		err error
	}
	got := make(chan answer, 1)
	go func() {
		r, err := c.Snapshot(t.Context(), nil)
		got <- answer{r, err}
	}()
	var asked uint64
	for asked == 0 {
		asked = beat(0).GetSnapshotRequest()
		time.Sleep(time.Millisecond)
	}
	select {
	case a := <-got:
		t.Fatalf("answered %v, %v before the server had written", a.SnapshotResponse, a.err)
	default:
	}
	// A server that has fulfilled requests of a chief before this one has not fulfilled this one's.
	beat(3)
	select {
	case a := <-got:
		t.Fatalf("answered %v, %v by what another chief asked for", a.SnapshotResponse, a.err)
	case <-time.After(50 * time.Millisecond):
	}
	beat(asked)
	a := <-got
	if a.err != nil || len(a.GetDurable()) != 1 || a.GetDurable()[0].GetWatermark() != 7 {
		t.Errorf("%v, %v; want the durable offset 7", a.SnapshotResponse, a.err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Snapshot(ctx, nil); err == nil || !strings.Contains(err.Error(), "parameter server 0 has not written") {
		t.Errorf("a server that does not write: %v; the error should name it", err)
	}
}
