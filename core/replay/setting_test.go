package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"html"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

// named is the reference job with another policy and what its params block sets.
func named(t *testing.T, policy string, params map[string]float64) *job.Job {
	t.Helper()
	j := reference(t)
	j.Autoscale.Policy, j.Autoscale.Params = policy, params
	return j
}

// The row "as in the job" has the params of the job; the paper's, the default's and that of any other policy have not.
func TestTheJobsParams(t *testing.T) {
	type row struct {
		Setting string
		AsInJob bool
		Params  map[string]float64
	}
	for name, tt := range map[string]struct {
		policy   string
		params   map[string]float64
		compared string
		want     []row
	}{
		"beside the paper's": {"hpa", map[string]float64{"target": 0.3}, "hpa", []row{{LabelPaper, false, map[string]float64{"demand": 1}}, {LabelDefault, true, map[string]float64{"target": 0.3}}}},
		"no params":          {"hpa", nil, "hpa", []row{{LabelPaper, false, map[string]float64{"demand": 1}}, {LabelDefault, true, map[string]float64{}}}},
		"beside the default": {"cost", map[string]float64{"rescale": 500}, "cost", []row{{LabelDefault, true, map[string]float64{"rescale": 500}}, {LabelDefault, false, map[string]float64{}}}},
		"the default":        {"cost", nil, "cost", []row{{LabelDefault, true, map[string]float64{}}}},
		"another policy's":   {"cost", map[string]float64{"rescale": 500}, "madu", []row{{LabelPaper, false, map[string]float64{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []row
			for _, s := range settings(tt.compared, named(t, tt.policy, tt.params)) {
				r := outcome{setting: s, by: []Metrics{{}}}.row(nil)
				got = append(got, row{r.Setting, r.AsInJob, r.Params})
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What the job sets is replayed: so many workers, and not the most; and nothing else is: neither the paper's setting of its policy nor what a sweep finds.
func TestTheJobsParamsAreReplayed(t *testing.T) {
	run := func(policy string, params map[string]float64) *Report {
		o := Options{World: PaperRestart(), Seeds: 1, Forecaster: PerfectForecast, Policies: []string{"static", "follow"}}
		r, err := compare(t, named(t, policy, params), SyntheticWeek(1), CourseOptions{Days: 1}, o).Run(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	others := func(r *Report) (out []Row) {
		for _, p := range r.Policies {
			if p.trail = nil; !p.AsInJob {
				out = append(out, p)
			}
		}
		return out
	}
	plain := run("kale", nil)
	for _, tt := range []struct {
		policy   string
		params   map[string]float64
		gpuHours float64
	}{{"static", map[string]float64{"workers": 17}, 17 * 24}, {"static", nil, 28 * 24}, {"follow", map[string]float64{"margin": 10, "guard": 0}, 28 * 24}} {
		r := run(tt.policy, tt.params)
		i := slices.IndexFunc(r.Policies, func(p Row) bool { return p.AsInJob })
		if i < 0 || r.title(r.Policies[i]) != tt.policy+" as in the job" || !near(r.Policies[i].GPUHours, tt.gpuHours, 0.02) || !maps.Equal(r.Policies[i].Params, tt.params) {
			t.Errorf("%s with %v: want %g GPU-hours as in the job; the rows are %+v", tt.policy, tt.params, tt.gpuHours, r.Policies)
		}
		if diff := cmp.Diff(others(plain), others(r), cmp.AllowUnexported(Row{})); diff != "" {
			t.Errorf("%s with %v: other rows changed:\n%s", tt.policy, tt.params, diff)
		}
	}
}

// No policy has a parameter that a setting takes for the job's own number.
func TestParamsAreNotNumbersOfTheJob(t *testing.T) {
	for _, info := range plan.Policies() {
		for _, p := range info.Params {
			if _, taken := jobNumbers[p.Name]; taken {
				t.Errorf("%s of %s is the job's, too", p.Name, info.Name)
			}
		}
	}
}

// The first sentence is of the job's own row, and says where its policy's defaults would have cost less.
func TestHeadlineOfTheJobsParams(t *testing.T) {
	row := func(name, setting string, asInJob bool, cost float64) Row {
		return Row{Name: name, Setting: setting, AsInJob: asInJob, Metrics: Metrics{Cost: cost, GPUHours: cost}}
	}
	for _, tt := range []struct {
		rows      []Row
		says, not string
	}{
		{[]Row{row("cost", LabelDefault, true, 100), row("cost", LabelDefault, false, 80)}, `"cost" would have held 100 GPU-hours`, "zzz"},
		{[]Row{row("cost", LabelDefault, true, 100), row("cost", LabelDefault, false, 80)}, `; by "cost" with its defaults it would have cost 20 % less.`, "zzz"},
		{[]Row{row("cost", LabelDefault, false, 80), row("cost", LabelDefault, true, 70)}, `"cost" would have held 70 GPU-hours`, "less."},
		// Of the paper's setting nothing is said, and it hides nothing.
		{[]Row{row("kale", LabelPaper, false, 60), row("kale", LabelDefault, true, 100), row("cost", LabelDefault, false, 90)}, `; by "cost" it would have cost 10 % less.`, "defaults"},
	} {
		r := Report{MaxLag: 1200, Days: 1, Max: 28, Policies: tt.rows, gpus: 1, course: &Course{}, policy: tt.rows[0].Name}
		if got := r.Headline(); !strings.Contains(got, tt.says) || strings.Contains(got, tt.not) {
			t.Errorf("%+v: %s", tt.rows, got)
		}
	}
}

// Rivals run without Kale's guard, and all forms of the report say so; with Kale's own policies alone none does, nor with a fixed number of workers.
func TestRivalsWithoutGuardAreTold(t *testing.T) {
	const note = "Rivals run as published, without Kale's guard (guard = 0)"
	for name, tt := range map[string]struct {
		job      string // its policy
		policies []string
		want     []string // rows that run without the guard
		told     bool
	}{
		"rivals":     {"hpa", []string{"static", "hpa", "kale", "cost", "follow"}, []string{"static", "hpa", "follow"}, true},
		"Kale alone": {"cost", []string{"kale", "cost"}, nil, false},
		"no scaling": {"cost", []string{"static"}, []string{"static"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := compare(t, named(t, tt.job, nil), minutely(flat(50_000, 120)...), CourseOptions{}, Options{World: LiveRescale(), Seeds: 1, Policies: tt.policies, Forecaster: PerfectForecast})
			r, err := c.Run(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			var text, page, raw bytes.Buffer
			if err := errors.Join(WriteText(&text, r), WriteHTML(&page, r, ""), WriteJSON(&raw, r)); err != nil {
				t.Fatal(err)
			}
			for form, got := range map[string]string{"text": text.String(), "page": html.UnescapeString(page.String())} {
				if strings.Contains(got, note) != tt.told {
					t.Errorf("the %s says it: %v, want %v:\n%s", form, !tt.told, tt.told, text.String())
				}
			}
			var program struct {
				Policies []struct {
					Name    string             `json:"name"`
					AsInJob bool               `json:"as_in_job"`
					Fixed   map[string]float64 `json:"fixed"`
				} `json:"policies"`
			}
			if err := json.Unmarshal(raw.Bytes(), &program); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range program.Policies {
				if guard, set := p.Fixed["guard"]; set && guard == 0 {
					if got = append(got, p.Name); p.AsInJob {
						t.Errorf("%s as in the job has no guard", p.Name)
					}
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("JSON: (-want +got):\n%s", diff)
			}
		})
	}
}
