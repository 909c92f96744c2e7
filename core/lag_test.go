package core

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/backend/fake"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/traffic"
)

// fill writes n records into each partition, the i-th of them with the timestamp at(i).
func (r *rig) fill(n int, at func(i int) time.Time) {
	r.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.broker.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		r.t.Fatal(err)
	}
	defer cl.Close()
	var rs []*kgo.Record
	for p := range int32(rigPartitions) {
		for i := range n {
			rs = append(rs, &kgo.Record{Topic: rigTopic, Partition: p, Value: []byte(`{"click":1,"user":"u"}`), Timestamp: at(i)})
		}
	}
	if err := cl.ProduceSync(r.t.Context(), rs...).FirstErr(); err != nil {
		r.t.Fatal(err)
	}
}

// Lag is known from the first look, before anything runs: what is there to be trained, and for how long. So it is of records that are older than the history of
// arrivals, and where a partition has not trained anything yet.
func TestLagIsKnownFromTheFirstLook(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.chief.stop()
	old := r.now.Add(-time.Hour) // forecast.history is a minute
	r.fill(50, func(i int) time.Time { return old.Add(time.Duration(i) * time.Minute) })
	wantLag := func(what string, records int64, age time.Duration) {
		t.Helper()
		s := r.s.View().Sample
		if s.Lag == nil || s.LagRecords == nil || s.LagUnknown != "" {
			t.Fatalf("%s: lag %v, %v records: %q", what, s.Lag, s.LagRecords, s.LagUnknown)
		}
		got := time.Duration(*s.Lag * float64(time.Second))
		if *s.LagRecords != records || got < age || got > age+10*time.Minute {
			t.Errorf("%s: %d records wait, the oldest for %v; want %d and %v", what, *s.LagRecords, got, records, age)
		}
	}
	r.beat()
	wantLag("nothing runs", 4*50, time.Hour)
	if o := r.decision(); r.s.last == nil || r.s.last.Observation.BacklogRecords != 200 || !r.s.last.Observation.LagKnown {
		t.Errorf("the policy is told of %+v", o)
	}
}

// Lag is of the moment at which Kafka and the chief have answered: a backend that takes its time does not make training look further behind.
func TestLagDoesNotWaitForTheBackend(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.chief.stop()
	old := r.now.Add(-time.Hour).Truncate(time.Millisecond) // as a record's date is
	r.fill(1, func(int) time.Time { return old })
	r.backend.HangNext(fake.OpList)
	r.s.seen = r.s.look(t.Context())
	over := time.Now()
	if err := r.s.step(t.Context(), over); err != nil {
		t.Fatal(err)
	}
	s := r.s.View().Sample
	if r.s.seen.listErr == nil || s.Lag == nil {
		t.Fatalf("the list: %v; lag %v: %q", r.s.seen.listErr, s.Lag, s.LagUnknown)
	}
	if got, before := time.Duration(*s.Lag*float64(time.Second)), over.Sub(old)-r.s.seen.since; r.s.seen.since <= 0 || got > before+time.Millisecond {
		t.Errorf("the oldest waits for %v, and the brokers and the chief had answered %v before the look was over, when it had waited for %v", got, r.s.seen.since, before)
	}
}

// The lag of a job that is taken up again is of what its newest snapshots do not have, before its servers are up, and while its chief has not heard from all of them:
// what is committed is of the oldest that is kept.
func TestLagBeforeTheFirstAnswerIsOfTheNewestSnapshots(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.fill(50, func(int) time.Time { return r.now.Add(-time.Hour) })
	starts := map[int32]int64{0: 0, 1: 0, 2: 0, 3: 0}
	r.chief.write("job", map[string]any{"timeline": "t1", "fingerprint": r.job.Fingerprint(), "servers": 2, "starts": starts})
	wantLag := func(what string, records int64) {
		t.Helper()
		r.s.beginning, r.now = nil, time.Now()
		r.beat()
		if s := r.s.View().Sample; s.LagRecords == nil || *s.LagRecords != records {
			t.Errorf("%s: %v records wait, %q; want %d", what, s.LagRecords, s.LagUnknown, records)
		}
	}
	wantLag("without a note", 4*50)
	r.chief.write("written/0", map[string]any{"timeline": "t1", "applied": map[int32]int64{0: 50, 1: 50, 2: 50, 3: 45}})
	wantLag("with the note of one server", 4*50)
	r.chief.write("written/1", map[string]any{"timeline": "t1", "applied": map[int32]int64{0: 50, 1: 48, 2: 50, 3: 50}})
	wantLag("with both", 7)
	r.chief.with(func(s *rpc.JobStatus) {
		for _, sv := range s.Servers {
			sv.Metrics = nil
		}
	})
	r.chief.start()
	r.chief.write("job", map[string]any{"timeline": "t1", "fingerprint": r.job.Fingerprint(), "servers": 2, "starts": starts})
	wantLag("with a chief that has heard from nobody", 7)
}

