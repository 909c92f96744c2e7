package audit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/trainer"
	"github.com/kale-sched/kale/trainer/checkpoint"
	"github.com/kale-sched/kale/trainer/spans"
)

// Verdict is what an audit comes to.
type Verdict string

const (
	// Exact: every record of the log was counted once, by every tablet, as far as they have got.
	Exact Verdict = "exact"
	// NotExact: some record was lost or repeated, or the log has other records under offsets that were trained.
	NotExact Verdict = "not exact"
	// Unknown: nothing was seen to be wrong, and not all of it could be held against the log.
	Unknown Verdict = "unknown"
)

// Proof is what a job has trained, held against the log: up to where its snapshots are.
type Proof struct {
	Job     string  `json:"job"`
	Topic   string  `json:"topic"`
	Verdict Verdict `json:"verdict"`
	// Mismatch is the first that does not agree.
	Mismatch string `json:"mismatch,omitempty"`
	Tablets  int    `json:"tablets"`
	// Mismatched are the tablets that do not agree, with the log or with each other, or have no snapshot.
	Mismatched []int32 `json:"mismatched_tablets,omitempty"`
	// Lacking are the tablets whose snapshots do not have all records of the log yet, the one that lacks most first: figures are those of the worst.
	Lacking []Lacking `json:"lacking_tablets,omitempty"`
	// Oldest and Newest are when the snapshots were written.
	Oldest time.Time `json:"oldest_snapshot"`
	Newest time.Time `json:"newest_snapshot"`
	// Skipped are newer snapshots that cannot be read.
	Skipped []string `json:"damaged_snapshots,omitempty"`
	// Compacted: the topic is compacted, or was, so that its log may lack records in its middle.
	Compacted  bool        `json:"compacted,omitempty"`
	Total      Figures     `json:"total"`
	Partitions []Partition `json:"partitions"`
}

// Lacking is a tablet whose snapshot does not have all records of the log yet.
type Lacking struct {
	Tablet  int32 `json:"tablet"`
	Records int64 `json:"records"`
}

// Partition is what was trained of one, by the tablet of which it is least good: what is missing or repeated there, else what is trained least.
type Partition struct {
	Partition int32 `json:"partition"`
	// From and To are the offset from which on the job trains, and the first one that is not trained everywhere.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Beyond are the offsets above To that are trained already, and in the figures.
	Beyond int64 `json:"offsets_beyond,omitempty"`
	// Undecodable: the record at To cannot be decoded, so that the partition stands still there until the job file says what becomes of such.
	Undecodable bool `json:"undecodable,omitempty"`
	// Cuts are where the end of the log was cut off below what is trained.
	Cuts []checkpoint.CutOff `json:"cut_off,omitempty"`
	Figures
}

// Figures are what was trained, and what the log says to it.
type Figures struct {
	// InLog are the records that the log holds of the offsets that are trained.
	InLog   int64 `json:"log_records"`
	Trained int64 `json:"trained_records"`
	// Dead could not be decoded: they are in the dead-letter topic, or were skipped.
	Dead int64 `json:"dead_records"`
	// LostOffsets were removed by retention before they were trained, and given up.
	LostOffsets int64 `json:"lost_offsets"`
	Missing     int64 `json:"missing_records"`
	Repeated    int64 `json:"repeated_records"`
	// Removed offsets were trained, and the log does not have them any more.
	Removed int64 `json:"removed_offsets"`
	// CutOff of them were trained before the end of the log was cut off below them.
	CutOff int64 `json:"cut_off_offsets,omitempty"`
	// Replaced are the records that the log has at such offsets now: they were never trained, and never will be.
	Replaced int64 `json:"replaced_records,omitempty"`
	// Unproven of them are in partitions where fewer records were counted than offsets are gone, or where it is not known which offsets were given up.
	Unproven int64 `json:"unproven_offsets"`
	// Uncounted of them were counted as no record: whether they were any is not known.
	Uncounted int64 `json:"uncounted_offsets,omitempty"`
	// Compacted were counted, and the log does not have them: it is compacted, or was.
	Compacted int64 `json:"compacted_records,omitempty"`
	// Waiting are the records of the log that are not trained yet, as the snapshots have it.
	Waiting int64 `json:"waiting_records"`
	// Gone are offsets beyond what the snapshots have that the log does not have any more: they were trained since, or will never be.
	Gone int64 `json:"gone_offsets,omitempty"`
}

