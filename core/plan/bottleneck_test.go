package plan

import (
	"math"
	"strings"
	"testing"
	"time"
)

// skewed is a job at the demo's time scale of which one partition gets most records: workers of 600 records/s by F, decided every second, a trusted and
// flat forecast. What is trained of the hot partition has a limit of its own.
type skewed struct {
	o       Observation
	all     func(sec int) float64 // arrivals, records/s
	share   float64               // of the hot partition
	limit   func(w int) float64   // of the hot partition, records/s
	total   func(w int) float64   // of all
	backlog float64               // of the hot partition
	rest    float64
	sec     int
	ready   []int // when each worker trains
	hot     []float64
	trained []float64
	changes int
	last    Decision
	noHelp  string
}

func newSkewed() *skewed {
	j := &skewed{share: 0.91, o: Observation{
		Interval: time.Second, Servers: 2, Target: 4, Model: estimatorPerWorker(600), JoinTime: Measured{Value: 600 * time.Millisecond, Samples: 3},
		Limits: Limits{Min: 1, Max: 6}, Rho: 1, Tau: 3 * time.Second, CooldownOut: time.Second, CooldownIn: 6 * time.Second, Headroom: 0.2, MaxLag: 2 * time.Second,
		Partitions: 8,
	}}
	j.ready = []int{-9, -9, -9, -9}
	j.total = func(w int) float64 { return 600 * float64(w) }
	return j
}

func tail(v []float64, n int) (mean float64) {
	v = v[max(0, len(v)-n):]
	for _, x := range v {
		mean += x / float64(len(v))
	}
	return mean
}

// run lets a policy decide for so many seconds.
func (j *skewed) run(p Policy, seconds int) {
	for range seconds {
		o := &j.o
		o.Now = noon.Add(time.Duration(j.sec) * time.Second)
		running := training(j.ready, j.sec)
		rates := make(Values, 8)
		for i := range rates {
			rates[i] = j.all(max(j.sec-8+i, 0))
		}
		arriving := j.all(j.sec)
		o.Rates = Series{Start: o.Now.Add(-8 * time.Second), Step: time.Second, Values: rates}
		o.Forecast = Forecast{At: o.Now, Step: time.Second, Mean: flat(1900, 30), Source: "seasonal", Trusted: true}
		hot := math.Min(j.backlog+j.share*arriving, math.Min(j.limit(running), j.share*j.total(running)))
		rest := math.Min(j.rest+(1-j.share)*arriving, j.total(running)-hot)
		j.backlog += j.share*arriving - hot
		j.rest += (1-j.share)*arriving - rest
		j.hot, j.trained = append(j.hot, hot), append(j.trained, hot+rest)
		waiting := 0.4*hot + j.backlog
		seconds := math.Max(waiting/math.Max(hot, 1), 0.4+j.rest/math.Max(rest, 1))
		o.LagKnown, o.Lag = true, time.Duration(1e9*seconds).Round(time.Millisecond)
		o.BacklogRecords = int64(waiting + j.rest)
		o.Flow = Flow{Known: true, Trained: tail(j.trained, 4), Busy: 1}
		o.Hottest = Hottest{Known: true, Partition: 3, Arriving: j.share * arriving, Trained: tail(j.hot, 4), Waiting: int64(waiting), Window: 4 * time.Second, Advice: "raise workers.queue"}
		o.Workers = Workers{Running: running, Pending: len(j.ready) - running}
		d := p.Decide(*o)
		if d.Target != d.Current {
			j.changes++
		}
		for len(j.ready) < d.Target {
			j.ready = append(j.ready, j.sec+1)
		}
		j.ready = j.ready[:d.Target]
		if d.NoHelp != "" {
			j.noHelp = d.NoHelp
		}
		o.Target, o.State, j.last = d.Target, d.State, d
		j.sec++
	}
}

// One partition gets about as much as can be trained of it with any number of workers, so that the lag is now over its threshold and now below it. Workers
// that were added in vain are not added again and again: what was seen is said, and more are tried ever more rarely.
func TestMoreWorkersDoNotHelp(t *testing.T) {
	j := newSkewed()
	j.limit = func(int) float64 { return 1750 }
	j.all = func(sec int) float64 { return 1900 + 190*math.Sin(2*math.Pi*float64(sec)/24) }
	j.run(policy(t, "kale"), 810)
	t.Logf("%d changes; at last: %s", j.changes, j.last.Reason)
	if j.changes > 16 {
		t.Errorf("%d changes in 13.5 minutes", j.changes)
	}
	for _, want := range []string{"more workers do not help", "partition 3 alone gets 1,", "raise workers.queue"} {
		if !strings.Contains(j.noHelp, want) {
			t.Errorf("%q does not say %q", j.noHelp, want)
		}
	}
}

