package replay

import (
	"context"
	"math"
)

// solve fills the programme, and returns the least cost of the part in GPU-hours (workers' GPUs), lag and violation, and the workers to begin with. It looks at ctx for
// every number of workers in every minute, since with many of them a minute takes long; once that has ended, what it returns is of no use, nor is what is played by it.
//
// Where there may be many workers it first considers few, which tells how many may be worth their cost at all, and then these. What it finds is the schedule of all: few
// are the least workers with which nothing that arrives is left at the end of its minute, so that from no backlog nobody is better off with more, V(t, w, 0) >= V(t, few, 0)
// for w > few; and V grows with age. A rescale to w > few then costs at least what w workers cost until the outage is over, the lag meanwhile, and V(t, few, 0); it is
// worth that only where the best rescale to fewer costs more (see [oracle.worthAt]). Where no more are than were considered, all decide as these do.
func (o *oracle) solve(ctx context.Context) (cost float64, first int) {
	all := o.hi
	if o.few = o.clearing(); o.few == 0 || o.few*manyMore > all {
		o.few = 0
		return o.fill(ctx)
	}
	for o.hi = 2 * o.few; ; o.hi = min(o.worth, all) {
		cost, first = o.fill(ctx)
		if o.hi == all || o.worth <= o.hi || ctx.Err() != nil {
			return cost, first
		}
	}
}

// manyMore is how many times the few workers there must be for solve to begin with few.
const manyMore = 16

// clearing is the least number of workers with which nothing that arrives is left at the end of its minute; 0: there is none.
func (o *oracle) clearing() int {
	most := 0.0
	for t := range o.s.minutes {
		most = max(most, o.s.arrived[(t+1)*o.s.m]-o.s.arrived[t*o.s.m])
	}
	for w := o.lo; w <= o.hi; w++ {
		if o.c.capacity[w]*60 > most*(1+1e-9) {
			return w
		}
	}
	return 0
}

// worthAt is the largest number of workers that a rescale at the end of minute t may be worth, from any age: jump is what the best costs of those that were considered,
// fixed what each costs besides its workers, waiting the lag of its n minutes. 0: that is not made use of.
func (o *oracle) worthAt(t, n int, fixed float64, waiting, jump []float64) (w int) {
	if o.few == 0 {
		return 0
	}
	each, least := o.c.fig.gpus*float64(n)/60, fixed+o.row(t+n, o.few)[0]
	for i, waits := range waiting {
		w = max(w, int(min((jump[i]-least-waits)/each*(1+1e-9), math.MaxInt32)))
	}
	return w
}
