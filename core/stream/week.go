package stream

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Hourly means of the arrival rate, in samples/s, read off the paper's figure (Kale §4.4, [fig] in our notes).
var (
	weekdayHours = [24]float64{44e3, 47e3, 82e3, 134e3, 135e3, 126e3, 131e3, 145e3, 172e3, 214e3, 185e3, 163e3,
		167e3, 184e3, 210e3, 228e3, 253e3, 270e3, 268e3, 261e3, 208e3, 124e3, 70e3, 47e3}
	fridayHours = [24]float64{39e3, 46e3, 83e3, 137e3, 142e3, 133e3, 141e3, 156e3, 181e3, 220e3, 195e3, 175e3,
		185e3, 215e3, 250e3, 265e3, 266e3, 266e3, 267e3, 264e3, 249e3, 184e3, 112e3, 68e3}
	weekendHours = [24]float64{47e3, 49e3, 86e3, 144e3, 189e3, 205e3, 219e3, 234e3, 250e3, 265e3, 257e3, 246e3,
		246e3, 253e3, 264e3, 264e3, 265e3, 266e3, 265e3, 262e3, 246e3, 182e3, 116e3, 76e3}
)

// The noise on top of the hourly means: an Ornstein-Uhlenbeck process on the logarithm of the rate. Its deviation and
// its memory were fitted here so that the relative change within 10 minutes has the published p95 of 9.5 % and p99 of
// 12.5 % (TestSyntheticWeekChanges measures them).
const (
	weekNoise  = 0.018
	weekMemory = 25 * time.Minute
)

// SyntheticWeek is a week from Monday 00:00 UTC in bins of one minute, in the shape that the paper published: its
// weekday, Friday and weekend hours, joined smoothly, with noise. The same seed gives
// the same week. Rates are samples/s as published (37k to 270k); scale them down with [Curve.ScaleTo].
func SyntheticWeek(seed uint64) Curve { return SyntheticWeeks(seed, 1) }

// SyntheticWeeks is n such weeks, one after another, through which the noise runs on.
func SyntheticWeeks(seed uint64, n int) Curve {
	var hours []float64
	for day := range 7 {
		switch day {
		case 4:
			hours = append(hours, fridayHours[:]...)
		case 5, 6:
			hours = append(hours, weekendHours[:]...)
		default:
			hours = append(hours, weekdayHours[:]...)
		}
	}
	knots := weekKnots(hours)
	c := Curve{Start: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC), Step: time.Minute, Rates: make([]float64, 0, n*len(hours)*perHour)}
	rng := rand.New(rand.NewPCG(seed, 0x6b616c65))
	keep := math.Exp(-float64(c.Step) / float64(weekMemory))
	x := weekNoise * rng.NormFloat64()
	for h := range n * len(hours) {
		for m := range perHour {
			c.Rates = append(c.Rates, between(knots, h%len(hours), m)*math.Exp(x-weekNoise*weekNoise/2))
			x = keep*x + weekNoise*math.Sqrt(1-keep*keep)*rng.NormFloat64()
		}
	}
	return c
}

const perHour = 60 // bins

// weekKnots are the rates at the middle of each hour for between: the hourly means, corrected by half of what their hours
// would lack. Half keeps every hour near its published mean (within 8 % with the noise) without steepening the ramps beyond the published
// changes within 10 minutes.
func weekKnots(hours []float64) []float64 {
	knots := slices.Clone(hours)
	for h, want := range hours {
		sum := 0.0
		for m := range perHour {
			sum += between(hours, h, m)
		}
		knots[h] *= math.Sqrt(want / (sum / perHour))
	}
	return knots
}

// between is the rate in minute m of hour h: on a straight line in the logarithm between the middles of two hours, so
// that a rise or fall is at a constant relative pace. The week repeats.
func between(knots []float64, h, m int) float64 {
	n := len(knots)
	u := (float64(m)+0.5)/perHour - 0.5
	other := (h + 1) % n
	if u < 0 {
		u, other = -u, (h+n-1)%n
	}
	return knots[h] * math.Pow(knots[other]/knots[h], u)
}
