package replay

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A sweep tries the paper's setting, or the default, whatever the grid holds.
func TestSweepTriesThePapersSetting(t *testing.T) {
	j := reference(t)
	for _, r := range contestants {
		if len(r.Grid) == 0 {
			continue
		}
		p := r.published()
		for _, a := range r.Grid {
			if _, set := p.Params[a.Name]; !set {
				t.Errorf("%s: the paper's setting as a point lacks %s", r.Policy, a.Name)
			}
		}
		a, one, err := p.apply(j, PaperRestart())
		b, two, err2 := PaperSetting(r.Policy).apply(j, PaperRestart())
		if err := errors.Join(err, err2); err != nil || a.Autoscale.Tau != b.Autoscale.Tau || a.Autoscale.Rho != b.Autoscale.Rho || !reflect.DeepEqual(one, two) {
			t.Errorf("%s: %v is not the paper's setting, %v (%v)", r.Policy, p, PaperSetting(r.Policy), err)
		}
	}
	c := week(t, 1, Options{World: LiveRescale(), Seeds: 1, Policies: []string{"static"}})
	best, err := c.search(t.Context(), Contestant{Policy: "static", Grid: []Axis{{Name: "workers", Values: []float64{2, 3}, Min: 2, Max: 3}}})
	if err != nil || !maps.Equal(best.Params, map[string]float64{"workers": 0}) {
		t.Errorf("of 2 and 3 workers, which never suffice, and the default of all: %v (%v)", best, err)
	}
}

// A best setting that is dearer on the days that are measured than another row of its policy is marked, in text and page.
func TestDearerBestIsTold(t *testing.T) {
	// On the first day 3 workers are just enough, so that no margin is best; on the second a burst leaves a backlog that none works off.
	day1, day2 := flat(47_900, 1440), concat(flat(600_000, 60), flat(63_900, 1380))
	c := compare(t, reference(t), minutely(concat(day1, day2)...), CourseOptions{Days: 2}, Options{World: LiveRescale(), Seeds: 1, Forecaster: PerfectForecast, Policies: []string{"static", "follow"}})
	r, err := c.Run(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	at := func(setting string) *Row {
		return &r.Policies[slices.IndexFunc(r.Policies, func(p Row) bool { return p.Name == "follow" && p.Setting == setting })]
	}
	paper, best := at(LabelPaper), at(LabelBest)
	if best.Params["margin"] != 0 || best.Cost < paper.Cost+1 {
		t.Fatalf("%v costs %v and the paper's setting %v: the trace shows nothing", best.Params, best.Cost, paper.Cost)
	}
	var text, page bytes.Buffer
	if err := errors.Join(WriteText(&text, r), WriteHTML(&page, r, "")); err != nil {
		t.Fatal(err)
	}
	note := fmt.Sprintf("on other days, costs more here than another row of the same policy: follow (best %.1f, paper setting %.1f). Hold other policies against the cheaper row.", best.Cost, paper.Cost)
	for name, form := range map[string]string{"text": text.String(), "page": html.UnescapeString(page.String())} {
		for _, want := range []string{note, `margin=0; dearer here than its row "paper setting"`, "Best setting (the cheapest of each policy's grid on the 1 day before)"} {
			if !strings.Contains(form, want) {
				t.Errorf("the %s lacks %q", name, want)
			}
		}
	}
	if p := r.cheapestRival(); p.Cost > paper.Cost {
		t.Errorf("the cheapest rival is %s, %s, at %v", p.Name, p.Setting, p.Cost)
	}
	// In the digits of the tables it must be dearer.
	if best.Cost = paper.Cost + 0.001; fmt.Sprintf("%.1f", best.Cost) == fmt.Sprintf("%.1f", paper.Cost) && r.dearer() != "" {
		t.Error(r.dearer())
	}
	if best.Cost = paper.Cost - 1; r.dearer() != "" {
		t.Error(r.dearer())
	}
}
