package core

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
)

// How a job takes what was changed in its file: its trainers are told of policies, all else needs new ones.
const (
	thenRunAgain = "; then stop the job and run it again"
	thenTakeUp   = "; then Ctrl-C and kale run again (training goes on)"
	thenGoesOn   = "; then training goes on there by itself" // nothing of the file is changed
)

// chiefProblem is what is wrong with a partition, for people, save what retention removed of it (lostWords) and the record that it stands at (haltedWords).
func chiefProblem(p *rpc.PartitionProblem) string {
	if p.GetKind() == rpc.PartitionProblem_KIND_RECREATED || p.GetKind() == rpc.PartitionProblem_KIND_UNREACHABLE && p.GetPartition() < 0 { // a whole topic's, a whole worker's
		return p.GetDetail()
	}
	return fmt.Sprintf("partition %d: %s", p.GetPartition(), p.GetDetail())
}

// halting are the kinds of problems by which a partition stands still at one record, in the order in which they are told.
var halting = []struct {
	kind   rpc.PartitionProblem_Kind
	stops  string // begins haltedWords
	behind string // see Behind
	helps  string
}{
	{rpc.PartitionProblem_KIND_DEAD_LETTER, undecodableStop, undecodableBehind, "Create or mend that topic (stream.dead_letter)" + thenGoesOn},
	{rpc.PartitionProblem_KIND_UNDECODABLE, undecodableStop, undecodableBehind, "To do without such records, set on_undecodable = \"skip\" in the stream block" + thenTakeUp +
		". To keep them, name a topic for them in stream.dead_letter" + thenRunAgain},
	{rpc.PartitionProblem_KIND_GRADIENT, "gradients that are not finite stop ", "partitions stand still at gradients that are not finite",
		"The model's weights have grown too far, by too high a learning rate as a rule: lower it (learning_rate in model.optimiser)" + thenRunAgain +
			", which tries that record again. Where it stands still there all the same, the weights are past mending: begin a new job (another checkpoint.dir)"},
}

const (
	undecodableStop   = "records that cannot be decoded stop "
	undecodableBehind = "partitions stand still at records that cannot be decoded"
)

// halts says that a partition stands still at a record that can neither be decoded nor set aside, or not be trained.
func halts(p *rpc.PartitionProblem) bool {
	for _, h := range halting {
		if h.kind == p.GetKind() {
			return true
		}
	}
	return false
}

// haltedWords are, for each reason, the partitions that halt for it, with the record of the first of them, and what helps.
func haltedWords(ps []*rpc.PartitionProblem) (out []string) {
	for _, h := range halting {
		same := slices.DeleteFunc(slices.Clone(ps), func(p *rpc.PartitionProblem) bool { return p.GetKind() != h.kind })
		if len(same) == 0 {
			continue
		}
		first, names := firstOf(same)
		out = append(out, fmt.Sprintf("%s%s, and nothing of that is lost. Partition %d of %s. %s", h.stops, numbered("partition", names), first.GetPartition(), first.GetDetail(), h.helps))
	}
	return out
}

// firstOf is the problem of the lowest partition, beside all the partitions.
func firstOf(ps []*rpc.PartitionProblem) (first *rpc.PartitionProblem, partitions []int32) {
	for _, p := range ps {
		partitions = append(partitions, p.GetPartition())
	}
	return slices.MinFunc(ps, func(a, b *rpc.PartitionProblem) int { return cmp.Compare(a.GetPartition(), b.GetPartition()) }), partitions
}

// truncatedWords say of which partitions the end was cut off, where the first of them ended and was read to, and what helps.
func truncatedWords(ps []*rpc.PartitionProblem) string {
	first, names := firstOf(ps)
	text := "the brokers lost the end of the log of " + numbered("partition", names)
	if end := first.GetLogStart(); end >= 0 {
		text += fmt.Sprintf(": that of partition %d ended at offset %d, and was read up to %d", first.GetPartition(), end, first.GetNeeded())
	}
	return text + ". So it is after an unclean election, or where brokers came back with an older copy of their data. " + truncatedAdvice + thenRunAgain
}

const truncatedAdvice = "What is written there now, up to where it was read before, has offsets that are trained already, and is not trained. Training stands still, and nothing that was trained " +
	"is lost. " + truncatedWaysOut

