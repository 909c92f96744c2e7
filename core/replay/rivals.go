package replay

import (
	"slices"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

// Contestant is what is known of a policy for the comparison: the setting that the paper's comparison used as far as it can be told, and the grid in which its
// best setting is looked for. Its own defaults are the published ones.
type Contestant struct {
	Policy string
	// Paper are its numbers in the paper-setting table.
	Paper map[string]float64
	// Grid is searched for its cheapest setting; empty: there is nothing to set.
	Grid []Axis
	// always are numbers that hold in the paper's and the best setting besides; of a row they are [Row.Fixed].
	always map[string]float64
}

// Axis is one number of a policy and the values that are tried. Where the best is the first or the last of them, the axis is extended on that side, by the
// same step or (Log) the same factor, within Min and Max.
type Axis struct {
	Name     string
	Values   []float64
	Log      bool
	Min, Max float64
	// Of, where set, is what the values are multiples of.
	Of func(*job.Job) float64
}

// A rival decides by its own machinery: none of Kale's rules for a safe scale-in, and none of the job's cooldowns.
var (
	itself  = map[string]float64{"guard": 0}
	every15 = map[string]float64{"guard": 0, "tick_s": 15} // the HPA's period
)

// demandAxis: what counts as usage. The published runs tell that a backlog did not: with violations in 270 of 1,440 minutes, in which all workers are busy, the
// HPA held 20 of 28 workers at most, and Autopilot 24 (Kale §4.4); by the busy share both go to 28, outage upon outage. So it does not in the paper's setting.
var demandAxis = Axis{Name: "demand", Values: []float64{0, 1}, Max: 1}

// contestants are the policies of which something is known, in the order of the tables. The grids are those of the project's notes on rivals.
var contestants = []Contestant{
	{Policy: "static", always: itself},
	{
		Policy: "madu", always: itself, // its own defaults are the published ones
		Grid: []Axis{
			{Name: "z", Values: []float64{0.96, 1.28, 1.65}, Max: 4},
			{Name: "target", Values: []float64{0.7, 0.8, 0.9}, Min: 0.1, Max: 1},
		},
	},
	{
		Policy: "autopilot-short", always: itself,
		Paper: map[string]float64{"demand": 1, "margin": 0.15}, // the larger of the margins that are told of Autopilot
		Grid: []Axis{
			demandAxis,
			{Name: "window", Values: []float64{30, 60}, Log: true, Min: 2, Max: 480},
			{Name: "margin", Values: []float64{0.10, 0.15}, Max: 1},
		},
	},
	{
		Policy: "hpa", always: every15,
		Paper: map[string]float64{"demand": 1},
		Grid: []Axis{
			demandAxis,
			{Name: "target", Values: []float64{0.4, 0.5, 0.6, 0.7, 0.8, 0.9}, Min: 0.1, Max: 1},
			{Name: "down_window", Values: []float64{1, 5, 15, 30}, Log: true, Min: 0.25, Max: 480},
		},
	},
	{
		Policy: "kale", always: map[string]float64{"headroom": 0, "cooldown_in_min": 0, "cooldown_out_min": 0, "utilisation_over": 0, "utilisation_under": 0},
		// τ as in the paper's Fig. 5, its only plot of Algorithm 1 on a day. With its default of 10 min, less than two of its outages, the plan that is made
		// anew each minute changes 80 times a day, and outages leave more backlog than is worked off between them.
		// Workers by twos, as the plotted day has them.
		Paper: map[string]float64{"rho": 1, "tau_min": 30, "multiple": 2},
		Grid: []Axis{
			{Name: "multiple", Values: []float64{1, 2}, Min: 1, Max: 4},
			{Name: "rho", Values: []float64{1, 2, 3}, Min: 1, Max: 8},
			{Name: "tau_min", Values: []float64{5, 10, 15, 30, 60, 120}, Log: true, Min: 1, Max: 960},
		},
	},
	{Policy: "cost"},
	{
		Policy: "flink", always: itself,
		Grid: []Axis{
			{Name: "target", Values: []float64{0.5, 0.6, 0.7, 0.8, 0.9}, Min: 0.1, Max: 1},
			{Name: "catch_up", Values: []float64{5, 15, 30}, Log: true, Min: 1, Max: 480},
			{Name: "window", Values: []float64{3, 15}, Log: true, Min: 1, Max: 120},
		},
	},
	{
		Policy: "quantile", always: itself,
		Grid: []Axis{
			{Name: "epsilon", Values: []float64{.01, .05, .1, .2}, Log: true, Min: .001, Max: .9},
			{Name: "horizon", Values: []float64{10, 20, 40}, Log: true, Min: 1, Max: 480},
		},
	},
	{
		Policy: "keda", always: every15,
		Grid: []Axis{{Name: "lag_threshold", Values: []float64{1. / 64, 1. / 16, 1. / 8, 1. / 4, 1. / 2, 1}, Log: true, Min: 1. / 4096, Max: 16, Of: backlogAtObjective}},
	},
	{
		Policy: "autopilot", always: itself,
		Grid: []Axis{
			demandAxis,
			{Name: "window", Values: []float64{24 * 60, 72 * 60}, Log: true, Min: 60, Max: 14 * 24 * 60},
			{Name: "target", Values: []float64{0.7, 0.8, 0.9, 1}, Min: 0.1, Max: 1},
		},
	},
	{
		Policy: "follow", always: itself,
		Grid: []Axis{{Name: "margin", Values: []float64{0, 0.03, 0.1, 0.2, 0.3}, Max: 2}},
	},
}

// backlogAtObjective is what one worker trains within the objective: a backlog of so many records for each worker is as old as the objective allows.
func backlogAtObjective(j *job.Job) float64 { return RateOf(j, 1) * j.SLO.MaxLag.Seconds() }

// contestant finds a policy's.
func contestant(policy string) (Contestant, bool) {
	i := slices.IndexFunc(contestants, func(c Contestant) bool { return c.Policy == policy })
	if i < 0 {
		return Contestant{Policy: policy}, false
	}
	return contestants[i], true
}

// rank is a policy's place in the tables; one that is not known comes last.
func rank(policy string) int {
	i := slices.IndexFunc(contestants, func(c Contestant) bool { return c.Policy == policy })
	if i < 0 {
		return len(contestants)
	}
	return i
}

// PaperSetting is a policy as in the paper's comparison, or its default where there is none.
func PaperSetting(policy string) Setting {
	c, known := contestant(policy)
	if !known || c.always == nil {
		return Setting{Policy: policy, Label: LabelDefault}
	}
	return Setting{Policy: policy, Label: LabelPaper, Params: c.Paper}
}

// markOf says where a policy's algorithm comes from: "code" (read in the project's source), "paper", or "ours" (a reconstruction).
func markOf(policy string) string {
	for _, info := range plan.Policies() {
		if info.Name == policy {
			return info.Mark
		}
	}
	return ""
}
