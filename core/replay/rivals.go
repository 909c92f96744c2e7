package replay

import "slices"

// Contestant is what is known of a policy for the comparison: where its algorithm comes from, the setting that the paper's comparison used as far as it can be
// told, and the grid in which its best setting is looked for.
type Contestant struct {
	Policy string
	// Mark says what the implementation follows: the project's source, the paper, or a reconstruction of ours.
	Mark string
	// Paper are its numbers in the paper-setting table.
	Paper map[string]float64
	// Grid is searched for its cheapest setting; empty: there is nothing to set.
	Grid []Axis
	// always are numbers of the autoscale block that hold in the paper's and the best setting: a rival has cooldowns of its own, and not the job file's.
	always map[string]float64
}

// Axis is one number of a policy and the values that are tried. Where the best is the first or the last of them, the axis is extended on that side, by the
// same step or (Log) the same factor, within Min and Max.
type Axis struct {
	Name     string
	Values   []float64
	Log      bool
	Min, Max float64
}

// Marks of a contestant.
const (
	markCode  = "[code]"
	markPaper = "[paper]"
	markOurs  = "[ours]"
)

var noCooldowns = map[string]float64{"cooldown_in_min": 0, "cooldown_out_min": 0}

// contestants are the policies of which something is known, in the order of the tables.
var contestants = []Contestant{
	{Policy: "static", Mark: markPaper, always: noCooldowns},
	{
		Policy: "follow", Mark: markOurs, always: noCooldowns,
		Grid: []Axis{{Name: "margin", Values: []float64{0, 0.03, 0.1, 0.2, 0.3}, Max: 2}},
	},
	{
		Policy: "kale", Mark: markPaper, always: map[string]float64{"headroom": 0, "cooldown_in_min": 0, "cooldown_out_min": 0, "utilisation_over": 0, "utilisation_under": 0},
		Paper: map[string]float64{"rho": 1, "tau_min": 10},
		Grid: []Axis{
			{Name: "rho", Values: []float64{1, 2, 3}, Min: 1, Max: 8},
			{Name: "tau_min", Values: []float64{5, 10, 15, 30, 60, 120}, Log: true, Min: 1, Max: 960},
		},
	},
}

// contestant finds a policy's.
func contestant(policy string) (Contestant, bool) {
	i := slices.IndexFunc(contestants, func(c Contestant) bool { return c.Policy == policy })
	if i < 0 {
		return Contestant{Policy: policy}, false
	}
	return contestants[i], true
}

// PaperSetting is a policy as in the paper's comparison, or its default where there is none.
func PaperSetting(policy string) Setting {
	c, known := contestant(policy)
	if !known {
		return Setting{Policy: policy, Label: LabelDefault}
	}
	return Setting{Policy: policy, Label: LabelPaper, Params: c.Paper}
}
