package replay

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

// Setting is a policy with its numbers.
type Setting struct {
	Policy string
	// Label is "paper", "best" or "default".
	Label string
	// Params are the policy's own numbers, and those of the job's autoscale block that [jobNumbers] lists; what is missing has its default.
	Params map[string]float64
	// AsInJob says that it is what the job file has: its policy with its params. Its label is LabelDefault.
	AsInJob bool
}

// Labels of a setting.
const (
	LabelPaper   = "paper"
	LabelBest    = "best"
	LabelDefault = "default"
)

// jobSetting is the job's own policy as the job has it: what its params block sets, and for the rest what the policy reads from the job.
func jobSetting(j *job.Job) Setting {
	return Setting{Policy: j.Autoscale.Policy, Label: LabelDefault, Params: maps.Clone(j.Autoscale.Params), AsInJob: true}
}

// settings are those in which a policy is compared without a sweep: the paper's, or else its default; of the job's own policy also that of the job. Where a
// policy has no paper setting the job's comes first, and the default beside it only where the job sets something else.
func settings(policy string, j *job.Job) []Setting {
	paper := PaperSetting(policy)
	if policy != j.Autoscale.Policy {
		return []Setting{paper}
	}
	own := jobSetting(j)
	switch {
	case paper.Label != LabelDefault:
		return []Setting{paper, own}
	case len(own.Params) == 0:
		return []Setting{own}
	}
	return []Setting{own, paper}
}

// String writes hpa(target=0.8, window_min=5).
func (s Setting) String() string {
	if len(s.Params) == 0 {
		return s.Policy
	}
	return s.Policy + "(" + formatParams(s.Params) + ")"
}

func formatParams(params map[string]float64) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(params)) {
		format, digits := byte('g'), 4
		if math.Abs(params[k]) >= 1e3 { // no powers of ten
			format, digits = 'f', 0
		}
		parts = append(parts, k+"="+strconv.FormatFloat(params[k], format, digits, 64))
	}
	return strings.Join(parts, ", ")
}

// jobNumbers are the numbers that a setting may change in the job's autoscale block.
var jobNumbers = map[string]func(*job.Autoscale, float64){
	"rho":              func(a *job.Autoscale, v float64) { a.Rho = int(v) },
	"tau_min":          func(a *job.Autoscale, v float64) { a.Tau = minutes(v) },
	"headroom":         func(a *job.Autoscale, v float64) { a.Headroom = v },
	"cooldown_in_min":  func(a *job.Autoscale, v float64) { a.CooldownIn = minutes(v) },
	"cooldown_out_min": func(a *job.Autoscale, v float64) { a.CooldownOut = minutes(v) },
	// The thresholds of Kale §3.4.3; 0 switches one off.
	"utilisation_over":  func(a *job.Autoscale, v float64) { a.Fallback.UtilisationOver = v },
	"utilisation_under": func(a *job.Autoscale, v float64) { a.Fallback.UtilisationUnder = v },
	"tick_s":            func(a *job.Autoscale, v float64) { a.Tick = seconds(v) },
}

func minutes(v float64) time.Duration { return time.Duration(v * float64(time.Minute)) }

// fixed are the numbers that hold in the setting besides its Params: those that its policy always has in the comparison. The job's own row has none.
func (s Setting) fixed() map[string]float64 {
	if c, known := contestant(s.Policy); known && s.Label != LabelDefault {
		return c.always
	}
	return nil
}

// apply makes the policy, and the job as the setting wants it.
func (s Setting) apply(base *job.Job, w World) (*job.Job, plan.Policy, error) {
	j := *base
	j.Autoscale.Mode = w.mode()
	j.Autoscale.Policy = s.Policy
	own := plan.Params{}
	put := func(params map[string]float64) {
		for k, v := range params {
			if set, ok := jobNumbers[k]; ok {
				set(&j.Autoscale, v)
			} else {
				own[k] = v
			}
		}
	}
	put(s.fixed())
	put(s.Params)
	p, err := plan.New(s.Policy, own)
	if err != nil {
		return nil, nil, fmt.Errorf("replay: %w", err)
	}
	if j.Autoscale.Tick <= 0 {
		return nil, nil, fmt.Errorf("replay: policy %s decides every %v; it must be above 0", s.Policy, j.Autoscale.Tick)
	}
	return &j, p, nil
}
