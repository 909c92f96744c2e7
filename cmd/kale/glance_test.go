package main

import (
	"testing"

	"github.com/kale-sched/kale/core"
)

// What helps a stopped job that stands at something says what that is, which the line before it says only of a checkpoint that is gone.
func TestAdviceNamesWhatIsToBeMended(t *testing.T) {
	dir := t.TempDir()
	a := &app{getenv: func(string) string { return "" }, stateDir: dir}
	for says, want := range map[string]string{
		"everything that it ran was released; its model is in /ck":                    "the end of the topic's log was cut off; with that mended, as the problem below says, kale run -state-dir " + dir + " JOB.hcl takes it up again",
		"everything that it ran was released; the end of the topic's log was cut off": "with that mended, kale run -state-dir " + dir + " JOB.hcl takes it up again",
	} {
		g := &core.Glance{Job: "d", State: core.StateStopped, Says: says, Stuck: "the end of the topic's log was cut off"}
		if got := a.advice(g); got != want {
			t.Errorf("after %q it says %q, want %q", says, got, want)
		}
	}
}
