package plan

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Part is what a term is made of: the parts of a term add up to its value.
type Part struct {
	Name  string `json:"name"`
	Value Number `json:"value"` // in the term's unit
}

// unitHours is the unit of costs.
const unitHours = "GPU-h"

// mostDecimals bounds the digits of a cost: a difference that is less is none.
const mostDecimals = 9

// decimals is how many decimals show three digits of a value.
func decimals(v float64) int {
	if v = math.Abs(v); !finite(v) || v < math.Pow10(-mostDecimals)/2 {
		return 0
	}
	return min(max(2-int(math.Floor(math.Log10(v))), 0), mostDecimals)
}

// formatHours writes GPU-hours with three digits.
func formatHours(v float64) string {
	if v == math.Trunc(v) || math.Abs(v) >= 100 {
		return formatNumber(v)
	}
	return strconv.FormatFloat(v, 'f', decimals(v), 64)
}

// partsText writes the parts of a value with as many decimals as the value is written with, so that they add up to what is written of it.
func partsText(value float64, parts []Part) string {
	largest := 0.0
	for _, p := range parts {
		if largest = max(largest, math.Abs(float64(p.Value))); !finite(largest) {
			return ""
		}
	}
	digits := decimals(value)
	if digits == 0 && math.Abs(value) < 100 { // a value of nothing
		digits = decimals(largest)
	}
	counts, signed := shared(value, digits, parts)
	var out []string
	for i, n := range counts {
		if n == 0 {
			continue
		}
		v := strconv.FormatFloat(n/math.Pow10(digits), 'f', digits, 64)
		if digits == 0 {
			v = formatNumber(n)
		}
		if signed && n > 0 {
			v = "+" + v
		}
		out = append(out, parts[i].Name+" "+v)
	}
	return strings.Join(out, ", ")
}

// shared rounds parts to so many decimals, in units of the last one, such that they add up to the value as it is rounded: all are rounded down, and what is
// missing goes to those that lost most. signed tells whether one is negative.
func shared(value float64, digits int, parts []Part) (counts []float64, signed bool) {
	unit := math.Pow10(digits)
	counts = make([]float64, len(parts))
	order, missing := make([]int, len(parts)), math.Round(value*unit)
	lost := func(i int) float64 { return float64(parts[i].Value)*unit - counts[i] }
	for i, p := range parts {
		order[i], counts[i] = i, math.Floor(float64(p.Value)*unit)
		missing -= counts[i]
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(lost(b), lost(a)) })
	for _, i := range order {
		if missing < 0.5 {
			break
		}
		counts[i]++
		missing--
	}
	return counts, slices.ContainsFunc(counts, func(n float64) bool { return n < 0 })
}
