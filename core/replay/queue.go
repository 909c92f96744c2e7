package replay

// queue is the FIFO backlog of one run. It knows the age of every record: what has been served is a number of samples S, and the sample that is served at t is
// the one that arrived when A was S.
type queue struct {
	a      *arrivals
	t      float64 // now, s
	served float64 // S, samples
	head   int     // the bin in which sample S arrived
	lags   histogram
}

// backlog is the number of samples that wait.
func (q *queue) backlog() float64 { return max(q.a.at(q.t)-q.served, 0) }

// slack is the backlog that counts as none: rounding of sums of up to 1e12 samples.
const slack = 1e-3

// lag is the age of the oldest sample that waits, 0 without one, in s.
func (q *queue) lag() float64 {
	if q.backlog() <= slack {
		return 0
	}
	return max(q.t-q.arrived(), 0)
}

// arrived is when sample S arrived.
func (q *queue) arrived() float64 {
	for q.head < len(q.a.rate)-1 && q.a.cum[q.head+1] <= q.served {
		q.head++
	}
	return q.a.when(q.served, q.head)
}

// advance serves at up to rate samples/s until the moment to, and returns the share of that time for which the servers were busy, in s.
func (q *queue) advance(to, rate float64) (busy float64) {
	for q.t < to {
		i := q.a.bin(q.t)
		end := to
		if edge := float64(i+1) * q.a.step; edge > q.t && edge < end && i < len(q.a.rate)-1 {
			end = edge
		}
		lambda := q.a.rate[i]
		backlog := q.backlog()
		if backlog <= slack && rate >= lambda {
			q.lags.zero += lambda * (end - q.t)
			if rate > 0 {
				busy += (end - q.t) * lambda / rate
			}
			q.t = end
			q.served = q.a.at(end)
			continue
		}
		if rate > lambda {
			if empty := q.t + backlog/(rate-lambda); empty < end {
				end = empty
			}
		}
		if !(end > q.t) { // a moment too short to be told from now
			q.served = q.a.at(q.t)
			continue
		}
		busy += q.serve(end, rate)
	}
	return busy
}

// serve serves a backlog at rate until end, and notes the lags.
func (q *queue) serve(end, rate float64) (busy float64) {
	start := q.t
	if rate > 0 {
		busy = end - start
		todo := min(rate*(end-start), q.a.at(end)-q.served)
		for todo > slack {
			lag0 := max(q.t-q.arrived(), 0)
			n := q.alike(todo)
			q.t = min(q.t+n/rate, end)
			q.served += n
			q.lags.add(lag0, max(q.t-q.a.when(q.served, q.head), 0), n)
			todo -= n
		}
	}
	q.t = end
	return busy
}

// alike is how many of the next n samples came in the bin in which the next one did, so that their ages lie evenly.
func (q *queue) alike(n float64) float64 {
	if left := q.a.cum[q.head+1] - q.served; q.head < len(q.a.rate)-1 && left < n {
		return left
	}
	return n
}

// leave notes the samples that still wait, at the ages that they have now: they will be older when they are trained. The queue ends with it.
func (q *queue) leave() {
	for todo := q.backlog(); todo > slack; {
		oldest := max(q.t-q.arrived(), 0)
		n := q.alike(todo)
		q.served += n
		q.lags.add(oldest, max(q.t-q.a.when(q.served, q.head), 0), n)
		todo -= n
	}
}

// histogram counts samples by their lag, in bins of a second.
type histogram struct {
	zero float64 // trained as they came
	bins []float64
	max  float64 // s
}

// longestLag bounds the histogram: what is older counts as that old.
const longestLag = 48 * 3600

// add notes n samples whose lags lie evenly between a and b.
func (h *histogram) add(a, b, n float64) {
	if a > b {
		a, b = b, a
	}
	h.max = max(h.max, b)
	a, b = min(a, longestLag), min(b, longestLag)
	for len(h.bins) <= int(b) {
		h.bins = append(h.bins, 0)
	}
	i, j := int(a), int(b)
	if i == j {
		h.bins[i] += n
		return
	}
	per := n / (b - a)
	h.bins[i] += per * (float64(i+1) - a)
	for k := i + 1; k < j; k++ {
		h.bins[k] += per
	}
	h.bins[j] += per * (b - float64(j))
}

// total is the number of samples.
func (h *histogram) total() float64 {
	sum := h.zero
	for _, n := range h.bins {
		sum += n
	}
	return sum
}

// quantile is the lag in s that a share q of the samples did not exceed, exact to a second and interpolated within it.
func (h *histogram) quantile(q float64) float64 {
	want := q * h.total()
	if want <= h.zero {
		return 0
	}
	sum := h.zero
	for i, n := range h.bins {
		if n > 0 && sum+n >= want {
			return min(float64(i)+(want-sum)/n, h.max)
		}
		sum += n
	}
	return h.max
}

// merge adds the other's samples.
func (h *histogram) merge(o *histogram) {
	h.zero += o.zero
	h.max = max(h.max, o.max)
	for len(h.bins) < len(o.bins) {
		h.bins = append(h.bins, 0)
	}
	for i, n := range o.bins {
		h.bins[i] += n
	}
}

// mean is the mean of f over the samples, f being taken at the middle of each second.
func (h *histogram) mean(f func(seconds float64) float64) float64 {
	total := h.total()
	if total <= 0 {
		return f(0)
	}
	sum := h.zero * f(0)
	for i, n := range h.bins {
		if n > 0 {
			sum += n * f(float64(i)+0.5)
		}
	}
	return sum / total
}