// Workers that train less than F says, of which F is not taught as they wait for records now and then: those that the lag has brought stay, and are not let
// go and called again.
func TestWorkersThatSufficeStay(t *testing.T) {
	j := newSkewed()
	j.total = func(w int) float64 { return 450 * float64(w) }
	j.limit = j.total
	j.all = func(sec int) float64 { return 1900 + 40*math.Sin(2*math.Pi*float64(sec)/24) }
	j.run(policy(t, "kale"), 810)
	t.Logf("%d changes; at last: %s", j.changes, j.last.Reason)
	if j.changes > 16 {
		t.Errorf("%d changes in 13.5 minutes", j.changes)
	}
	if j.noHelp != "" {
		t.Errorf("more workers helped, and it says %q", j.noHelp)
	}
}

// One partition gets far more than one worker trains, and nothing is handed on: that is seen without a trial too, as the others idle, and also where all
// workers that are allowed are there already. It is tried again when the traffic has changed, and forgotten when more is trained.
func TestOnePartitionIsBehind(t *testing.T) {
	j := newSkewed()
	most := 600.0
	j.limit = func(int) float64 { return most }
	j.all = func(int) float64 { return 1900 }
	j.o.Limits.Max = 4
	j.run(policy(t, "kale"), 30)
	for _, want := range []string{"more workers do not help: partition 3 alone gets 1,729 records/s, of which 600 records/s are trained, while 4 workers could train more", "raise workers.queue"} {
		if !strings.Contains(j.last.NoHelp, want) || !strings.Contains(j.last.Reason, want) {
			t.Errorf("%q and %q do not say %q", j.last.NoHelp, j.last.Reason, want)
		}
	}
	if j.last.Kind != KindHold || j.changes > 0 || strings.Contains(j.last.Reason, "are allowed") {
		t.Errorf("%s after %d changes: %s", j.last.Kind, j.changes, j.last.Reason)
	}
	j.o.Limits.Max = 8 // more are not even tried
	if j.run(policy(t, "kale"), 10); j.changes > 0 {
		t.Errorf("%d changes: %s", j.changes, j.last.Reason)
	}
	j.o.Partitions = 16 // something has changed
	if j.run(policy(t, "kale"), 3); j.changes == 0 {
		t.Errorf("with other partitions: %s", j.last.Reason)
	}
	most = 1e9
	j.run(policy(t, "kale"), 150)
	if j.last.NoHelp != "" || j.last.Target != 4 {
		t.Errorf("when it has caught up, at %d: %q, %s", j.last.Target, j.last.NoHelp, j.last.Reason)
	}
}

// The reader of a partition goes from one to the next of its partitions, so that what is trained of the one that is behind differs from window to window, and was
// little in the first: that is no reason to believe anything else.
func TestOnePartitionIsTrainedUnevenly(t *testing.T) {
	j := newSkewed()
	series := []float64{352, 565, 591, 364, 472, 594, 574, 565, 591}
	j.limit = func(int) float64 { return series[j.sec/4%len(series)] }
	j.all = func(int) float64 { return 1900 }
	j.o.Limits.Max = 4
	said, first := false, ""
	for range 600 {
		j.run(policy(t, "kale"), 1)
		switch now := j.last.NoHelp != ""; {
		case now && first == "":
			said, first = true, j.last.NoHelp
		case said && !now:
			t.Fatalf("after %d s nothing is said any more: %s", j.sec, j.last.Reason)
		}
	}
	if !strings.Contains(first, "of which 4") && !strings.Contains(first, "of which 5") {
		t.Errorf("it says %q; want the mean of several windows, not the least", first)
	}
	series = []float64{1200} // now far more is trained of it
	j.run(policy(t, "kale"), 90)
	if j.last.NoHelp != "" {
		t.Errorf("when far more is trained it still says %q", j.last.NoHelp)
	}
}
