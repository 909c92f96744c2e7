package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Number is a float64 that JSON can carry: a value that is not finite becomes
// null, and null becomes NaN.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	if !finite(float64(n)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *Number) UnmarshalJSON(b []byte) error {
	if bytes.Equal(b, []byte("null")) {
		*n = Number(math.NaN())
		return nil
	}
	return json.Unmarshal(b, (*float64)(n))
}

// Values is a row of float64 that JSON can carry: what is not finite becomes
// null, and null becomes NaN.
type Values []float64

// MarshalJSON implements json.Marshaler.
func (v Values) MarshalJSON() ([]byte, error) {
	if v == nil {
		return []byte("null"), nil
	}
	ns := make([]Number, len(v))
	for i, x := range v {
		ns[i] = Number(x)
	}
	return json.Marshal(ns)
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *Values) UnmarshalJSON(b []byte) error {
	if bytes.Equal(b, []byte("null")) {
		*v = nil
		return nil
	}
	// Pointers tell null from a number; json leaves an element alone on null.
	var ps []*float64
	if err := json.Unmarshal(b, &ps); err != nil {
		return err
	}
	out := make(Values, len(ps))
	for i, p := range ps {
		out[i] = math.NaN()
		if p != nil {
			out[i] = *p
		}
	}
	*v = out
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// formatNumber writes a number for people: grouped thousands, at most three
// significant decimals.
func formatNumber(x float64) string {
	switch {
	case math.IsNaN(x):
		return "unknown"
	case math.IsInf(x, 0) || math.Abs(x) >= 1e15:
		return strconv.FormatFloat(x, 'g', 4, 64)
	case math.Abs(x) >= 100 || x == math.Trunc(x):
		return group(strconv.FormatFloat(x, 'f', 0, 64))
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// Thousands writes a whole number with its thousands set apart: 12,345.
func Thousands[T ~int | ~int64 | ~uint64](n T) string { return group(fmt.Sprint(n)) }

// group sets the thousands apart in the digits of a whole number.
func group(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// formatDuration writes a duration without its zero units: 10m, 1h30m, 1.67s.
func formatDuration(d time.Duration) string {
	switch {
	case d >= time.Minute:
		d = d.Round(time.Second)
	case d >= 10*time.Second:
		d = d.Round(100 * time.Millisecond)
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(time.Millisecond)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func formatRate(x float64) string { return formatNumber(x) + " records/s" }
