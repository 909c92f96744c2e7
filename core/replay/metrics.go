package replay

import "math"

// tally is what a run adds up.
type tally struct {
	seconds  float64
	minutes  float64
	lagSum   float64 // minutes of lag, at the ends of minutes
	over     float64 // minutes
	held     float64 // worker-seconds
	busy     float64 // worker-seconds
	downtime float64 // s
	atMin    float64 // s
	rescales int
	refused  int
	lost     int
	lags     histogram
	maxLag   float64 // s, at the ends of minutes
	left     left    // of the end of each part
}

// minute notes the lag at the end of a minute, or of a share of one.
func (t *tally) minute(lag, share, maxLag float64) {
	t.minutes += share
	t.lagSum += lag / 60 * share
	if lag > maxLag {
		t.over += share
	}
	t.maxLag = max(t.maxLag, lag)
}

// Weights make one cost of a day: GPU-hours + Lag · accumulated lag in minutes + Violation · minutes in violation. What is left waiting at the end costs the same until
// it would have been trained: see [Metrics.LeftCost].
type Weights struct {
	Lag       float64 `json:"lag"`
	Violation float64 `json:"violation"`
}

// DefaultWeights are those of the reports.
func DefaultWeights() Weights { return Weights{Lag: 0.01, Violation: 1} }

// Metrics are a policy's figures. What adds up is per day.
type Metrics struct {
	ViolationPct      float64 `json:"violation_pct"`
	AccumulatedLagMin float64 `json:"accumulated_lag_min"`
	DowntimeMin       float64 `json:"downtime_min"`
	GPUHours          float64 `json:"gpu_hours"`
	Rescales          float64 `json:"rescales"`
	// RefusedRescales were wanted and not allowed.
	RefusedRescales float64 `json:"refused_rescales,omitempty"`
	// LagP50 to LagMax and AUCPct are of the records' lags; a record that still waits at the end, of what is replayed or of a stretch of it, has the age that it
	// has reached by then.
	LagP50 float64 `json:"lag_p50_s"`
	LagP99 float64 `json:"lag_p99_s"`
	LagMax float64 `json:"lag_max_s"`
	Cost   float64 `json:"cost"`
	// LeftCost is what of Cost is for the records that are left waiting at the end, of what is replayed or of a stretch of it: the GPU-hours, the lag and the minutes over
	// the objective until the workers that train most would have trained them, if no more arrived. No other figure has any of these.
	LeftCost        float64 `json:"left_cost,omitempty"`
	CostRatioOracle float64 `json:"cost_ratio_oracle"`
	// CostAboveFloor is the cost without the GPU-hours of workers.min, which nobody can save.
	CostAboveFloor            float64 `json:"cost_above_floor"`
	CostAboveFloorRatioOracle float64 `json:"cost_above_floor_ratio_oracle,omitempty"` // 0: the oracle has none
	AUCPct                    float64 `json:"auc_pct"`
	// GPUBusyPct is the share of the held GPU time in which something was trained, GPUAllocatedPct of what workers.max could hold.
	GPUBusyPct      float64 `json:"gpu_busy_pct"`
	GPUAllocatedPct float64 `json:"gpu_allocated_pct"`
	ShareAtMin      float64 `json:"share_at_min"`
	Money           float64 `json:"money,omitempty"`
}

// metrics turns a run's sums into figures a day.
func (t *tally) metrics(o *figuring) Metrics {
	days := t.seconds / day.Seconds()
	m := Metrics{
		ViolationPct: 100 * t.over / t.minutes, AccumulatedLagMin: t.lagSum / days, DowntimeMin: t.downtime / 60 / days,
		GPUHours: t.held * o.gpus / 3600 / days, Rescales: float64(t.rescales) / days, RefusedRescales: float64(t.refused) / days,
		LagP50: t.lags.quantile(0.5), LagP99: t.lags.quantile(0.99), LagMax: max(t.lags.max, t.maxLag),
		AUCPct: 100 * t.lags.mean(aucAt) / aucAt(0), ShareAtMin: t.atMin / t.seconds,
	}
	if t.held > 0 {
		m.GPUBusyPct = 100 * t.busy / t.held
	}
	m.GPUAllocatedPct = 100 * t.held / (float64(o.max) * t.seconds)
	m.LeftCost = t.left.cost(o.weights, o.gpus) / days
	m.Cost = m.GPUHours + o.weights.Lag*m.AccumulatedLagMin + o.weights.Violation*t.over/days + m.LeftCost
	m.CostAboveFloor = m.Cost - float64(o.min)*o.gpus*24
	m.Money = o.price * m.GPUHours
	return m
}

// figuring is what figures depend on besides the run.
type figuring struct {
	weights  Weights
	min, max int
	gpus     float64 // of a worker
	price    float64 // of a GPU-hour
}

// aucLag and aucCTR are the published AUC of a click model whose training lags by so many minutes (Kale §2.2, read off the figure).
var (
	aucLag = [...]float64{0, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120}
	aucCTR = [...]float64{.7791, .7785, .7766, .7740, .7719, .7709, .7680, .7672, .7634, .7583, .7550, .7471, .7406, .7349}
)

// aucAt is the AUC at a lag in s, on straight lines between the published points, and the last beyond them.
func aucAt(lag float64) float64 {
	minutes := lag / 60
	for i := 1; i < len(aucLag); i++ {
		if minutes < aucLag[i] {
			share := (minutes - aucLag[i-1]) / (aucLag[i] - aucLag[i-1])
			return aucCTR[i-1]*(1-share) + aucCTR[i]*share
		}
	}
	return aucCTR[len(aucCTR)-1]
}

// fields are the figures of which means are taken.
func (m *Metrics) fields() []*float64 {
	return []*float64{
		&m.ViolationPct, &m.AccumulatedLagMin, &m.DowntimeMin, &m.GPUHours, &m.Rescales, &m.RefusedRescales, &m.LagP50, &m.LagP99, &m.LagMax, &m.Cost,
		&m.CostAboveFloor, &m.AUCPct, &m.GPUBusyPct, &m.GPUAllocatedPct, &m.ShareAtMin, &m.Money, &m.CostRatioOracle, &m.CostAboveFloorRatioOracle, &m.LeftCost,
	}
}

// summary is the mean over the seeds, and the half width of its 95 % interval (Student's t).
func summary(all []Metrics) (mean, half Metrics) {
	n := float64(len(all))
	means, halves := mean.fields(), half.fields()
	for k := range means {
		sum, squares := 0.0, 0.0
		for i := range all {
			sum += *all[i].fields()[k]
		}
		*means[k] = sum / n
		for i := range all {
			d := *all[i].fields()[k] - *means[k]
			squares += d * d
		}
		if n > 1 {
			*halves[k] = student95(len(all)-1) * math.Sqrt(squares/(n-1)/n)
		}
	}
	return mean, half
}

// student95 is the 97.5 % quantile of Student's t, by Cornish and Fisher's expansion (Abramowitz and Stegun 26.7.5); within 1 % from 4 degrees of freedom on.
func student95(df int) float64 {
	switch df {
	case 1:
		return 12.706
	case 2:
		return 4.303
	case 3:
		return 3.182
	}
	const z = 1.959964
	n := float64(df)
	z3, z5, z7 := z*z*z, z*z*z*z*z, z*z*z*z*z*z*z
	return z + (z3+z)/(4*n) + (5*z5+16*z3+3*z)/(96*n*n) + (3*z7+19*z5+17*z3-15*z)/(384*n*n*n)
}
