package core

import "testing"

// What shows at one look in one way and at the next in another has one cause behind it.
func TestBehind(t *testing.T) {
	for problem, want := range map[string]string{
		"the backend does not answer: connection refused":                         "the backend does not answer",
		"Kafka's end offsets are unknown: connection refused":                     "Kafka's end offsets are unknown",
		"what runs cannot be seen: list the jobs: Permission denied":              "what runs cannot be seen",
		"records that cannot be decoded stop partition 3, and nothing of that":    "partitions stand still at records that cannot be decoded",
		"retention has removed what is not trained of partition 1":                "retention is close to what is not trained, or beyond it",
		"worker-0-g1 has ended 2×: killed by signal 9":                            "",
		"ps-1-g1 has ended 1×: failed" + LogEnds + "what it printed of retention": "",
	} {
		if got := Behind(problem); got != want {
			t.Errorf("behind %q is %q, not %q", problem, got, want)
		}
	}
}
