package core

import (
	"cmp"
	"slices"
	"strings"
)

// Compaction removes records from the middle of a log. Offsets go on behind what it removed as they do behind a transaction's control records, so that whoever reads takes
// the hole for one of those (EXACTLY_ONCE rule 15): a record that was removed before it was trained is never trained, and no count shows it. A job is not begun on such a
// topic; nothing holds one that runs when its topic is switched to it, so that this is told as long as it lasts.

const (
	topicCompacted = "the topic is compacted"
	compactedWords = topicCompacted + " (cleanup.policy): compaction removes records from the middle of the log, of which those that were not trained yet never will be, and nothing counts them; set cleanup.policy back to delete"
	// compactedLast is the same without a scheduler.
	compactedLast = "when its scheduler looked last, " + compactedWords
)

// noteCompaction takes down whether the topic is compacted, as its configuration said last, and says whether that is news. Where it could not be read, nothing is.
func (s *Scheduler) noteCompaction() (changed bool) {
	if s.topicKept == nil || s.topicKept.CleanupPolicy == "" {
		return false
	}
	now := s.topicKept.Compacted()
	if now == s.want.Compacted {
		return false
	}
	s.want.Compacted, s.want.CompactedOnce = now, s.want.CompactedOnce || now
	return true
}

// WasCompacted says that the job's topic was compacted at some time while a scheduler looked: its log may lack records that were trained, in its middle.
func (w *Wanted) WasCompacted() bool { return w != nil && w.CompactedOnce }

// Compaction takes in whether the topic of a job that has stopped is compacted, as the brokers say now: since its scheduler looked last that may have been changed.
func (g *Glance) Compaction(compacted bool) {
	if g.Stuck == topicCompacted {
		g.Stuck = ""
	}
	g.Problems = slices.DeleteFunc(slices.Clone(g.Problems), func(p string) bool { return strings.HasSuffix(p, compactedWords) })
	if compacted {
		g.Stuck = cmp.Or(g.Stuck, topicCompacted)
		g.Problems = append(g.Problems, compactedWords)
	}
}
