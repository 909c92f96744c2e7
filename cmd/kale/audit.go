package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/cmd/kale/audit"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

func auditCommand(a *app) *cobra.Command {
	var f jobFlags
	c := &cobra.Command{
		Use: "audit JOB", SuggestFor: []string{"verify", "prove", "check"}, Short: "Whether every record was trained once, by the log and the snapshots",
		Long: `Holds what a job has trained against the topic's log: how many records the log has up to where the job has got, and how many of
them every tablet has trained, set aside as dead letters, left out, or trained twice. A tablet keeps the number of its records and the sum of
their hashes, which one record that is missing and another that is repeated do not leave as they were. A record is its partition and offset: what
is in it is in no hash, and is not compared.

It reads the newest snapshots in the checkpoint folder and all of the log from the job's first record on. It asks no process of the job and changes
nothing, so it can be given at any time; of a job that runs, what is newer than its snapshots counts as not yet trained.

Of what retention has removed since it was trained, the counts and hashes of the offsets take the log's place, without those that were given
up before they were trained (EXPIRED). Where fewer records were counted there than offsets are gone (a transaction leaves such holes, and so
would a loss), or a partition's offsets were given up in several spans that nobody kept, nobody can tell any more: the verdict is unknown. So it
is where retention has removed what the snapshots do not have (gone_offsets).

Where the end of the log was cut off below what is trained (an unclean election, brokers with an older copy of their data), the log has other
records at such offsets now, or will have: they are never trained, and the verdict is not exact, or unknown as long as there are none. The job
keeps where that was, as its workers met it. A log that was cut off and had grown past that before a worker read it again cannot be told from one that was not.

The columns, and their keys under -json:

  UP TO       to                how far every tablet has all, an offset
  IN THE LOG  log_records       the records that the log holds of what is trained
  TRAINED     trained_records   those that every tablet has counted
  DEAD        dead_records      could not be decoded; SKIPPED where the job file leaves them out
  MISSING     missing_records   in the log, and not counted
  REPEATED    repeated_records  counted more than once
  EXPIRED     lost_offsets      removed by retention before they were trained, and given up
  REMOVED     removed_offsets   removed from the log, or cut off, since they were trained
  NOT YET     waiting_records   in the log, and newer than the snapshots

In no column are, of removed_offsets, unproven_offsets (nobody can tell any more whether each was trained once) and of those uncounted_offsets
(counted as no record), and cut_off_offsets (of a log whose end was cut off); replaced_records, those that the log has there now; gone_offsets;
offsets_beyond, those trained above UP TO; and compacted_records, more than the log has now, of a topic that is compacted or was: compaction
may have removed them since. cut_off of a partition says at which offset its log was cut, read_to what, and when that was seen.

Exit code 0: exact; 1: not exact, or unknown. -json prints the verdict ("exact", "not exact", "unknown") and the same figures, for all partitions
together (total) and for each; of the tablets that of which each is least good. mismatched_tablets do not agree, lacking_tablets
are only behind the log's end, which is no fault: each is written at its own time. Where removed_offsets is not 0, log_records leaves out what was in them.`,
		Example: "  kale audit ctr\n  kale audit ctr.hcl -json",
		Args:    exactly("JOB"), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error { return a.audit(cmd.Context(), args[0], f) },
	}
	f.register(c)
	a.jsonFlag(c, "print verdict and figures as JSON")
	return c
}

// audited is what kale audit -json prints.
type audited struct {
	audit.Proof
	Checkpoint string `json:"checkpoint"`
	// Skips says that dead records were skipped, DeadLetter in which topic they are, as the job file has it now.
	Skips      bool   `json:"skips_undecodable,omitempty"`
	DeadLetter string `json:"dead_letter,omitempty"`

	compactedNow bool // the topic is, and not only was
}

