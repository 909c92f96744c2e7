package plan

import "time"

// Stabilise is Algorithm 1 of Kale §3.4: it removes the short plateaus of a plan,
// so that a brief swing of traffic causes no rescale.
//
// plan[i] is the number of workers during step i, each step long. The walk goes
// once from left to right. Where |R[i] − R[i+1]| ≥ rho, it takes the run of
// equal values that starts at i+1. If that run lasts less than tau, it is set to
// the larger of R[i] and the first value after the run, or to R[i] where the run
// is the tail of the plan. Later steps of the walk see the changed values.
//
// The result has the length of plan, which is not changed; its first value is
// always plan[0]. rho below 1 counts as 1. The paper's defaults are rho = 1
// worker and tau = 10 min; with 10-min steps and tau = 15 min, [4 4 5 6 6 6]
// becomes [4 4 6 6 6 6].
//
// It is as published, flaw included: a spike shorter than tau is cut down to its
// neighbours, so the job is short of workers for its duration. And one pass
// is not always a fixed point, since a run that was raised may itself be short.
func Stabilise(plan []int, rho int, step, tau time.Duration) []int {
	r := append([]int(nil), plan...)
	rho = max(rho, 1)
	for i := 0; i+1 < len(r); i++ {
		if abs(r[i]-r[i+1]) < rho {
			continue
		}
		end := i + 2 // one past the run that starts at i+1
		for end < len(r) && r[end] == r[i+1] {
			end++
		}
		if lasts(end-(i+1), step) >= tau {
			continue
		}
		v := r[i]
		if end < len(r) {
			v = max(v, r[end])
		}
		for k := i + 1; k < end; k++ {
			r[k] = v
		}
	}
	return r
}

// lasts is n steps, or the longest duration where that would overflow.
func lasts(n int, step time.Duration) time.Duration {
	const longest = time.Duration(1<<63 - 1)
	if step > 0 && time.Duration(n) > longest/step {
		return longest
	}
	return time.Duration(n) * step
}

func abs(v int) int {
	if v < 0 {
		return -v
	}
	return v
}
