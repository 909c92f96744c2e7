package core

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

// Where nothing is handed on, no policy may ask for more workers than there are partitions.
func TestNoMoreWorkersThanPartitionsWithoutForwarding(t *testing.T) {
	j := parseJob(t, strings.Replace(fmt.Sprintf(rigJob, "localhost:9092", rigTopic, job.ModeLive, t.TempDir()), "workers {", "workers {\n forward = \"none\"", 1))
	v := Sight{Partitions: 1, Limits: plan.Limits{Min: 1, Max: 5}}
	if l := v.Observation(j).Limits; l.Max != 1 || !strings.Contains(l.Why, "1 partition") {
		t.Errorf("the limits are %+v", l)
	}
	v.Partitions = 0 // not known
	if l := v.Observation(j).Limits; l.Max != 5 {
		t.Errorf("the limits are %+v", l)
	}
}
