package core

import (
	"fmt"

	"github.com/kale-sched/kale/core/rpc"
)

const (
	// absenceWindow is how many records must have been decoded before it is judged anew which fields they lack.
	absenceWindow = 1000
	// absenceShare of them must lack a field for that to be worth an operator's time: such a field is a constant, and teaches nothing.
	absenceShare = 0.99
)

// absence watches in how many of the newest records each field of the job's features is absent: a field that is misspelt, or that producers
// no longer write, is trained as a constant, and nothing else would show it.
type absence struct {
	decoded uint64   // by the chief's totals, when the window began
	absent  []uint64 // likewise
	lacking []string // of the last whole window, for people
}

// add takes in the chief's totals; sparse and dense are the job's fields. Totals that went back are another chief's: the window begins anew.
func (a *absence) add(t *rpc.WorkerMetrics, sparse, dense []string) {
	n, absent := t.GetDecodedRecords(), t.GetAbsent()
	if n < a.decoded || len(absent) < len(a.absent) {
		a.decoded, a.absent = n, absent
		return
	}
	window := n - a.decoded
	if window < absenceWindow || len(absent) != len(sparse)+len(dense) {
		return
	}
	a.lacking = nil
	for i, total := range absent {
		before := uint64(0)
		if i < len(a.absent) {
			before = a.absent[i]
		}
		if total < before || float64(total-before) < absenceShare*float64(window) {
			continue
		}
		list, names, place := "sparse", sparse, i
		if i >= len(sparse) {
			list, names, place = "dense", dense, i-len(sparse)
		}
		a.lacking = append(a.lacking, fmt.Sprintf("the field %q (features.%s) is absent from nearly all records, so that the model learns nothing from it: "+
			"is its name right, and do producers still write it?", names[place], list))
	}
	a.decoded, a.absent = n, absent
}
