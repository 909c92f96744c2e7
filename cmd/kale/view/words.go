package view

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

// Doing says what the workers do that the chief counts: they train or, where nothing is trained, are ready to.
func Doing(s core.Sample, paused bool) string {
	switch {
	case paused || s.Trained == nil || *s.Trained == 0:
		return "ready"
	case s.Running != nil && *s.Running == 1:
		return "trains"
	}
	return "train"
}

// Wanted says how many workers are wanted, or would be.
func Wanted(v *core.View) string {
	word := "wanted"
	if v.Mode == job.ModeObserve {
		word = "that it would have"
	}
	return fmt.Sprintf("%d %s (%d to %d)", v.Sample.Target, word, v.Min, v.Max)
}

// clean makes one line of text from elsewhere that cannot command the terminal.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r): // Cf turns the direction of writing, among others.
			return -1
		}
		return r
	}, ansi.Strip(s))
	return strings.ToValidUTF8(s, "�")
}

// fit cuts a line to a width.
func fit(s string, width int) string { return ansi.Truncate(s, max(width, 0), "…") }

// wrapped breaks text into at most n lines of a width; the last one tells that there is more.
func wrapped(s string, width, n int) []string {
	lines := strings.Split(ansi.Wrap(clean(s), max(width, 8), " "), "\n")
	if len(lines) > n {
		lines = lines[:n]
		lines[n-1] = fit(lines[n-1]+" …", width)
		if !strings.HasSuffix(lines[n-1], "…") {
			lines[n-1] += "…"
		}
	}
	return lines
}

// rate writes records per second: 3,412 below ten thousand, then 16.3k, 2.41M.
func rate(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "unknown"
	case a < 0.05:
		return "0"
	case a >= 999_500_000:
		return digits(v/1e9) + "G"
	case a >= 999_500:
		return digits(v/1e6) + "M"
	case a >= 9_999.5:
		return digits(v/1e3) + "k"
	case a >= 10 || a == math.Trunc(a):
		return plan.Thousands(uint64(math.Round(a)))
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// maybe writes a quantity that may not be known.
func maybe(v *float64, write func(float64) string) string {
	if v == nil {
		return "unknown"
	}
	return write(*v)
}

// perSecond writes a rate with its unit.
func perSecond(v float64) string { return rate(v) + "/s" }

// digits writes three significant digits.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func seconds(s float64) string {
	if math.IsNaN(s) || s > 9e9 || s < -9e9 {
		return "unknown"
	}
	return job.Length(time.Duration(s * float64(time.Second)))
}

// percent writes a share of 0 to 1.
func percent(share float64) string {
	if !(share >= 0 && share < 1e6) {
		return "unknown"
	}
	return strconv.FormatFloat(100*share, 'f', 0, 64) + " %"
}
