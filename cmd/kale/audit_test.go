package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/cmd/kale/audit"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/stream"
)

// auditOf is what kale audit -json says of a job; its verdict and its exit code say the same.
func (s *shell) auditOf(job string) (p audited, text string) {
	s.t.Helper()
	r := s.run("audit", job, "-json")
	if err := json.Unmarshal([]byte(r.out), &p); err != nil {
		s.t.Fatalf("%v: exit code %d, %q, %q", err, r.code, r.out, r.err)
	}
	if (r.code == exitDone) != (p.Verdict == audit.Exact) {
		s.t.Errorf("the verdict is %q and the exit code %d: %s", p.Verdict, r.code, r.err)
	}
	return p, s.run("audit", job).out + r.err
}

// What a job has trained is held against the log: before it has trained, while it runs, when it has stopped, when retention has gone on since, when
// the policy has given up what it removed, when a tablet's snapshots are gone, and when the topic is another.
func TestAudit(t *testing.T) {
	t.Parallel()
	needONNX(t)
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 3})
	s := newShell(t).withPrograms()
	dir := t.TempDir()
	file := filepath.Join(dir, "life.hcl")
	text := strings.NewReplacer("%BROKER%", addr, "type = string", "type = string\ndefault = \""+dir+"\"", `topic   = "clicks"`, "topic = \"clicks\"\nstart = \"earliest\"\non_lost = \"skip\"\non_undecodable = \"skip\"").Replace(lifeJob)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "clicks", Partition: 1, Value: []byte("no JSON")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	s.must("produce", "-brokers", addr, "-topic", "clicks", "-peak", "50", "-from", "12h", "-history", "30s", "-duration", "0")
	if r := s.run("audit", file); r.code != exitFailed || !strings.Contains(r.err, "the job has not begun to train") || len(under(t, dir)) != 1 {
		t.Errorf("before it has run: exit code %d, %s; in its folder: %v", r.code, r.err, under(t, dir))
	}
	letters := filepath.Join(dir, "letters.hcl")
	if err := os.WriteFile(letters, []byte(strings.Replace(text, `on_undecodable = "skip"`, `dead_letter = "gone"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := s.run("audit", letters); r.code != exitFailed || !strings.Contains(r.err, "the job has not begun to train") {
		t.Errorf("with a dead-letter topic that is not there: exit code %d, %s", r.code, r.err)
	}
	if err := os.Remove(letters); err != nil {
		t.Fatal(err)
	}
	sums, err := stream.LogSum(t.Context(), []kgo.Opt{kgo.SeedBrokers(addr)}, "clicks", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := sums[0].N + sums[1].N + sums[2].N

	t.Cleanup(func() { s.runCtx(context.Background(), "stop", "life", "-force") })
	train := func(records int64) {
		t.Helper()
		run := s.start("run", file, "-plain")
		run.eventually("all to be trained", func() bool {
			var v core.View
			r := s.run("status", "life", "-json")
			return r.code == exitDone && json.Unmarshal([]byte(r.out), &v) == nil && v.Trained != nil && int64(*v.Trained) == records
		})
		run.eventually("a snapshot of every tablet", func() bool { p, _ := s.auditOf("life"); return p.Total.Waiting == 0 })
		s.must("stop", "life")
		run.end()
	}
	train(all - 1)

	p, says := s.auditOf("life")
	if x := p.Total; p.Verdict != audit.Exact || x.InLog != all || x.Trained != all-1 || x.Dead != 1 || x.Waiting != 0 || !p.Skips || len(p.Partitions) != 3 {
		t.Errorf("a stopped job: %+v", p)
	}
	for _, want := range []string{"exact: every tablet has counted", "1 could not be decoded (such are skipped now", "PARTITION  UP TO  IN THE LOG  TRAINED  SKIPPED"} {
		if !strings.Contains(says, want) {
			t.Errorf("no %q in\n%s", want, says)
		}
	}

	s.must("produce", "-brokers", addr, "-topic", "clicks", "-peak", "50", "-from", "12h", "-history", "10s", "-duration", "0")
	adm, gone := kadm.NewClient(cl), kadm.Offsets{}
	gone.AddOffset("clicks", 0, 20, -1)
	if _, err := adm.DeleteRecords(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	p, says = s.auditOf("life")
	if x := p.Total; p.Verdict != audit.Exact || x.InLog != all-20 || x.Trained != all-1 || x.Removed != 20 || x.Waiting == 0 {
		t.Errorf("after retention, and with more in the log: %+v", p)
	}
	for _, want := range []string{"REMOVED: the log has 20 offsets no more", "NOT YET: "} {
		if !strings.Contains(says, want) {
			t.Errorf("no %q in\n%s", want, says)
		}
	}

	end, lost := p.Partitions[0].To, int64(5)
	gone.AddOffset("clicks", 0, end+lost, -1)
	if _, err := adm.DeleteRecords(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	all += p.Total.Waiting
	train(all - 1 - lost)
	p, says = s.auditOf("life")
	if x := p.Total; p.Verdict != audit.Exact || x.InLog != all-end-lost || x.Trained != all-1-lost || x.LostOffsets != lost || x.Removed != end {
		t.Errorf("after the policy gave up what retention had removed: %+v", p)
	}
	for _, want := range []string{"exact: ", "EXPIRED: 5 offsets", fmt.Sprintf("REMOVED: the log has %d offsets no more", end)} {
		if !strings.Contains(says, want) {
			t.Errorf("no %q in\n%s", want, says)
		}
	}

	if err := os.RemoveAll(filepath.Join(dir, "life", "tablets", "000007")); err != nil {
		t.Fatal(err)
	}
	if p, says = s.auditOf("life"); p.Verdict != audit.NotExact || !strings.Contains(says, "63 of 64 tablets have a snapshot") {
		t.Errorf("without a tablet: %+v\n%s", p, says)
	}

	if _, err := adm.DeleteTopic(t.Context(), "clicks"); err != nil {
		t.Fatal(err)
	}
	if r := s.run("audit", "life"); r.code != exitFailed || !strings.Contains(r.err, `Topic "clicks" does not exist`) {
		t.Errorf("without its topic: exit code %d, %s", r.code, r.err)
	}
	if err := stream.EnsureTopics(t.Context(), []kgo.Opt{kgo.SeedBrokers(addr)}, []stream.TopicSpec{{Name: "clicks", Partitions: 3}}); err != nil {
		t.Fatal(err)
	}
	if r := s.run("audit", "life"); r.code != exitFailed || !strings.Contains(r.err, "the topic was created again") {
		t.Errorf("with another topic: exit code %d, %s", r.code, r.err)
	}
}

// Why not all can be known is said: there are holes, or nobody kept what was given up.
func TestAuditSaysWhyItIsUnknown(t *testing.T) {
	for text, c := range map[string]struct {
		figures audit.Figures
		want    string
	}{
		"gone":  {audit.Figures{Gone: 122}, "retention has removed 122 offsets that the snapshots do not have: where the job trains, they may have been trained since"},
		"holes": {audit.Figures{Removed: 40, Unproven: 40, Uncounted: 1}, "retention has removed 40 offsets that it had trained, and of 1 there no record was counted"},
		"several spans": {audit.Figures{Removed: 40, Unproven: 40, LostOffsets: 5},
			"retention has removed 40 offsets that it had trained, and as many records were counted there, but others were given up between them"},
	} {
		if err := (audited{Proof: audit.Proof{Job: "ctr", Verdict: audit.Unknown, Total: c.figures}}).verdict(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", text, err, c.want)
		}
	}
}

// Tablets are written at times of their own: whose figures are shown is said, and how many differ from them.
func TestAuditSaysWhichTablets(t *testing.T) {
	waiting := func(n int64) audit.Figures { return audit.Figures{Waiting: n} }
	for _, c := range []struct {
		proof audit.Proof
		want  string
	}{
		{audit.Proof{Tablets: 3, Lacking: []audit.Lacking{{Tablet: 0, Records: 7}, {Tablet: 1, Records: 7}, {Tablet: 2, Records: 7}}, Total: waiting(7)},
			"NOT YET: 7 records of the log are newer than what the snapshots hold"},
		{audit.Proof{Tablets: 3, Lacking: []audit.Lacking{{Tablet: 2, Records: 1200}, {Tablet: 0, Records: 7}, {Tablet: 1, Records: 3}}, Total: waiting(1200)},
			"NOT YET: each tablet has its own snapshot, and all are older than the log's end: tablet 2 lacks most, 1,200 records; tablet 1 least, 3. The rows show of each partition the tablet that lacks most"},
		{audit.Proof{Tablets: 64, Lacking: []audit.Lacking{{Tablet: 7, Records: 1}}, Total: waiting(1)},
			"NOT YET: the snapshots of 1 tablet (7) are older than the log's end, and lack 1 record at most; the other snapshots have all. The rows show of each partition the tablet that lacks most"},
		{audit.Proof{Tablets: 2, Partitions: []audit.Partition{{To: 40, Beyond: 250}, {Partition: 1, To: 30}, {Partition: 2, To: 40, Beyond: 3}}},
			"UP TO is how far every tablet has all; the rows of partitions 0 and 2 count what is trained above it too, 253 offsets: what lies between was being trained, or trained again, when the snapshots were written"},
		{audit.Proof{Job: "ctr", Partitions: []audit.Partition{{Partition: 2, To: 52545, Beyond: 128, Undecodable: true}}},
			"the record at offset 52,545 of partition 2 cannot be decoded, and training stands still there: kale status ctr says what helps; the row has 128 offsets above it too, which are trained"},
		{audit.Proof{Tablets: 64, Verdict: audit.NotExact, Mismatched: []int32{1, 2, 3, 4, 5, 6, 7}},
			"not exact: 7 of 64 tablets do not agree (1, 2, 3, 4, 5 and 2 more), the other 57 do; the rows show of each partition the tablet that is least good"},
		{audit.Proof{Tablets: 2, Verdict: audit.NotExact, Mismatched: []int32{0, 1}},
			"not exact: none of the 2 tablets agrees; the rows show of each partition the tablet that is least good"},
		{audit.Proof{Compacted: true}, "the topic was compacted for a time: what compaction removed then before it was trained was never trained, and is in no column"},
	} {
		if got := (audited{Proof: c.proof}).says(); len(got) != 1 || got[0] != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
