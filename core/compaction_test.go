package core

import (
	"slices"
	"testing"
	"time"
)

// Rule 15: a topic that is switched to compaction under a job is a problem as long as it lasts, whether or not its configuration can be read meanwhile, and of a job that has
// stopped too; it is remembered for who holds the log against what was trained.
func TestRule15CompactionUnderAJobIsTold(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	looked := func(told bool) {
		t.Helper()
		r.s.topicKeptAt = time.Time{} // its time has come
		r.beats(2)
		if got := r.s.View().Problems; slices.Contains(got, compactedWords) != told {
			t.Errorf("problems %q", got)
		}
	}
	looked(false)
	r.configure(map[string]string{"cleanup.policy": "compact,delete"})
	looked(true)
	r.s.topicKept.CleanupPolicy = "" // it could not be read
	r.beat()
	if got := r.s.View().Problems; !slices.Contains(got, compactedWords) {
		t.Errorf("while it cannot be read: problems %q", got)
	}
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	if g, err := GlanceAt(t.Context(), r.state, "ctr", nil); err != nil || !slices.Contains(g.Problems, compactedLast) {
		t.Errorf("without a scheduler: %+v, %v", g, err)
	}
	r.open("run")
	r.beat()
	r.order("stop", 0)
	r.stops()
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	g, err := GlanceAt(t.Context(), r.state, "ctr", nil)
	if err != nil || g.State != StateStopped || g.Stuck != topicCompacted || !slices.Contains(g.Problems, compactedLast) {
		t.Errorf("when it has stopped: %+v, %v", g, err)
	}
	if g.Compaction(true); g.Stuck != topicCompacted || !slices.Equal(g.Problems, []string{compactedWords}) {
		t.Errorf("when it has stopped, as the brokers say: %+v", g)
	}
	if g.Compaction(false); g.Stuck != "" || len(g.Problems) > 0 {
		t.Errorf("when it has stopped, and the policy is back: %+v", g)
	}
	r.configure(map[string]string{"cleanup.policy": "delete"})
	r.open("run")
	r.beats(2)
	looked(false)
	if want := Wanted(*r.s.want); want.Compacted || !want.WasCompacted() {
		t.Errorf("compacted %v, and at some time %v", want.Compacted, want.WasCompacted())
	}
}
