package replay

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/kale-sched/kale/core/plan"
)

// How a sweep searches.
const (
	sweepSeeds  = 3 // a grid is searched with the first seeds; its best is then run with all
	extendMost  = 4 // times that an axis is extended on either side
	sweepAtOnce = "searching the best setting of "
)

// sweep finds the cheapest setting of each policy's grid by total cost.
func (c *Comparison) sweep(ctx context.Context, policies []string) (best []Setting, err error) {
	for _, name := range policies {
		r, _ := contestant(name)
		if len(r.Grid) == 0 {
			continue
		}
		s, err := c.search(ctx, r)
		if err != nil {
			return nil, err
		}
		best = append(best, s)
	}
	return best, nil
}

// search tries every point of the grid; where the cheapest lies at an edge, the axis is extended beyond it, the others staying where they are best. The paper's
// setting is tried besides, where it is none of these.
func (c *Comparison) search(ctx context.Context, r Contestant) (Setting, error) {
	grid := make([]Axis, len(r.Grid))
	for i, a := range r.Grid {
		grid[i] = a
		grid[i].Values = slices.Clone(a.Values)
		if a.Of != nil {
			grid[i] = a.times(a.Of(c.j))
		}
	}
	tried := points(r.Policy, grid)
	costs, err := c.costs(ctx, tried)
	if err != nil {
		return Setting{}, err
	}
	for range extendMost * 2 {
		at := cheapest(costs)
		more := extend(grid, tried[at])
		if len(more) == 0 {
			break
		}
		found, err := c.costs(ctx, more)
		if err != nil {
			return Setting{}, err
		}
		tried, costs = append(tried, more...), append(costs, found...)
	}
	if p := r.published(); !slices.ContainsFunc(tried, func(s Setting) bool { return maps.Equal(s.Params, p.Params) }) {
		found, err := c.costs(ctx, []Setting{p})
		if err != nil {
			return Setting{}, err
		}
		tried, costs = append(tried, p), append(costs, found...)
	}
	s := tried[cheapest(costs)]
	s.Label = LabelBest
	return s, nil
}

// published is the paper's setting (or else the default) as a point of the grid: with the axes' names for what is not said because it is the default.
func (r Contestant) published() Setting {
	s := Setting{Policy: r.Policy, Label: LabelBest, Params: map[string]float64{}}
	for _, info := range plan.Policies() {
		for _, p := range info.Params {
			if info.Name == r.Policy && slices.ContainsFunc(r.Grid, func(a Axis) bool { return a.Name == p.Name }) {
				s.Params[p.Name] = p.Default
			}
		}
	}
	maps.Copy(s.Params, r.Paper)
	return s
}

// times is the axis with all its values multiplied.
func (a Axis) times(factor float64) Axis {
	a.Values = slices.Clone(a.Values)
	for i := range a.Values {
		a.Values[i] *= factor
	}
	a.Min, a.Max = a.Min*factor, a.Max*factor
	return a
}

// points are all combinations of the axes' values, the last axis fastest.
func points(policy string, grid []Axis) []Setting {
	out := []Setting{{Policy: policy, Label: LabelBest, Params: map[string]float64{}}}
	for _, a := range grid {
		var next []Setting
		for _, s := range out {
			for _, v := range a.Values {
				next = append(next, s.with(a.Name, v))
			}
		}
		out = next
	}
	return out
}

func (s Setting) with(name string, v float64) Setting {
	s.Params = maps.Clone(s.Params)
	s.Params[name] = v
	return s
}

// extend adds a value beyond each edge of the grid at which the best setting lies, and gives the settings that are new.
func extend(grid []Axis, best Setting) (more []Setting) {
	for i := range grid {
		a := &grid[i]
		v, n := best.Params[a.Name], len(a.Values)
		if n < 2 {
			continue
		}
		beyond := func(edge, inner float64) float64 {
			if a.Log {
				return edge * edge / inner
			}
			return tidy(edge+(edge-inner), edge-inner)
		}
		var next float64
		switch v {
		case a.Values[n-1]:
			next = min(beyond(v, a.Values[n-2]), a.Max)
		case a.Values[0]:
			next = max(beyond(v, a.Values[1]), a.Min)
		default:
			continue
		}
		if slices.Contains(a.Values, next) {
			continue
		}
		a.Values = append(a.Values, next)
		slices.Sort(a.Values)
		more = append(more, best.with(a.Name, next))
	}
	return more
}

// tidy is a value that was reached in steps of a grid, without what the machine's arithmetic adds to it: 0, and not 2.8e-17.
func tidy(v, step float64) float64 {
	unit := math.Abs(step) / 1e6
	if n := math.Round(v / unit); math.Abs(v-n*unit) < unit/1e3 {
		v, _ = strconv.ParseFloat(strconv.FormatFloat(n*unit, 'g', 12, 64), 64) // what was written is read
	}
	return v
}

// costs are the mean total costs of the settings.
func (c *Comparison) costs(ctx context.Context, settings []Setting) ([]float64, error) {
	all, err := c.runAll(ctx, sweepAtOnce+settings[0].Policy, settings, min(sweepSeeds, c.o.Seeds), false)
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(all))
	for i, o := range all {
		mean, _ := summary(o.by)
		out[i] = mean.Cost
	}
	return out, nil
}

// cheapest is the index of the least, the first of equals.
func cheapest(costs []float64) int {
	best := 0
	for i := range costs {
		if cmp.Less(costs[i], costs[best]) {
			best = i
		}
	}
	return best
}