// While a chief that started again has not heard from every server, what is trained is what the one before it said: to that one nothing is trained.
func TestLagBesideAChiefThatStartedAgain(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.fill(50, func(int) time.Time { return r.now.Add(-time.Hour) })
	r.started(1)
	says := func(applied int64, heard bool) {
		r.chief.with(func(s *rpc.JobStatus) {
			for _, p := range s.Partitions {
				p.Applied = applied
			}
			if s.Servers[1].Metrics = nil; heard {
				s.Servers[1].Metrics = &rpc.ServerMetrics{}
			}
		})
		r.now = time.Now() // the rig's clock is ahead of the brokers' by so many beats
		r.beat()
	}
	says(45, true)
	r.chief.start()
	says(0, false)
	if s := r.s.View().Sample; s.LagRecords == nil || *s.LagRecords != 4*5 {
		t.Errorf("%v records wait, %q; want 20", s.LagRecords, s.LagUnknown)
	}
	says(40, true) // what a restored server lacks is trained again
	if s := r.s.View().Sample; s.LagRecords == nil || *s.LagRecords != 4*10 {
		t.Errorf("%v records wait, %q; want 40", s.LagRecords, s.LagUnknown)
	}
}

// What retention has removed before it was trained does not wait any more.
func TestRemovedRecordsDoNotWait(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.fill(50, func(int) time.Time { return r.now.Add(-time.Hour) })
	r.started(1)
	r.chief.with(func(s *rpc.JobStatus) {
		for _, p := range s.Partitions {
			p.Applied = 40
		}
		s.Problems = []*rpc.PartitionProblem{{Partition: 2, Kind: rpc.PartitionProblem_KIND_LOST, Needed: 40, LogStart: 47}}
	})
	r.now = time.Now() // the rig's clock is ahead of the brokers' by so many beats
	r.beat()
	if s := r.s.View().Sample; s.LagRecords == nil || *s.LagRecords != 3*10+3 {
		t.Errorf("%v records wait, %q; want 33", s.LagRecords, s.LagUnknown)
	}
}

// A record that is dated in the future, or has no date, says nothing of how long it waits: the lag is not known, and whoever dates records so is told of.
func TestLagOfMisdatedRecords(t *testing.T) {
	for name, c := range map[string]struct {
		first         time.Time
		history       bool
		says, problem string
	}{
		"the future, with a history": {time.Now().Add(365 * 24 * time.Hour), true, "is dated 365d ahead of this machine's clock", "records that wait are dated up to 365d ahead of this machine's clock"},
		"the future, without":        {time.Now().Add(365 * 24 * time.Hour), false, "is dated 365d ahead of this machine's clock", "records that wait are dated up to 365d ahead of this machine's clock"},
		"1970, with a history":       {time.UnixMilli(0), true, "has no usable timestamp (1970-01-01T", "records that wait have no usable timestamp (1970-01-01T"},
		"1970, without":              {time.UnixMilli(0), false, "has no usable timestamp (1970-01-01T", "records that wait have no usable timestamp (1970-01-01T"},
		"seconds as milliseconds":    {time.UnixMilli(time.Now().Unix()), false, "has no usable timestamp (1970-01-", "records that wait have no usable timestamp (1970-01-"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.fill(50, func(i int) time.Time { return c.first.Add(time.Duration(i) * time.Second) })
			if c.history {
				if err := r.readHistory(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			r.started(1)
			r.chief.with(func(s *rpc.JobStatus) {
				for _, p := range s.Partitions {
					p.Applied = 20
				}
			})
			r.beat()
			v := r.s.View()
			if s := v.Sample; s.Lag != nil || s.LagRecords == nil || *s.LagRecords != 4*30 || !strings.Contains(s.LagUnknown, c.says) {
				t.Errorf("lag %v, %v records: %q", s.Lag, s.LagRecords, s.LagUnknown)
			}
			if _, err := r.problem(c.problem); err != nil {
				t.Error(err)
			}
			r.chief.with(func(s *rpc.JobStatus) {
				for _, p := range s.Partitions {
					p.Applied = 50
				}
			})
			r.now = time.Now() // the rig's clock is ahead of the brokers' by so many beats
			r.beat()
			v = r.s.View()
			v.Problems = slices.DeleteFunc(v.Problems, func(p string) bool { return p == AheadWords(r.s.missed.ahead) }) // of the history, whatever is trained
			if v.Sample.Lag == nil || len(v.Problems) > 0 {
				t.Errorf("when all is trained: lag %v (%s), problems %q", v.Sample.Lag, v.Sample.LagUnknown, v.Problems)
			}
		})
	}
}

// One partition of which nothing is trained yet hides no lag.
func TestLagOfAPartitionThatIsNotBegun(t *testing.T) {
	r := newRig(t, rigOptions{})
	old := r.now.Add(-time.Hour)
	r.fill(50, func(i int) time.Time { return old.Add(time.Duration(i) * time.Minute) })
	r.started(1)
	r.chief.with(func(s *rpc.JobStatus) {
		for _, p := range s.Partitions {
			p.Applied = 50
		}
		s.Partitions[3].Applied = 20
	})
	r.beat()
	s := r.s.View().Sample
	if s.Lag == nil || *s.Lag < 40*60 || *s.Lag > 50*60 || s.LagRecords == nil || *s.LagRecords != 30 {
		t.Errorf("lag %v, %v records: %q; want 40 min and 30", s.Lag, s.LagRecords, s.LagUnknown)
	}
}

// A topic that was deleted under a job that runs is unknown, with what can be done.
func TestDeletedTopicIsExplained(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.broker.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).DeleteTopic(t.Context(), rigTopic); err != nil {
		t.Fatal(err)
	}
	r.beat()
	v := r.s.View()
	said := strings.Join(append(v.Problems, v.Sample.Unknown, v.Sample.LagUnknown, r.decision().Explain()), "\n") // the advice is given once
	if v.State != StateUnknown || strings.Count(said, "kale stop ends the job and keeps its model") != 1 || strings.Contains(said, "..") || strings.Contains(said, "UNKNOWN_TOPIC") {
		t.Errorf("%s: %s", v.State, said)
	}
	r.chief.with(func(st *rpc.JobStatus) {
		st.Problems = []*rpc.PartitionProblem{{Kind: rpc.PartitionProblem_KIND_RECREATED, Detail: "topic was deleted; kale stop ends the job"}}
	})
	r.beat()
	if v := r.s.View(); v.State != StateStuck || len(v.Problems) != 2 || strings.Count(strings.Join(v.Problems, " "), "kale stop") != 1 {
		t.Errorf("%s: %q", v.State, v.Problems)
	}
}

