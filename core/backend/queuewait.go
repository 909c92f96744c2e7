package backend

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Wait is one workload's time in a cluster's queue.
type Wait struct {
	ID        ID
	Submitted time.Time // a wait without it says nothing
	Started   time.Time // when its process ran first; zero while it waits
}

// learnFrom is how many waits count, the newest. Each counts in full for waitsHold, since queues follow the hours of the day, and half as much after each
// further waitsHalve: what was true of a cluster last week is not.
const (
	learnFrom  = 32
	waitsHold  = 24 * time.Hour
	waitsHalve = 12 * time.Hour
)

// Faded is what a wait in a cluster's queue tells that was measured so long ago, where without it base would be assumed: the wait at first, and in the end base.
func Faded(wait, base, ago time.Duration) time.Duration {
	if ago <= waitsHold {
		return wait
	}
	return base + time.Duration(float64(wait-base)*math.Exp2(-(ago-waitsHold).Hours()/waitsHalve.Hours()))
}

// LearnQueueWait gives what Inventory.QueueWait says at the time now: the upper quartile of the newest waits, 0 when there
// are none. Workers' waits count and not those of others, as long as there are any: it is they that one more is asked for,
// and a server without a GPU gets its place at once. Who still waits has waited at least as long as until now, which may
// be longer than anybody before; as long as it is not, nothing is learnt from it.
func LearnQueueWait(now time.Time, waits []Wait) time.Duration {
	known := slices.DeleteFunc(slices.Clone(waits), func(w Wait) bool { return w.Submitted.IsZero() })
	if workers := slices.DeleteFunc(slices.Clone(known), func(w Wait) bool { return w.ID.Role != RoleWorker }); len(workers) > 0 {
		known = workers
	}
	slices.SortFunc(known, func(a, b Wait) int { return cmp.Or(b.Submitted.Compare(a.Submitted), a.ID.Compare(b.ID)) })
	known = known[:min(learnFrom, len(known))]
	var lengths []time.Duration
	for _, w := range known {
		if !w.Started.IsZero() {
			lengths = append(lengths, Faded(max(0, w.Started.Sub(w.Submitted)), 0, now.Sub(w.Started)))
		}
	}
	usual := upperQuartile(lengths)
	for _, w := range known {
		if w.Started.IsZero() {
			lengths = append(lengths, max(usual, now.Sub(w.Submitted)))
		}
	}
	return upperQuartile(lengths)
}

// upperQuartile gives the value that three quarters of them do not exceed; 0 for none.
func upperQuartile(lengths []time.Duration) time.Duration {
	if len(lengths) == 0 {
		return 0
	}
	slices.Sort(lengths)
	return lengths[(3*len(lengths)+3)/4-1]
}
