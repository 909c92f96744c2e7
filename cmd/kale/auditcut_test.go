package main

import (
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/cmd/kale/audit"
	kept "github.com/kale-sched/kale/trainer/checkpoint"
)

// Where the end of the log was cut off, an audit says so, where it was, and what was never trained: also when by their offsets all records were trained.
func TestAnAuditSaysWhereTheLogWasCutOff(t *testing.T) {
	at := func(p int32, x audit.Figures, cut, read int64) audit.Partition {
		return audit.Partition{Partition: p, To: read, Cuts: []kept.CutOff{{Partition: p, At: cut, ReadTo: read, Seen: time.Now()}}, Figures: x}
	}
	for name, c := range map[string]struct {
		verdict  audit.Verdict
		total    audit.Figures
		mismatch string
		says     []string
		err      string
	}{
		"grown since": {audit.NotExact, audit.Figures{InLog: 24579, Trained: 24837, Removed: 258, CutOff: 258, Replaced: 258}, "",
			[]string{"not exact: the end of the log was cut off, partition 0 at offset 11,668 (read up to 11,796, seen ", "258 offsets were trained before that, and of what the log has there now 258 records were never trained. By offset alone all is exact",
				"REMOVED: the log has 258 offsets no more"},
			`job "d" is not exact: of the log 258 records were never trained`},
		"and more is wrong": {audit.NotExact, audit.Figures{InLog: 24579, Trained: 24837, Removed: 258, CutOff: 258, Replaced: 1, Missing: 3}, "tablet 3, partition 0: …",
			[]string{"not exact: the end of the log was cut off", "1 record was never trained"}, `job "d" is not exact: 3 records missing`},
		"not grown": {audit.Unknown, audit.Figures{InLog: 23525, Trained: 23783, Removed: 258, CutOff: 258}, "",
			[]string{"unknown: the end of the log was cut off, partition 0 at offset 11,668"}, `job "d" cannot be checked whole: the end of the log was cut off below 258 offsets`},
	} {
		p := audited{Proof: audit.Proof{Job: "d", Verdict: c.verdict, Mismatch: c.mismatch, Total: c.total, Tablets: 64,
			Partitions: []audit.Partition{at(0, c.total, 11668, 11796), at(1, audit.Figures{}, 11857, 11987)}}}
		text := p.text(0)
		for _, want := range c.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", name, want, text)
			}
		}
		if strings.Contains(text, "exact: every tablet") || strings.Contains(text, "By offset alone") != (name == "grown since") {
			t.Errorf("%s: it says\n%s", name, text)
		}
		if err := p.verdict(); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: the error is %v, want %q", name, err, c.err)
		}
	}
}
