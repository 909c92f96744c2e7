package replay

import "math"

// chance draws numbers as a pure function of a seed, what they are for, and the minute: every policy that decides in the same minute meets the same outage.
type chance struct{ seed uint64 }

// What a draw is for.
const (
	drawOutage = iota + 1
	drawLead
	drawDrain
	drawLoss
	drawForecast
	drawNoise
	drawFleet
)

// uniform is a number in [0, 1).
func (c chance) uniform(what int, minute int64, index int) float64 {
	return float64(c.bits(what, minute, index)>>11) / (1 << 53)
}

// within is uniform between lo and hi.
func (c chance) within(lo, hi float64, what int, minute int64) float64 {
	return lo + (hi-lo)*c.uniform(what, minute, 0)
}

// normal is a standard normal number (Box–Muller).
func (c chance) normal(what int, minute int64) float64 {
	u := 1 - c.uniform(what, minute, 0) // not 0
	return math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*c.uniform(what, minute, 1))
}

// bits is splitmix64 (Steele, Lea and Flood, OOPSLA 2014) over the four numbers in turn.
func (c chance) bits(what int, minute int64, index int) uint64 {
	x := mix(c.seed + 0x9e3779b97f4a7c15)
	x = mix(x + uint64(what)*0x9e3779b97f4a7c15)
	x = mix(x + uint64(minute)*0x9e3779b97f4a7c15)
	return mix(x + uint64(index)*0x9e3779b97f4a7c15)
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
