package profile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kale-sched/kale/estimator"
)

// Version is that of a stored [Profile].
const Version = 1

// Profile is what was measured of a job, and the model of it. It marshals to JSON.
type Profile struct {
	Version int       `json:"version"`
	Job     string    `json:"job"`
	At      time.Time `json:"at"`
	// Conditions are what the figures hold for: what of the job file they depend on, by its path.
	Conditions map[string]string `json:"conditions"`
	// Emulated says that the accelerators were.
	Emulated bool    `json:"emulated_accelerator,omitempty"`
	Points   []Point `json:"points"`
	// Model is the throughput model that was chosen, Trials what the others were worth; none where there were too few points to choose by.
	Model  estimator.Model   `json:"model"`
	Trials []estimator.Trial `json:"trials,omitempty"`
	// ThetaErrors are the standard errors of the model's theta, in their unit.
	ThetaErrors []float64 `json:"theta_errors,omitempty"`
	// Noise is the relative standard deviation of one interval; Misfit by how much more than that the form is off.
	Noise  float64 `json:"noise"`
	Misfit float64 `json:"misfit"`
}

// New makes a profile of points. batch is M, 0 where the job has none.
func New(job string, at time.Time, points []Point, batch float64, conditions map[string]string) (*Profile, error) {
	p := &Profile{Version: Version, Job: job, At: at.UTC().Truncate(time.Second), Conditions: conditions, Points: points}
	var err error
	if p.Model, p.Trials, err = fit(samples(points), batch); err != nil {
		return nil, fmt.Errorf("fit a throughput model to %d points: %w", len(points), err)
	}
	sure := estimator.Assess(p.Model, samples(points))
	p.ThetaErrors, p.Noise, p.Misfit = sure.ThetaErrors(), round(sure.Noise(), 4), round(sure.Misfit(), 4)
	return p, nil
}

// Validate reports why a stored profile cannot be used.
func (p *Profile) Validate() error {
	if p.Version != Version {
		return fmt.Errorf("it is of version %d, and this program knows %d", p.Version, Version)
	}
	return p.Model.Validate()
}

// Changed names what of the job file the figures depend on and is no longer as it was measured, as "workers.cpu (1, now 2)".
func (p *Profile) Changed(now map[string]string) []string {
	var out []string
	for _, path := range slices.Sorted(maps.Keys(now)) {
		if was, ok := p.Conditions[path]; ok && was != now[path] {
			out = append(out, fmt.Sprintf("%s (%s, now %s)", path, was, now[path]))
		}
	}
	return out
}

// Range is the fewest and the most workers that were measured, 0, 0 where none were.
func (p *Profile) Range() (least, most int) {
	for _, pt := range p.Points {
		if pt.Why != "" {
			continue
		}
		if least == 0 || pt.Workers < least {
			least = pt.Workers
		}
		most = max(most, pt.Workers)
	}
	return least, most
}

// Measured is how many points were.
func (p *Profile) Measured() (n int) {
	for _, pt := range p.Points {
		if pt.Why == "" {
			n++
		}
	}
	return n
}

// ServerCounts are the numbers of servers of the points, ascending.
func (p *Profile) ServerCounts() []int {
	var out []int
	for _, pt := range p.Points {
		out = append(out, pt.Servers)
	}
	return sorted(out)
}

func sorted(v []int) []int {
	slices.Sort(v)
	return slices.Compact(v)
}

// Source says in a few words where the model comes from.
func (p *Profile) Source() string {
	least, most := p.Range()
	words := fmt.Sprintf("profile of %s, %s", p.At.Format("2006-01-02 15:04 MST"), between(least, most))
	if p.Emulated {
		words += ", emulated accelerators"
	}
	return words
}

// Told says where the model comes from and what it is worth from least to most workers with so many servers: when it was measured, at how many points, where it is
// extrapolated, and the largest standard error.
func (p *Profile) Told(least, most, servers int) string {
	words := fmt.Sprintf("the stored profile of %s, %s", p.At.Format("2006-01-02 15:04 MST"), p.Extent(max(most, p.most())))
	if p.Emulated {
		words += ", emulated accelerators"
	}
	if lo, hi := p.Range(); most > hi {
		words += fmt.Sprintf(", extrapolated beyond w = %d", hi)
	} else if least < lo {
		words += fmt.Sprintf(", extrapolated below w = %d", lo)
	}
	sure, worst := estimator.Assess(p.Model, samples(p.Points)), 0.0
	for w := max(least, 1); w <= most; w++ {
		worst = max(worst, sure.Error(w, servers))
	}
	if worst >= 1 {
		return words + "; how sure it is is not known"
	}
	return words + fmt.Sprintf(", ± %.1f %% at most", 100*worst)
}

// most is the most workers that were measured.
func (p *Profile) most() int {
	_, most := p.Range()
	return most
}

// between is "1 to 4 workers", "4 workers".
func between(least, most int) string {
	switch {
	case least == most && most == 1:
		return "1 worker"
	case least == most:
		return fmt.Sprintf("%d workers", most)
	}
	return fmt.Sprintf("%d to %d workers", least, most)
}

// Extent is how much a profile tells, or is going to: how many points there are, and from how few to how many workers.
type Extent struct{ Points, Least, Most int }

// Extent is that of the points that were measured, up to most workers.
func (p *Profile) Extent(most int) (e Extent) {
	for _, pt := range p.Points {
		if pt.Why != "" || pt.Workers > most {
			continue
		}
		if e.Points++; e.Least == 0 || pt.Workers < e.Least {
			e.Least = pt.Workers
		}
		e.Most = max(e.Most, pt.Workers)
	}
	return e
}

// Less says that e tells less than o: fewer points, or a narrower range.
func (e Extent) Less(o Extent) bool {
	return o.Points > 0 && (e.Points < o.Points || e.Least > o.Least || e.Most < o.Most)
}

func (e Extent) String() string {
	if e.Points == 1 {
		return "1 point, of " + between(e.Least, e.Most)
	}
	return fmt.Sprintf("%d points, of %s", e.Points, between(e.Least, e.Most))
}

// Block is the throughput block of a job file that says the same.
func (p *Profile) Block() string {
	theta := make([]string, len(p.Model.Theta))
	for i, t := range p.Model.Theta {
		theta[i] = strconv.FormatFloat(t, 'g', 6, 64)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "throughput {\n  form   = %q\n  theta  = [%s]\n", p.Model.Form, strings.Join(theta, ", "))
	if p.Model.Form.NeedsBatch() {
		fmt.Fprintf(&b, "  batch  = %d\n", int(p.Model.Batch))
	}
	fmt.Fprintf(&b, "  source = %q\n}\n", p.Source())
	return b.String()
}
