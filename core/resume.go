package core

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/traffic"
)

// restorePoint is where a job with a checkpoint goes on: from its servers' newest snapshots, or where those do not tell, at least from what it committed at the
// brokers, which the oldest that are kept have too. nil: it has no checkpoint.
func restorePoint(ctx context.Context, j *job.Job, kafka *traffic.Client) (map[int32]int64, error) {
	folder := CheckpointFolder(j)
	r, ok := readJobRecord(j)
	if !ok {
		if _, err := os.Stat(filepath.Join(folder, rpc.JobStateFolder)); !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("the checkpoint in %s cannot be read", folder)
		}
		return nil, nil
	}
	if len(r.Starts) == 0 {
		return nil, nil
	}
	topic, err := kafka.Topic(ctx)
	if err != nil {
		return nil, err
	}
	if id, other := r.otherTopic(topic); other {
		return nil, fmt.Errorf("topic %q was created again: its id is %s, and what is trained is of %s", j.Stream.Topic, id, r.TopicID)
	}
	next := r.Starts
	done, known := rpc.RestorePoint(folder, r.Timeline, r.Servers)
	if !known {
		if done, err = kafka.Committed(ctx, rpc.Group(j.Name)); err != nil {
			return nil, err
		}
	}
	for p, o := range done {
		next[p] = max(next[p], o)
	}
	return next, nil
}

// otherTopic says that a topic is not the one whose records were trained, and which it is.
func (r jobRecord) otherTopic(t traffic.Info) (id kadm.TopicID, other bool) {
	id = kadm.TopicID(t.ID)
	return id, t.Exists && r.TopicID != "" && id != (kadm.TopicID{}) && id.String() != r.TopicID
}

// CheckResume says at the stream block what in the topic holds a job, or would hold it as soon as it is taken up from its checkpoint: it is another topic of the
// same name, which is an error where nothing runs; or, as warnings, for other partitions may go on: retention has removed what is to be trained next, and records
// that cannot be decoded. Of a job that runs it says what its chief said last. Where the brokers do not answer it says nothing.
func CheckResume(ctx context.Context, j *job.Job, want *Wanted) hcl.Diagnostics {
	r, ok := readJobRecord(j)
	if !ok || r.Fingerprint != j.Fingerprint() {
		return nil // there is none, or CheckCheckpoint refuses it: another topic is not the same one made again
	}
	opts, err := KafkaOpts(j)
	if err != nil {
		return nil // who reads the topic says so
	}
	kafka, err := traffic.NewClient(traffic.ClientOptions{Brokers: j.Stream.Brokers, Topic: j.Stream.Topic, Opts: opts})
	if err != nil {
		return nil
	}
	defer kafka.Close()
	topic, err := kafka.Topic(ctx)
	if err != nil || !topic.Exists {
		return nil
	}
	if id, other := r.otherTopic(topic); other {
		at, stuck := j.ErrorAt, "would be"
		if want.Runs() { // what runs of it is to be looked after, and ended
			at, stuck = j.WarningAt, "is"
		}
		return hcl.Diagnostics{at("stream.topic", "The topic was created again", fmt.Sprintf(
			"Topic %q has id %s, and the checkpoint in %s belongs to %s: the job %s stuck. Start a new job (another checkpoint.dir) to train on the new topic.",
			j.Stream.Topic, id, CheckpointFolder(j), r.TopicID, stuck))}
	}
	diags := standingDiagnostics(j, want)
	if want.Runs() {
		return diags
	}
	next, err := restorePoint(ctx, j, kafka)
	if err != nil {
		return diags
	}
	ends, err := kafka.Ends(ctx)
	if err != nil {
		return diags
	}
	if d := truncation(j, want, next, ends); d != nil {
		return append(diags, d)
	}
	if j.Stream.OnLost == job.OnLostSkip {
		return diags
	}
	starts, err := kafka.Starts(ctx)
	if err != nil {
		return diags
	}
	var cut []int32
	var gone int64
	for _, p := range slices.Sorted(maps.Keys(next)) {
		if first, ok := starts[p]; ok && first > next[p] {
			cut, gone = append(cut, p), gone+first-next[p]
		}
	}
	if len(cut) == 0 {
		return diags
	}
	first := cut[0]
	return append(diags, j.WarningAt("stream", "Retention has removed what is not trained yet", fmt.Sprintf(
		"%s would stand still: offsets to be trained next are gone, %s in all, of partition %d those from %d to %d. To accept the loss, set on_lost = \"skip\" in the stream block, and first let the topic keep its records for longer (retention.ms, retention.bytes).",
		capital(numbered("partition", cut)), plan.Thousands(gone), first, next[first], starts[first]-1)))
}