func (a *app) audit(ctx context.Context, arg string, f jobFlags) error {
	if !isFile(arg) || len(f.vars)+len(f.varFiles) == 0 { // the variables with which it ran here
		var err error
		if arg, err = a.jobName(arg, f.varFlags); err != nil {
			return err
		}
	}
	l, err := a.load(arg, f)
	if err != nil {
		return err
	}
	asked := *l.Job
	asked.Stream.DeadLetter = "" // it is not read
	info, diags, err := a.checkTopics(ctx, &asked)
	if err == nil && info.Err != nil {
		err = fmt.Errorf("audit job %q: %w", l.Name, unanswered(info.Err))
	}
	if err == nil {
		err = a.diagnose(l.files, butWarned(diags, job.Compacted(l.Stream.Topic)))
	}
	if err != nil {
		return err
	}
	want, unread := a.wanted(ctx, l.Name, l.dir)
	opts, err := core.KafkaOpts(l.Job)
	if err != nil {
		return err
	}
	bar := a.progress()
	began := time.Now()
	came := a.await("waiting for the first records of the log, from the brokers at %s\n", strings.Join(l.Stream.Brokers, ", "))
	proof, err := audit.Examine(ctx, audit.Stores{Kafka: append(opts, kgo.SeedBrokers(l.Stream.Brokers...)), Spec: core.TrainSpec(l.Job, ""), Compacted: info.Compacted() || want.WasCompacted()}, func(done, all int64) {
		came()
		bar.show("read the log: %s of %s offsets%s", plan.Thousands(done), plan.Thousands(all), left(time.Since(began), int(done), int(all)))
	})
	came()
	bar.done()
	switch {
	case ctx.Err() != nil:
		return errors.New("audit: interrupted; nothing was changed")
	case errors.Is(err, audit.ErrNothing):
		if unread != nil {
			return err
		}
		return cmp.Or(a.diagnose(l.files, core.CheckModel(l.Job, want)), err)
	case err != nil:
		return err
	}
	out := audited{proof, core.CheckpointFolder(l.Job), core.Skips(l.Job), l.Stream.DeadLetter, info.Compacted()}
	if a.asJSON {
		err = printJSON(a.out, out)
	} else {
		width, _ := terminal(a.out)
		_, err = io.WriteString(a.out, out.text(width))
	}
	return errors.Join(err, out.verdict())
}

// verdict is the error of what is not exact.
func (p audited) verdict() error {
	switch p.Verdict {
	case audit.NotExact:
		if p.Mismatch == "" {
			return fmt.Errorf("job %q is not exact: of the log %s never trained, under offsets that were trained before the end of the log was cut off", p.Job, areRecords(p.Total.Replaced))
		}
		return fmt.Errorf("job %q is not exact: %s missing, %s; the first that does not agree: %s", p.Job, counted(p.Total.Missing, "record"), plan.Thousands(p.Total.Repeated)+" repeated", p.Mismatch)
	case audit.Unknown:
		return fmt.Errorf("job %q cannot be checked whole: %s", p.Job, strings.Join(p.unknown(), "; "))
	}
	return nil
}

// unknown says what cannot be told of.
func (p audited) unknown() (out []string) {
	x := p.Total
	if x.Gone > 0 {
		out = append(out, fmt.Sprintf("retention has removed %s that the snapshots do not have: where the job trains, they may have been trained since, which its next snapshots tell; where it is stopped, they never were, and never will be",
			counted(x.Gone, "offset")))
	}
	if x.CutOff > 0 {
		out = append(out, fmt.Sprintf("the end of the log was cut off below %s that had been trained, and it may have been cut lower than where it ended when that was seen", counted(x.CutOff, "offset")))
	}
	if x.Compacted > 0 {
		out = append(out, fmt.Sprintf("the topic is compacted, or was: of %s that %s counted the log has none now, and whether each was counted once nobody can tell; "+
			"all tablets have counted the same there", counted(x.Compacted, "record"), strings.TrimSpace(were(x.Compacted))))
	}
	if x.Unproven == 0 {
		return out
	}
	why := fmt.Sprintf("and of %s there no record was counted. Transactions leave such holes, a loss would too", plan.Thousands(x.Uncounted))
	if x.Uncounted == 0 {
		why = "and as many records were counted there, but others were given up between them, and which is not known: by their number each was counted once, and the hash sums cannot say so too"
	}
	return append(out, fmt.Sprintf("retention has removed %s that it had trained, %s; "+
		"all tablets have counted the same there, none more records than there were offsets, and none fewer than the log still has", counted(x.Unproven, "offset"), why))
}

