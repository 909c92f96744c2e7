package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kale-sched/kale/core/plan"
)

// NoForecaster stands for a forecaster where none could make a forecast.
const NoForecaster = "none"

// Maker is a forecaster, and what share of the forecasts it made.
type Maker struct {
	By    string  `json:"by"` // its name, or NoForecaster
	Share float64 `json:"share"`
	// Why says why these were not made by the forecaster that is named, for most of them; "": they were.
	Why string `json:"why,omitempty"`

	n, of int
	named string
	whys  int // how many reasons there were
}

// makers says who made the forecasts of the course, whoever made most first.
func (c *Comparison) makers() []Maker {
	type reason struct {
		text string // of the first such forecast
		n    int
	}
	type of struct {
		Maker
		whys map[string]*reason
	}
	known := map[string]*of{}
	total := 0
	for k, outlook := range c.outlooks {
		var last *packed
		bins := len(c.course.Parts[k].History.Values) - c.course.Parts[k].First
		for _, p := range outlook[:min(bins, len(outlook))] {
			if p == last || p.named == "" {
				continue
			}
			last = p
			total++
			by := p.band.Source
			if by == "" {
				by = NoForecaster
			}
			m := known[by]
			if m == nil {
				m = &of{Maker: Maker{By: by, named: p.named}, whys: map[string]*reason{}}
				known[by] = m
			}
			m.n++
			if p.why == "" {
				continue
			}
			kind := withoutFigures(p.why)
			if m.whys[kind] == nil {
				m.whys[kind] = &reason{text: p.why}
			}
			m.whys[kind].n++
		}
	}
	var out []Maker
	for _, m := range known {
		m.of, m.Share, m.Maker.whys = total, float64(m.n)/float64(total), len(m.whys)
		most := 0
		for _, r := range m.whys {
			if r.n > most || r.n == most && r.text < m.Why {
				most, m.Why = r.n, r.text
			}
		}
		out = append(out, m.Maker)
	}
	slices.SortFunc(out, func(a, b Maker) int { return cmp.Or(b.n-a.n, strings.Compare(a.By, b.By)) })
	return out
}

// withoutFigures is a reason without its numbers: those of two forecasts differ, and what is the matter is the same.
func withoutFigures(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r == '.' {
			return -1
		}
		return r
	}, text)
}

// makersWords says, for people, of the forecasts that were not made by the forecaster that is named who made them, and why.
func makersWords(makers []Maker) (lines []string) {
	for _, m := range makers {
		if m.Why == "" {
			continue
		}
		made := "made by " + m.By + " instead of " + m.named
		if m.By == NoForecaster {
			made = "made by none"
		}
		why := m.Why
		if m.whys > 1 {
			why = "for the most part because " + why
		}
		lines = append(lines, fmt.Sprintf("Of the forecasts, %s of %s were %s: %s.", plan.Thousands(int64(m.n)), plan.Thousands(int64(m.of)), made, strings.TrimSuffix(why, ".")))
	}
	return lines
}