// truncatedWaysOut are what helps where the end of a log was cut off, in the words of a job that runs and of one that is to.
const truncatedWaysOut = "Mend the brokers' data; or begin a new job (another checkpoint.dir), which trains all that the topic has; or, once more is written there than was trained (kale run refuses before), " +
	"set on_lost = \"skip\" in the stream block"

// lostWords say what stops partitions of which retention removed so many offsets.
func lostWords(offsets int64) string {
	return fmt.Sprintf("retention removed untrained offsets (%s when training stopped there, and more since); training stands still there until you accept the loss: first let the topic keep its records for "+
		"longer (retention.ms, retention.bytes), then set on_lost = \"skip\" in the stream block"+thenTakeUp, plan.Thousands(offsets))
}

// lasting parts what goes on from for how long it has, where a text ends so: "no broker has answered for 5s".
func lasting(text string) (what string, lasts time.Duration) {
	const word = " for "
	if i := strings.LastIndex(text, word); i >= 0 {
		if d, err := time.ParseDuration(text[i+len(word):]); err == nil {
			return text[:i], d
		}
	}
	return text, 0
}

// chiefProblems are the problems of a job's partitions, for people: partitions with the same one are named together, with the longest of their times, and what two
// workers met alike is told once.
func chiefProblems(ps []*rpc.PartitionProblem) []string {
	if recreated(ps) { // whatever else was wrong is of a log that is gone
		ps = slices.DeleteFunc(slices.Clone(ps), func(p *rpc.PartitionProblem) bool { return !ofAnotherLog(p) })
	}
	var out []string
	if cut := slices.DeleteFunc(slices.Clone(ps), func(p *rpc.PartitionProblem) bool { return !isTruncated(p) }); len(cut) > 0 {
		out = append(out, truncatedWords(cut))
		ps = slices.DeleteFunc(slices.Clone(ps), isTruncated)
	}
	out = append(out, haltedWords(ps)...)
	ps = slices.DeleteFunc(slices.Clone(ps), halts)
	with := map[string][]int32{} // partitions by what is wrong with them
	longest := map[string]time.Duration{}
	lost := map[int32]int64{} // offsets, by partition
	for _, p := range ps {
		if p.GetKind() == rpc.PartitionProblem_KIND_LOST {
			lost[p.GetPartition()] = max(lost[p.GetPartition()], p.GetLogStart()-p.GetNeeded())
		}
	}
	var offsets int64
	for _, n := range lost {
		offsets += n
	}
	for _, p := range ps {
		text := chiefProblem(p)
		if p.GetKind() == rpc.PartitionProblem_KIND_LOST {
			text = fmt.Sprintf("partition %d: %s", p.GetPartition(), lostWords(offsets))
		}
		what, alone := strings.CutPrefix(text, fmt.Sprintf("partition %d: ", p.GetPartition()))
		if !alone {
			what = text
		}
		what, lasts := lasting(what)
		longest[what] = max(longest[what], lasts)
		if _, told := with[what]; !told {
			out = append(out, what)
		}
		if alone {
			with[what] = append(with[what], p.GetPartition())
		} else if _, told := with[what]; !told {
			with[what] = nil
		}
	}
	for i, what := range out {
		if len(with[what]) > 0 {
			out[i] = numbered("partition", with[what]) + ": " + what
		}
		if d := longest[what]; d > 0 {
			out[i] += " for " + job.Length(d)
		}
	}
	return out
}

// numbered is "partition 3", "partitions 0–3, 6".
func numbered(what string, p []int32) string {
	slices.Sort(p)
	p = slices.Compact(p)
	if len(p) == 1 {
		return fmt.Sprintf("%s %d", what, p[0])
	}
	var parts []string
	for i := 0; i < len(p); {
		j := i
		for j+1 < len(p) && p[j+1] == p[j]+1 {
			j++
		}
		if part := strconv.Itoa(int(p[i])); j == i {
			parts = append(parts, part)
		} else {
			parts = append(parts, fmt.Sprintf("%s–%d", part, p[j]))
		}
		i = j + 1
	}
	return what + "s " + strings.Join(parts, ", ")
}
