package plan

// leg is the time from one step to a later one, for one candidate: the workers train
// after an outage, or all the time.
type leg struct {
	from, to, worker int
	gpu              float64 // GPU-hours, whatever the lag
	outage, trains   float64 // s; together as long as the leg
	flows            [classes]flow
}

// flow is how the backlog of a class goes over a leg.
type flow struct {
	more float64 // records more that wait at its end
	come float64 // records to be trained, besides those at its begin, before nothing waits
	done float64 // records that could be trained
}

// follow is the cost of a leg and what follows, for each class and lag at its begin:
// after has the values that it comes to. Between the lags of two moments the cost rate
// goes in a line; where nothing waits before the end, for its share of the time.
func (p *program) follow(l *leg, after, out *costs) {
	var fixed, begin, end [lags]float64 // GPU-hours: for certain, by the lag at the begin, and by that at the end
	half := 0.5 * l.trains
	rate := p.lagAt(l.from, l.worker).rate
	for b, rate := range rate {
		fixed[b], begin[b] = l.gpu, half*rate
	}
	if l.outage > 0 {
		for b, peak := range p.lagAt(l.from, l.worker).peak {
			fixed[b], begin[b] = l.gpu+0.5*l.outage*(rate[b]+peak), half*peak
		}
	}
	for k, rate := range p.lagAt(l.to, l.worker).rate {
		end[k] = half * rate
	}
	now, next, rise := p.held[l.from], p.held[l.to], p.rise[l.to]
	for c, flow := range l.flows {
		ev, row, b := after[c], &out[c], 0
		for per := 1 / flow.done; b < lags && now[b]+flow.more <= 0; b++ {
			row[b] = fixed[b] + begin[b]*(now[b]+flow.come)*per + ev[0]
		}
		for k := 0; b < lags; b++ {
			left := now[b] + flow.more
			for k < lags-2 && left > next[k+1] {
				k++
			}
			value := ev[k] + end[k]
			row[b] = fixed[b] + begin[b] + value + (left-next[k])*rise[k]*(ev[k+1]+end[k+1]-value)
		}
	}
}

// keep is the cost of candidate w from step j to m, and what follows: gpu is what it
// costs itself, change by how many records each class's backlog grows, and after the
// values that it comes to.
func (p *program) keep(j, m, w int, gpu float64, change *[classes]float64, after, out *costs) {
	l := leg{from: j, to: m, worker: w, gpu: gpu, trains: p.v.at[m] - p.v.at[j]}
	for c, more := range change {
		l.flows[c] = flow{more: more, done: max(-more, 1e-9)}
	}
	p.follow(&l, after, out)
}

// change gives the cost from step j on of a change with an outage to a candidate, that
// lands at m in the values after.
func (p *program) change(j, m int, after []costs) func(w int, out *costs) {
	span, come := p.v.at[m]-p.v.at[j], p.v.arrivals(j, m)
	l := leg{from: j, to: m, outage: p.outage, trains: max(span-p.outage, 0)}
	return func(w int, out *costs) {
		l.worker, l.gpu = w, float64(p.workers[w])*span/3600+p.price
		done := p.f[w] * l.trains
		for c, come := range come {
			l.flows[c] = flow{more: come - done, come: come, done: max(done, 1)}
		}
		p.follow(&l, &after[w], out)
	}
}

// arrivals is how many records arrive from step j to step m in each class.
func (v *view) arrivals(j, m int) (sum [classes]float64) {
	for i := j; i < m; i++ {
		load, length := v.load[i], v.at[i+1]-v.at[i]
		for c := range sum {
			sum[c] += load[c] * length
		}
	}
	return sum
}