// text is the proof for people.
func (p audited) text(width int) string {
	var out strings.Builder
	now := time.Now()
	snapshots := "of " + clock(p.Oldest, now)
	if p.Newest.Sub(p.Oldest) >= time.Second {
		snapshots = fmt.Sprintf("of %s to %s", clock(p.Oldest, now), clock(p.Newest, now))
	}
	fmt.Fprintf(&out, "job %q: topic %s against %s, by the snapshots %s in %s\n\n", p.Job, p.Topic, job.Count(p.Tablets, "tablet"), snapshots, p.Checkpoint)
	dead := "DEAD"
	if p.Skips {
		dead = "SKIPPED"
	}
	t := table{columns: []column{{"PARTITION", 9}, {"UP TO", 3}, {"IN THE LOG", 8}, {"TRAINED", 9}, {dead, 6}, {"MISSING", 7}, {"REPEATED", 7}, {"EXPIRED", 4}, {"REMOVED", 2}, {"NOT YET", 5}}}
	line := func(name, to string, x audit.Figures) {
		cells := []string{name, to}
		for _, n := range []int64{x.InLog, x.Trained, x.Dead, x.Missing, x.Repeated, x.LostOffsets, x.Removed, x.Waiting} {
			cells = append(cells, plan.Thousands(n))
		}
		t.rows = append(t.rows, row{cells: cells})
	}
	for _, x := range p.Partitions {
		line(fmt.Sprint(x.Partition), plan.Thousands(x.To), x.Figures)
	}
	if len(p.Partitions) > 1 {
		line("all", "", p.Total)
	}
	out.WriteString(t.text(width) + "\n")
	for _, s := range p.says() {
		out.WriteString(folded(s+"\n", width))
	}
	return out.String()
}

// says is what the figures come to, a sentence each.
func (p audited) says() (out []string) {
	x := p.Total
	if p.Verdict == audit.Exact {
		out = append(out, fmt.Sprintf("exact: every tablet has counted %s, each once: their numbers and hash sums, of partitions and offsets, are those of the log", counted(x.Trained+x.Dead, "record")))
	}
	if x.CutOff > 0 {
		out = append(out, p.cutOff())
	}
	if x.Dead > 0 {
		out = append(out, strings.TrimPrefix(losses{job: p.Job, dead: uint64(x.Dead), skips: p.Skips, deadLetter: p.DeadLetter}.String(), ", "))
	}
	if x.LostOffsets > 0 {
		out = append(out, fmt.Sprintf("EXPIRED: %s were removed by retention before they were trained, and given up", counted(x.LostOffsets, "offset")))
	}
	if x.Removed > x.Unproven {
		out = append(out, fmt.Sprintf("REMOVED: the log has %s no more that were trained; each was counted once, by the hash sum of the offsets themselves", counted(x.Removed-x.Unproven, "offset")))
	}
	if len(p.Mismatched) > 0 {
		out = append(out, fmt.Sprintf("not exact: %s; the rows show of each partition the tablet that is least good", p.mismatched()))
	}
	if x.Gone > 0 {
		out = append(out, fmt.Sprintf("in no column: %s beyond UP TO that the log does not have any more", counted(x.Gone, "offset")))
	}
	if x.Waiting > 0 {
		out = append(out, "NOT YET: "+p.lacking())
	}
	switch {
	case p.Compacted && p.compactedNow:
		out = append(out, "the topic is compacted: what compaction removed before it was trained was never trained, and is in no column; set its cleanup.policy to delete")
	case p.Compacted:
		out = append(out, "the topic was compacted for a time: what compaction removed then before it was trained was never trained, and is in no column")
	}
	for _, x := range p.Partitions {
		if x.Undecodable {
			out = append(out, p.standing(x))
		}
	}
	if s := p.aboveGaps(); s != "" {
		out = append(out, s)
	}
	for _, s := range p.Skipped {
		out = append(out, "an older snapshot was taken, as a server would that starts now, since the newest is damaged: "+s)
	}
	return out
}

// cutOff says where the end of the log was cut off, and what has become of it.
func (p audited) cutOff() string {
	var at []string
	for _, x := range p.Partitions {
		for _, c := range x.Cuts {
			text := fmt.Sprintf("partition %d at offset %s (read up to %s", x.Partition, plan.Thousands(c.At), plan.Thousands(c.ReadTo))
			if !c.Seen.IsZero() {
				text += ", seen " + clock(c.Seen, time.Now())
			}
			at = append(at, text+")")
		}
	}
	const most = 5
	if more := len(at) - most; more > 0 {
		at = append(at[:most], fmt.Sprintf("%d more", more))
	}
	x := p.Total
	if x.Replaced == 0 {
		return fmt.Sprintf("unknown: the end of the log was cut off, %s: the log has %s no more that were trained, and what is written there next has offsets that are trained already, and is not trained",
			listed(at), counted(x.CutOff, "offset"))
	}
	text := fmt.Sprintf("not exact: the end of the log was cut off, %s: %s trained before that, and of what the log has there now %s never trained", listed(at), areOffsets(x.CutOff), areRecords(x.Replaced))
	if p.Mismatch == "" && x.Unproven == 0 {
		text += ". By offset alone all is exact; what is in the records is not compared"
	}
	return text
}