// What is not known is left out, with the reason beside it.
func TestUnknownLagSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		broken func(r *rig)
		want   string
	}{
		"the chief does not answer": {func(r *rig) { r.chief.stop() }, "what is trained is unknown: ask the chief"},
		"a partition is new": {func(r *rig) {
			r.chief.with(func(s *rpc.JobStatus) { s.Partitions = s.Partitions[:3] })
		}, "the chief does not know partition 3 yet"},
		"the chief knows no partition": {func(r *rig) {
			r.chief.with(func(s *rpc.JobStatus) { s.Partitions = nil })
		}, "the chief has not seen the topic yet"},
		"the broker is away": {func(r *rig) { r.broker.Close() }, "Kafka's end offsets are unknown: read the last stable offsets of topic"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.started(1)
			c.broken(r)
			r.beat()
			s := r.s.View().Sample
			if s.Lag != nil || s.LagRecords != nil || !strings.HasPrefix(s.LagUnknown, c.want) {
				t.Errorf("lag %v, %v records: %q; want %q", s.Lag, s.LagRecords, s.LagUnknown, c.want)
			}
			raw, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			if text := string(raw); strings.Contains(text, `"lag_s"`) || strings.Contains(text, `"lag_records"`) {
				t.Errorf("unknown lag in %s", text)
			}
			if rec := r.s.last; !strings.HasPrefix(rec.LagUnknown, c.want) {
				t.Errorf("the decision says %q", rec.LagUnknown)
			}
		})
	}
}

// After a time in which the scheduler looked at nothing, as one that was suspended, the lag is known at its first look.
func TestLagIsKnownAtTheFirstLookAfterAGap(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.steadyTraffic()
	r.started(1)
	now := time.Now()
	since := now.Add(-42 * time.Second)
	r.s.arrivals = traffic.NewArrivals(traffic.ArrivalsOptions{Step: time.Second})
	if _, err := traffic.Backfill(t.Context(), r.s.kafka, r.s.arrivals, traffic.BackfillOptions{From: since.Add(-time.Minute), To: since}); err != nil {
		t.Fatal(err)
	}
	_, ends := r.s.arrivals.Ends()
	r.chief.with(func(st *rpc.JobStatus) {
		for _, p := range st.Partitions {
			p.Applied = ends[p.Partition] + 20 // two seconds later
		}
	})
	r.now = now.Add(-time.Second)
	r.beat()
	if s := r.s.View().Sample; s.Lag == nil || *s.Lag < 38 {
		t.Errorf("lag %v: %q; want the 40 s since the first record entered that is not trained, or more", s.Lag, s.LagUnknown)
	}
}