// truncation says that the ends of a topic's log were cut off, as far as its ends or what the job stood at tell: an error, unless such records may be skipped and
// the log has come past what is trained.
func truncation(j *job.Job, want *Wanted, next, ends map[int32]int64) *hcl.Diagnostic {
	const summary = "The end of the topic's log was cut off"
	var cut []*rpc.PartitionProblem
	for _, p := range slices.Sorted(maps.Keys(next)) {
		if end, ok := ends[p]; ok && end < next[p] {
			cut = append(cut, &rpc.PartitionProblem{Partition: p, Needed: next[p], LogStart: end})
		}
	}
	if len(cut) > 0 {
		var names []int32
		for _, p := range cut {
			names = append(names, p.GetPartition())
		}
		return j.ErrorAt("stream.topic", summary, fmt.Sprintf("The log of %s ends before what is trained: that of partition %d at offset %d, and it is trained up to %d. So it is after an unclean election, or where "+
			"brokers came back with an older copy of their data. "+
			"What is written there now, up to where it was read before, has offsets that are trained already, and is not trained. "+truncatedWaysOut+".", numbered("partition", names), cut[0].GetPartition(), cut[0].GetLogStart(), cut[0].GetNeeded()))
	}
	if want == nil {
		return nil
	}
	if cut = slices.DeleteFunc(slices.Clone(want.Standing), func(p *rpc.PartitionProblem) bool { return !isTruncated(p) }); len(cut) == 0 {
		return nil
	}
	if j.Stream.OnLost == job.OnLostSkip {
		return j.WarningAt("stream.on_lost", summary, "What was written there since, up to the offsets that are trained already, is not trained; it goes on with what comes after.")
	}
	return j.ErrorAt("stream.topic", summary, capital(strings.ReplaceAll(truncatedWords(cut), thenRunAgain, "; then run the job again"))+".")
}

// standingDiagnostics say where a job's partitions stood when its chief said so last, as far as its file does not mend that by now: a job that runs has not read
// that yet. Of a job that has stopped, what retention removed is told from the topic itself.
func standingDiagnostics(j *job.Job, want *Wanted) (diags hcl.Diagnostics) {
	if want == nil {
		return nil
	}
	summary, words := "Partitions would stand still", standingWords
	if want.Runs() {
		summary, words = "Partitions stand still", chiefProblems
	}
	var mended []int32
	for _, text := range words(slices.DeleteFunc(slices.Clone(want.Standing), func(p *rpc.PartitionProblem) bool {
		switch p.GetKind() {
		case rpc.PartitionProblem_KIND_UNDECODABLE:
			if j.Stream.DeadLetter == "" && j.Stream.OnUndecodable != job.OnLostSkip {
				return false
			}
			if want.Runs() {
				mended = append(mended, p.GetPartition())
			}
			return true
		case rpc.PartitionProblem_KIND_GRADIENT:
			return false
		case rpc.PartitionProblem_KIND_DEAD_LETTER:
			return !want.Runs() && j.Stream.DeadLetter == ""
		case rpc.PartitionProblem_KIND_LOST, rpc.PartitionProblem_KIND_TRUNCATED:
			return !want.Runs()
		}
		return true // of another topic is told by who asks for it
	})) {
		diags = append(diags, j.WarningAt("stream", summary, capital(text)+"."))
	}
	if len(mended) > 0 {
		attribute, does := "stream.on_undecodable", "does without such records"
		if j.Stream.DeadLetter != "" {
			attribute, does = "stream.dead_letter", "names a topic for such records"
		}
		diags = append(diags, j.WarningAt(attribute, summary, fmt.Sprintf("%s%s, and nothing of that is lost. This file %s: the job goes on as soon as it is run with it (Ctrl-C of the scheduler that runs, then kale run again).",
			capital(undecodableStop), numbered("partition", mended), does)))
	}
	return diags
}

// capital is a text that begins as a sentence does.
func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
