package job

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	durationUnits = `ms, s, m, h or d, as in "250ms", "90s", "20m", "1h30m", "7d"`
	sizeUnits     = `KiB, MiB, GiB, TiB (powers of 1024) or B, KB, MB, GB, TB (powers of 1000), as in "512MiB", "2GiB"`
)

var durationUnit = map[string]time.Duration{
	"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
}

var sizeUnit = map[string]float64{
	"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}

// ParseDuration reads a duration as job files write it: one or more numbers with the units ms, s, m, h or d ("1h30m",
// "0.5d"). A day is 24 hours. Unlike time.ParseDuration it takes no sign and names the units in its errors.
func ParseDuration(text string) (time.Duration, error) {
	rest, total := text, 0.0
	if rest == "" {
		return 0, fmt.Errorf("an empty string is not a duration: write a number with a unit (%s)", durationUnits)
	}
	for rest != "" {
		number, unit, after := quantity(rest)
		if number == "" {
			return 0, fmt.Errorf("%q is not a duration: write a number with a unit (%s)", text, durationUnits)
		}
		value, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration: %q is not a number", text, number)
		}
		if unit == "" {
			return 0, fmt.Errorf("%q has no unit: use %s", text, durationUnits)
		}
		scale, ok := durationUnit[unit]
		if !ok {
			return 0, fmt.Errorf("%q is not a unit of time: use %s", unit, durationUnits)
		}
		total += value * float64(scale)
		rest = after
	}
	if total >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is too long: the longest duration is 106751 days", text)
	}
	return time.Duration(math.Round(total)), nil
}

// ParseSize reads a size as job files write it: a number and one of B, KB, MB, GB, TB, KiB, MiB, GiB, TiB.
// The result is in bytes.
func ParseSize(text string) (int64, error) {
	number, unit, rest := quantity(text)
	value, err := strconv.ParseFloat(number, 64)
	switch {
	case number == "" || err != nil:
		return 0, fmt.Errorf("%q is not a size: write a number with a unit (%s)", text, sizeUnits)
	case unit == "":
		return 0, fmt.Errorf("%q has no unit: use %s", text, sizeUnits)
	case rest != "":
		return 0, fmt.Errorf("%q is not a size: %q is left over; write one number with one unit", text, rest)
	}
	scale, ok := sizeUnit[unit]
	if !ok {
		return 0, fmt.Errorf("%q is not a unit of size: use %s", unit, sizeUnits)
	}
	if value*scale >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is too large: the largest size is 8388607 TiB", text)
	}
	return int64(math.Round(value * scale)), nil
}

// FormatSize writes bytes as ParseSize reads them, in the largest unit of which there is one, with up to two decimals.
func FormatSize(n int64) string {
	for _, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if scale := int64(sizeUnit[unit]); n >= scale {
			return strconv.FormatFloat(math.Round(100*float64(n)/float64(scale))/100, 'f', -1, 64) + unit
		}
	}
	return fmt.Sprintf("%dB", n)
}

// quantity cuts a number, the unit after it, and the rest off text. Blanks around them are dropped.
func quantity(text string) (number, unit, rest string) {
	text = strings.TrimLeft(text, " ")
	digits := func(r rune) bool { return r != '.' && (r < '0' || r > '9') }
	end := strings.IndexFunc(text, digits)
	if end < 0 {
		end = len(text)
	}
	number, text = text[:end], strings.TrimLeft(text[end:], " ")
	end = strings.IndexFunc(text, func(r rune) bool { return r == '.' || r == ' ' || (r >= '0' && r <= '9') })
	if end < 0 {
		end = len(text)
	}
	return number, text[:end], strings.TrimLeft(text[end:], " ")
}

// FormatDuration writes a duration as job files do, with the largest units that say it exactly: each once, and a fraction in the last of them, such as 1m39.998s.
func FormatDuration(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	if d < 0 {
		return "-" + FormatDuration(-d)
	}
	var out strings.Builder
	for _, u := range []struct {
		name string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}} {
		if u.name == "d" && (d%u.size != 0 || d < 2*u.size) {
			continue // "24h" and "36h" read better than "1d" and "1d12h".
		}
		if n := d / u.size; n > 0 {
			fmt.Fprintf(&out, "%d%s", n, u.name)
			d -= n * u.size
		}
	}
	switch {
	case d >= time.Second:
		out.WriteString(strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s")
	case d > 0:
		out.WriteString(strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', -1, 64) + "ms")
	}
	return out.String()
}
