package core

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
)

// What would hold a job as soon as it is taken up from its checkpoint is told before: that retention has removed what is to be trained next, save where that is to
// be skipped, and that its topic is another one.
func TestWhatHoldsAJobThatIsTakenUpIsToldBefore(t *testing.T) {
	r := newRig(t, rigOptions{change: func(text string) string { return strings.Replace(text, "count = 2", "count = 1", 1) }})
	r.fill(50, func(int) time.Time { return r.now })
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.broker.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	topics, err := adm.ListTopics(t.Context(), rigTopic)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	told := func() (all []string) {
		for _, d := range CheckResume(t.Context(), r.job, r.wanted()) {
			if d.Severity == hcl.DiagError {
				d.Summary = "error: " + d.Summary
			}
			all = append(all, d.Summary+": "+d.Detail)
		}
		return all
	}
	if got := told(); len(got) > 0 {
		t.Errorf("of a job that never ran it says %q", got)
	}
	r.chief.write("job", map[string]any{"timeline": "t1", "fingerprint": r.job.Fingerprint(), "servers": 1, "tablets": r.job.Model.Tablets, "topic_id": topics[rigTopic].ID.String(), "starts": map[int32]int64{0: 0, 1: 0, 2: 0, 3: 0}})
	r.chief.write("written/0", map[string]any{"timeline": "t1", "applied": map[int32]int64{0: 20, 1: 50, 2: 30, 3: 31}})
	if got := told(); len(got) > 0 {
		t.Errorf("of a log that is whole it says %q", got)
	}
	r.chief.write("written/0", map[string]any{"timeline": "t1", "applied": map[int32]int64{0: 20, 1: 62, 2: 30, 3: 55}})
	for _, c := range []string{job.OnLostStop, job.OnLostSkip} { // while the log has not grown past it, neither goes on
		r.job.Stream.OnLost = c
		if got := told(); len(got) != 1 || !strings.HasPrefix(got[0], "error: The end of the topic's log was cut off: The log of partitions 1, 3 ends before what is trained: that of partition 1 at offset 50, and it is trained up to 62.") {
			t.Errorf("of a log that ends before what is trained it says %q", got)
		}
	}
	r.job.Stream.OnLost = job.OnLostStop
	r.chief.write("written/0", map[string]any{"timeline": "t1", "applied": map[int32]int64{0: 20, 1: 50, 2: 30, 3: 31}})
	gone := kadm.Offsets{}
	for p := range int32(rigPartitions) {
		gone.Add(kadm.Offset{Topic: rigTopic, Partition: p, At: 30, LeaderEpoch: -1})
	}
	if got, err := adm.DeleteRecords(t.Context(), gone); err != nil || got.Error() != nil {
		t.Fatal(err, got.Error())
	}
	if got := told(); len(got) != 1 || !strings.Contains(got[0], "Partition 0 would stand still: offsets to be trained next are gone, 10 in all, of partition 0 those from 20 to 29.") || !strings.Contains(got[0], `set on_lost = "skip"`) {
		t.Errorf("of what retention removed it says %q", got)
	}
	r.job.Stream.OnLost = job.OnLostSkip
	if got := told(); len(got) > 0 {
		t.Errorf("of what is to be skipped it says %q", got)
	}
	if got, err := adm.DeleteTopic(t.Context(), rigTopic); err != nil || got.Err != nil {
		t.Fatal(err, got.Err)
	}
	if got := told(); len(got) > 0 {
		t.Errorf("of a topic that is not there, of which who asks for it tells, it says %q", got)
	}
	if got, err := adm.CreateTopic(t.Context(), rigPartitions, 1, nil, rigTopic); err != nil || got.Err != nil {
		t.Fatal(err, got.Err)
	}
	if got := told(); len(got) != 1 || !strings.HasPrefix(got[0], "error: The topic was created again: ") || !strings.Contains(got[0], topics[rigTopic].ID.String()) {
		t.Errorf("of another topic it says %q", got)
	}
	runs := CheckResume(t.Context(), r.job, &Wanted{Target: 1})
	if len(runs) != 1 || runs[0].Severity != hcl.DiagWarning || runs[0].Summary != "The topic was created again" || !strings.Contains(runs[0].Detail, "the job is stuck") {
		t.Errorf("of another topic under a job that runs it says %v", runs)
	}
	p, diags, err := NewPreview(t.Context(), r.options("run"))
	if err != nil || diags.HasErrors() {
		t.Fatal(err, diags)
	}
	if p.Record.Observation.LagKnown || !strings.Contains(p.Record.LagUnknown, "was created again") {
		t.Errorf("of another topic a plan has a lag of %v, known %v: %q", p.Record.Observation.Lag, p.Record.Observation.LagKnown, p.Record.LagUnknown)
	}
	if p.Record.Decision.Target != 1 {
		t.Errorf("it would not start, and so would not come to say what it is stuck at: %+v", p.Record.Decision)
	}
}

// A job that runs and one that is to run are told the same ways out where the end of the log was cut off: among them that more must be written first.
func TestOneWayOutOfALogThatWasCutOff(t *testing.T) {
	r := newRig(t, rigOptions{})
	cut := []*rpc.PartitionProblem{{Partition: 1, Kind: rpc.PartitionProblem_KIND_TRUNCATED, Needed: 50, LogStart: 30}}
	d := truncation(r.job, nil, map[int32]int64{1: 50}, map[int32]int64{1: 30})
	for who, text := range map[string]string{"status": truncatedWords(cut), "run": d.Detail} {
		if !strings.Contains(text, truncatedWaysOut) || !strings.Contains(text, "once more is written there than was trained") {
			t.Errorf("%s: %s", who, text)
		}
	}
}