func areOffsets(n int64) string { return counted(n, "offset") + were(n) }
func areRecords(n int64) string { return counted(n, "record") + were(n) }

func were(n int64) string {
	if n == 1 {
		return " was"
	}
	return " were"
}

// standing says of a partition that training is at a record of it that cannot be decoded.
func (p audited) standing(x audit.Partition) string {
	then := fmt.Sprintf("stands still there: kale status %s says what helps", p.Job)
	switch {
	case p.Skips:
		then = `goes on there without it (on_undecodable = "skip")`
	case p.DeadLetter != "":
		then = fmt.Sprintf("goes on there once it is in topic %s", p.DeadLetter)
	}
	above := ""
	if x.Beyond > 0 {
		above = fmt.Sprintf("; the row has %s above it too, which are trained", counted(x.Beyond, "offset"))
	}
	return fmt.Sprintf("the record at offset %s of partition %d cannot be decoded, and training %s%s", plan.Thousands(x.To), x.Partition, then, above)
}

// aboveGaps says which rows count more than what lies below their UP TO.
func (p audited) aboveGaps() string {
	var in []int32
	offsets := int64(0)
	for _, x := range p.Partitions {
		if x.Beyond > 0 && !x.Undecodable {
			in, offsets = append(in, x.Partition), offsets+x.Beyond
		}
	}
	if len(in) == 0 {
		return ""
	}
	rows, count := "rows of partitions", "count"
	if len(in) == 1 {
		rows, count = "row of partition", "counts"
	}
	return fmt.Sprintf("UP TO is how far every tablet has all; the %s %s %s what is trained above it too, %s: what lies between was being trained, or trained again, when the snapshots were written",
		rows, someOf(in), count, counted(offsets, "offset"))
}

// mismatched says how many tablets do not agree, and which.
func (p audited) mismatched() string {
	if len(p.Mismatched) == p.Tablets {
		return fmt.Sprintf("none of the %s agrees", job.Count(p.Tablets, "tablet"))
	}
	do := "do not agree"
	if len(p.Mismatched) == 1 {
		do = "does not agree"
	}
	return fmt.Sprintf("%d of %s %s (%s), the other %d do", len(p.Mismatched), job.Count(p.Tablets, "tablet"), do, someOf(p.Mismatched), p.Tablets-len(p.Mismatched))
}

// lacking says which tablets' snapshots are older than the log's end: each is written at its own time, and the rows show the one that lacks most.
func (p audited) lacking() string {
	worst, least := p.Lacking[0], p.Lacking[len(p.Lacking)-1]
	switch rest := p.Tablets - len(p.Mismatched); {
	case worst.Records == least.Records && len(p.Lacking) >= rest:
		verb := "are"
		if worst.Records == 1 {
			verb = "is"
		}
		return fmt.Sprintf("%s of the log %s newer than what the snapshots hold", counted(worst.Records, "record"), verb)
	case len(p.Lacking) >= rest:
		return fmt.Sprintf("each tablet has its own snapshot, and all are older than the log's end: tablet %d lacks most, %s; tablet %d least, %s. The rows show of each partition the tablet that lacks most",
			worst.Tablet, counted(worst.Records, "record"), least.Tablet, plan.Thousands(least.Records))
	}
	var names []int32
	for _, l := range p.Lacking {
		names = append(names, l.Tablet)
	}
	return fmt.Sprintf("the snapshots of %s (%s) are older than the log's end, and lack %s at most; the other snapshots have all. The rows show of each partition the tablet that lacks most",
		job.Count(len(names), "tablet"), someOf(names), counted(worst.Records, "record"))
}

// someOf names the first tablets, or partitions, of a list.
func someOf(tablets []int32) string {
	const most = 5
	var names []string
	for _, t := range tablets[:min(most, len(tablets))] {
		names = append(names, fmt.Sprint(t))
	}
	if more := len(tablets) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), more)
	}
	return listed(names)
}

// counted is a large number of something.
func counted(n int64, noun string) string {
	return plan.Thousands(n) + strings.TrimLeft(job.Count(int(min(n, 2)), noun), "0123456789")
}
