package e2e_test

import (
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/core/stream/kafkatest"
)

// emulatedTypes is a pool of emulated GPUs of two types: what is emulated is told by the types' names, and a step of a job on the slow ones takes twice as long.
const emulatedTypes = `
pool "main" {
  patience = "12s"

  type "emulated-fast" {
    gpus = 3
  }
  type "emulated-slow" {
    gpus = 5
  }
  job "ads" {
    type     = "emulated-fast"
    priority = 10
  }
  job "ctr" {
    type = "emulated-fast"
  }
  job "feed" {
    type   = "emulated-slow"
    weight = 2
  }
  job "log" {
    type = "emulated-slow"
  }
}
`

// Four jobs share a pool of two types, each of which is divided apart. Of the fast ones the job of priority gets busy and has what the other's guarantee leaves;
// the other has one of them by drain for a turn, and gives it back. Of the slow ones weights decide, and the fast ones' turns change nothing there. Each record
// of each job is trained once.
func TestJobsShareAPoolOfTwoTypes(t *testing.T) {
	t.Parallel()
	kafka := kafkatest.Embedded(t)
	var jobs []*rig
	for i, name := range []string{"ctr", "ads", "feed", "log"} {
		o := options{name: name, topic: name, policy: job.PolicyStatic, min: 1, max: 3, step: 160 * time.Millisecond}
		if i > 0 {
			o.with = jobs[0]
		}
		if name == "ads" {
			o.policy = "follow"
		}
		if i > 1 {
			o.max, o.step = 5, 320*time.Millisecond
		}
		jobs = append(jobs, newRig(t, kafka, o))
	}
	jobs[0].pool(emulatedTypes)
	var steady []*traffic
	for _, r := range jobs {
		steady = append(steady, r.steadyTraffic(100)) // one worker of any job trains more
	}
	jobs[0].run()
	fast, slow := poolWatch{jobs: jobs[:2], most: 3}, poolWatch{jobs: jobs[2:], most: 5}
	fast.await("ads has one of the fast ones, and lends ctr the others", 2, 1)
	busy := jobs[1].steadyTraffic(600) // a fast one trains 400 in all
	fast.await("ads has two of the fast ones, and ctr its guarantee", 1, 2)
	slow.await("feed has three of the slow ones by its weight, and log two", 3, 2)
	fast.await("ctr has its turn", 2, 1)
	fast.await("and ads has it back", 1, 2)
	slow.await("nothing has changed among the slow ones", 3, 2)
	jobs[1].endTraffic(busy)
	for i, r := range jobs {
		r.endTraffic(steady[i])
	}
	(&poolWatch{jobs: jobs}).end(500)

	for i, want := range []string{"emulated-fast", "emulated-fast", "emulated-slow", "emulated-slow"} {
		turns := 0
		for _, d := range records[*core.Record](jobs[i], state.Decisions) {
			if d.Pool == nil || d.Pool.Type != want {
				t.Fatalf("%s decided with %+v, and not on %s", jobs[i].name(), d.Pool, want)
			}
			if d.Pool.OnTurn {
				turns++
			}
		}
		if waits := jobs[i].name() == "ctr"; waits && turns == 0 {
			t.Error("ctr had no turn")
		} else if i > 1 && turns > 0 { // by weights alone they have more than their guarantees
			t.Errorf("%s decided in a turn of its own", jobs[i].name())
		}
	}
}