// Where partitions stood when the chief said so last is told of a job that runs and of one that has stopped, of that unless its file mends it.
func TestWhereAJobStandsIsToldByItsFile(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.chief.write("job", map[string]any{"timeline": "t1", "fingerprint": r.job.Fingerprint(), "servers": 2, "tablets": r.job.Model.Tablets, "starts": map[int32]int64{0: 0}})
	bad := &rpc.PartitionProblem{Partition: 1, Kind: rpc.PartitionProblem_KIND_UNDECODABLE, Needed: 7, Detail: "t stands at offset 7: no JSON"}
	letters := &rpc.PartitionProblem{Partition: 2, Kind: rpc.PartitionProblem_KIND_DEAD_LETTER, Needed: 9, Detail: "t stands at offset 9: no such topic"}
	lost := &rpc.PartitionProblem{Partition: 3, Kind: rpc.PartitionProblem_KIND_LOST, Needed: 5, LogStart: 8}
	cut := &rpc.PartitionProblem{Partition: 1, Kind: rpc.PartitionProblem_KIND_TRUNCATED, Needed: 50, LogStart: 30}
	for _, lost := range []struct{ policy, says string }{
		{job.OnLostStop, "error: The brokers lost the end of the log of partition 1: that of partition 1 ended at offset 30, and was read up to 50."}, {job.OnLostSkip, "What was written there since, up to the offsets that are trained already, is not trained; "},
	} {
		j := *r.job
		j.Stream.OnLost = lost.policy
		diags := CheckResume(t.Context(), &j, &Wanted{Standing: []*rpc.PartitionProblem{cut}})
		says, isError := strings.CutPrefix(lost.says, "error: ")
		if len(diags) != 1 || !strings.HasPrefix(diags[0].Detail, says) || (diags[0].Severity == hcl.DiagError) != isError {
			t.Errorf("of a log that was cut off, with on_lost %q, it says %v", lost.policy, diags)
		}
	}
	for _, c := range []struct {
		name           string
		target         int
		standing       []*rpc.PartitionProblem
		letters, skips string
		want           []string // in the texts, one each
	}{
		{"runs, nothing", 1, nil, "", "", nil},
		{"runs", 1, []*rpc.PartitionProblem{bad, lost}, "", "", []string{"Partitions stand still: Records that cannot be decoded stop partition 1", "Partitions stand still: Partition 3: retention removed untrained offsets (3 "}},
		{"runs, cut off", 1, []*rpc.PartitionProblem{cut, lost}, "", "", []string{"Partitions stand still: The brokers lost the end of the log of partition 1"}},
		{"runs, its file mended", 1, []*rpc.PartitionProblem{bad}, "", job.OnLostSkip, []string{"stop partition 1, and nothing of that is lost. This file does without such records: the job goes on as soon as it is run with it"}},
		{"runs, its file has a topic for letters", 1, []*rpc.PartitionProblem{bad, lost}, "dead", "", []string{"Partitions stand still: Partition 3", "This file names a topic for such records"}},
		{"stopped", 0, []*rpc.PartitionProblem{bad, lost}, "", "", []string{"Partitions would stand still: Records that cannot be decoded stop partition 1"}},
		{"stopped, its file mended", 0, []*rpc.PartitionProblem{bad}, "", job.OnLostSkip, nil},
		{"stopped, with a topic for letters now", 0, []*rpc.PartitionProblem{bad}, "dead", "", nil},
		{"stopped, no topic for letters", 0, []*rpc.PartitionProblem{letters}, "dead", "", []string{"then run the job again."}},
		{"stopped, letters no more", 0, []*rpc.PartitionProblem{letters}, "", job.OnLostSkip, nil},
	} {
		j := *r.job
		j.Stream.DeadLetter, j.Stream.OnUndecodable = c.letters, c.skips
		diags := CheckResume(t.Context(), &j, &Wanted{Target: c.target, Standing: c.standing})
		if len(diags) != len(c.want) {
			t.Errorf("%s: %d are told, not %d: %v", c.name, len(diags), len(c.want), diags)
			continue
		}
		for i, d := range diags {
			if text := d.Summary + ": " + d.Detail; d.Severity != hcl.DiagWarning || !strings.Contains(text, c.want[i]) {
				t.Errorf("%s: %q, not %q in it", c.name, text, c.want[i])
			}
		}
	}
}

// The offsets of another topic of the same name say nothing of what waits.
func TestLagIsNotKnownOfAnotherTopic(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.chief.with(func(s *rpc.JobStatus) {
		s.Problems = []*rpc.PartitionProblem{{Partition: -1, Kind: rpc.PartitionProblem_KIND_RECREATED, Detail: "another topic"}}
	})
	r.beat()
	if s := r.s.View().Sample; s.Lag != nil || s.LagRecords != nil || s.LagUnknown != "the topic was deleted or created again" {
		t.Errorf("lag %v, %v records: %q", s.Lag, s.LagRecords, s.LagUnknown)
	}
}