// Examine holds what a job has trained against the log. progress, unless nil, is told how many of the log's offsets are read.
func Examine(ctx context.Context, s Stores, progress func(done, all int64)) (Proof, error) {
	c, err := compared(ctx, s, progress)
	if err != nil {
		return Proof{}, fmt.Errorf("audit job %q: %w", s.Spec.GetJob(), err)
	}
	out := c.proof()
	if err := out.decode(ctx, s); err != nil {
		return Proof{}, fmt.Errorf("audit job %q: %w", out.Job, err)
	}
	return out, nil
}

// decode looks at the record at which each partition's training is, where there is one.
func (p *Proof) decode(ctx context.Context, s Stores) error {
	features := s.Spec.GetFeatures()
	if features == nil {
		return nil
	}
	dec, err := trainer.NewDecoder(features)
	if err != nil {
		return err
	}
	from, to := map[int32]int64{}, map[int32]int64{}
	for _, x := range p.Partitions {
		if x.Waiting > 0 && x.Gone == 0 {
			from[x.Partition], to[x.Partition] = x.To, x.To+1
		}
	}
	return stream.Scan(ctx, s.Kafka, p.Topic, from, to, func(r *kgo.Record) error {
		i := slices.IndexFunc(p.Partitions, func(x Partition) bool { return x.Partition == r.Partition })
		p.Partitions[i].Undecodable = dec.Decode(r.Value, &trainer.Example{}) != nil
		return nil
	})
}

func (c *comparison) proof() Proof {
	out := Proof{
		Job: c.job.Job, Topic: c.job.Topic, Verdict: Exact, Mismatch: c.mismatch, Tablets: c.job.Tablets,
		Oldest: c.ledgers.Oldest, Newest: c.ledgers.Newest, Partitions: []Partition{}, Compacted: c.compacted,
	}
	for _, err := range c.ledgers.Skipped {
		out.Skipped = append(out.Skipped, err.Error())
	}
	out.Mismatched = slices.Sorted(maps.Keys(c.mismatched))
	out.Lacking = c.lacking()
	var all cell
	for _, p := range slices.Sorted(maps.Keys(c.starts)) {
		worst, to := c.cells[0][p], c.cells[0][p].applied.Watermark(c.starts[p])
		for _, row := range c.cells[1:] {
			if x := row[p]; x.worse(worst) > 0 {
				worst = x
			}
			to = min(to, row[p].applied.Watermark(c.starts[p]))
		}
		beyond := spans.Subtract(worst.applied, spans.Of(spans.Span{Begin: c.starts[p], End: to})).Size()
		out.Partitions = append(out.Partitions, Partition{Partition: p, From: c.starts[p], To: to, Beyond: beyond, Cuts: c.cutsIn(p, worst.applied), Figures: worst.figures()})
		all.add(worst)
	}
	out.Total = all.figures()
	switch {
	case out.Mismatch != "", out.Total.Replaced > 0:
		out.Verdict = NotExact
	case out.Total.Compacted > 0, out.Total.Unproven > 0, out.Total.Gone > 0, out.Total.CutOff > 0:
		out.Verdict = Unknown
	}
	return out
}

// cutsIn are the places where the end of the log was cut off below some offsets of a set.
func (c *comparison) cutsIn(p int32, applied *spans.Set) (out []checkpoint.CutOff) {
	for _, cut := range c.cutOff[p] {
		if spans.Intersect(applied, spans.Of(spans.Span{Begin: cut.At, End: cut.ReadTo})).Size() > 0 {
			out = append(out, cut)
		}
	}
	return out
}

// lacking are the tablets that do not have all records of the log, the one that lacks most first.
func (c *comparison) lacking() (out []Lacking) {
	for i, t := range c.ledgers.Sums {
		var all cell
		for _, x := range c.cells[i] {
			all.add(x)
		}
		if all.waiting > 0 {
			out = append(out, Lacking{t.GetTablet(), all.waiting})
		}
	}
	slices.SortStableFunc(out, func(a, b Lacking) int { return cmp.Compare(b.Records, a.Records) })
	return out
}

// worse orders cells of one partition.
func (x cell) worse(y cell) int {
	return cmp.Or(cmp.Compare(x.missing+x.repeated, y.missing+y.repeated), cmp.Compare(x.unproven, y.unproven), cmp.Compare(x.gone, y.gone), cmp.Compare(y.trained, x.trained))
}

func (x cell) figures() Figures {
	return Figures{
		InLog: x.inLog, Trained: x.trained, Dead: x.dead, LostOffsets: x.lostOffsets, Missing: x.missing, Repeated: x.repeated, Removed: x.removed, Unproven: x.unproven, Uncounted: x.uncounted, Waiting: x.waiting, Gone: x.gone,
		CutOff: x.cutOff, Replaced: x.replaced, Compacted: x.compacted,
	}
}
