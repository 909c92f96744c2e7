package replay

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

// Headline is what the comparison comes to, in one sentence: what the job's policy would have saved, or else Kale's own; and whether another of Kale's is cheaper.
func (r *Report) Headline() string {
	k := r.ours()
	if k == nil {
		return fmt.Sprintf("No policy of Kale's is among those compared; the cheapest is %s.", name(*r.cheapest()))
	}
	all := float64(r.Max) * r.gpus * 24
	saved := 100 * (1 - k.GPUHours/all)
	text := fmt.Sprintf("Kale's %q would have held %.0f GPU-hours a day, %s less than %s all day (%.0f)", k.Name, k.GPUHours, lessBy(saved), job.Count(r.Max, "worker"), all)
	if saved < 0.5 {
		text = fmt.Sprintf("Kale's %q would have held %.0f GPU-hours a day, as many as %s all day", k.Name, k.GPUHours, job.Count(r.Max, "worker"))
	}
	if r.price > 0 {
		text += fmt.Sprintf(", %s a day saved", money(r.price*(all-k.GPUHours)))
	}
	switch over := k.ViolationPct / 100 * 1440; {
	case over < 0.005:
		text += fmt.Sprintf(", with no minute over the objective of %s", job.FormatDuration(time.Duration(r.MaxLag*1e9)))
	default:
		text += fmt.Sprintf(", with %.1f minutes a day over the objective of %s", over, job.FormatDuration(time.Duration(r.MaxLag*1e9)))
	}
	switch {
	case r.Oracle == nil:
	case r.boundless() == "":
		text += fmt.Sprintf("; the cheapest schedule that there is holds %.0f", r.Oracle.GPUHours)
	default:
		text += fmt.Sprintf("; the oracle, which is no bound here, holds %.0f", r.Oracle.GPUHours)
	}
	if r.ShareBeyondMax > 0 && k.ViolationPct > 0 {
		if most, peak, differ := apart(r.model(r.best), r.Peak); differ {
			text += fmt.Sprintf("; no number of workers up to workers.max trains more than %s of the %s records/s at the peak", most, peak)
		}
	}
	if p := r.least(func(p *Row) bool {
		return ownPolicy(p.Name) && p.Setting != LabelBest && (p.Name != k.Name || p.Setting == LabelDefault)
	}); p != nil && p != k && p.Cost < 0.99*k.Cost {
		by := fmt.Sprintf("%q", p.Name)
		if p.Name == k.Name {
			by += " with its defaults"
		}
		text += fmt.Sprintf("; by %s it would have cost %s less", by, lessBy(100*(1-p.Cost/k.Cost)))
	}
	if r.short() {
		text = fmt.Sprintf("By %s of arrivals, reckoned up to a day: %s", r.length(), text)
	}
	return text + "."
}

// lessBy is a saving in percent: in whole ones, and with as many digits more as it takes to not say 100 where something is left.
func lessBy(percent float64) string {
	const digits, most = 4, 99.9999
	text := fmt.Sprintf("%.0f", percent)
	for n := 1; n <= digits && percent < 100 && strings.HasPrefix(text, "100"); n++ {
		text = fmt.Sprintf("%.*f", n, min(percent, most))
	}
	return text + " %"
}

// boundless says why the oracle's is not the cheapest schedule that there is; "": it is.
func (r *Report) boundless() string {
	if r.losses {
		return "The oracle plans without knowing which workers are lost, so that it is no bound."
	}
	const why = "The oracle changes workers, and looks at the lag, at whole minutes: %s, so that it is no bound."
	if r.MaxLag < 60 {
		return fmt.Sprintf(why, "an objective of "+job.FormatDuration(time.Duration(r.MaxLag*1e9))+" is kept or broken within one")
	}
	if r.Bin > 0 && r.Bin < 60 {
		return fmt.Sprintf(why, "the trace's bins of "+job.FormatDuration(time.Duration(r.Bin*1e9))+" change within one")
	}
	if p := r.cheapest(); r.Oracle != nil && p != nil && p.Cost < r.Oracle.Cost-max(p.CI95.Cost, r.Oracle.CI95.Cost) {
		return fmt.Sprintf("The oracle changes workers, and looks at the lag, at whole minutes, and tells backlogs apart in steps: "+
			"%s is cheaper here, so that it is no bound.", name(*p))
	}
	return ""
}

// short says that so little was replayed that figures a day are a guess; length is how much.
func (r *Report) short() bool    { return r.Days < 0.99 }
func (r *Report) length() string { return job.Length(time.Duration(r.Days * 24 * float64(time.Hour))) }

// ownPolicy says that a policy is Kale's own.
func ownPolicy(name string) bool { return name == "cost" || name == "kale" }

// ours is the row of Kale's own policy: the job's, else cost, else kale; as the job has it, before its other settings.
func (r *Report) ours() *Row {
	names := []string{"cost", "kale"}
	if ownPolicy(r.policy) {
		names = append([]string{r.policy}, names...)
	}
	for _, name := range names {
		if p := r.foremost(name); p != nil {
			return p
		}
	}
	return nil
}

// foremost is the row that stands for a policy: as in the job, or else with its defaults, at the paper's setting, at its best; nil where it is not among those compared.
func (r *Report) foremost(policy string) *Row {
	for i := range r.Policies {
		if p := &r.Policies[i]; p.Name == policy && p.AsInJob {
			return p
		}
	}
	for _, setting := range []string{LabelDefault, LabelPaper, LabelBest} {
		for i := range r.Policies {
			if p := &r.Policies[i]; p.Name == policy && p.Setting == setting {
				return p
			}
		}
	}
	return nil
}

// oracles are the rows of the cheapest schedules.
func (r *Report) oracles() []Row {
	var out []Row
	for _, p := range []*Row{r.Oracle, r.Blind, r.Limited, r.lacking} {
		if p != nil {
			out = append(out, *p)
		}
	}
	return out
}

// cheapest is the row of the least total cost, cheapestRival that of the least that is not Kale's; nil where there is none.
func (r *Report) cheapest() *Row { return r.least(func(*Row) bool { return true }) }

func (r *Report) cheapestRival() *Row {
	return r.least(func(p *Row) bool { return !ownPolicy(p.Name) })
}

func (r *Report) least(among func(*Row) bool) *Row {
	var best *Row
	for i := range r.Policies {
		if p := &r.Policies[i]; among(p) && (best == nil || p.Cost < best.Cost) {
			best = p
		}
	}
	return best
}

// facts say what was replayed, and how.
func (r *Report) facts() []string {
	rescale := "live rescales"
	if r.Rescale != "live" {
		rescale = "a rescale stops training for " + r.Rescale
	}
	bins := "bins of " + job.FormatDuration(time.Duration(r.Bin*1e9))
	if r.Coarse {
		bins += ", with noise put into them"
	}
	peak := fmt.Sprintf("peak %s records/s", amount(r.Peak))
	if r.Scale != 1 {
		peak += fmt.Sprintf(" (the trace x %.3g)", r.Scale)
	}
	long, workers := days(r.Days), fmt.Sprintf("%d to %d workers", r.Min, r.Max)
	if r.short() {
		long = r.length()
	}
	if r.Min == r.Max {
		workers = job.Count(r.Max, "worker")
	}
	return []string{
		fmt.Sprintf("%s to %s", r.From.UTC().Format("2006-01-02 15:04"), r.To.UTC().Format("2006-01-02 15:04")),
		long, bins, peak, workers, rescale, job.Count(r.Seeds, "seed"),
	}
}

// remarks are what a reader has to know about the figures.
func (r *Report) remarks() []string {
	knows := "The oracle knows the trace and every outage"
	if r.losses {
		knows += ", but not which workers are lost"
	}
	auc := "AUC % is that of a click model (Kale §2.2) at the records' lags, of what it is without lag"
	if r.comparable() {
		auc += "; the paper's is a share of something that it does not tell (95.3 without lag): hold differences against it, not levels"
	}
	means := ""
	if r.Seeds > 1 {
		means = "; mean max is the mean of the seeds' largest lags"
	}
	out := []string{
		fmt.Sprintf("Acc. lag and down are minutes. Cost: GPU-hours + %g x accumulated lag in minutes + %g x minutes over the objective, a day; for what still waits at the end, the same until the workers that train most would have trained it, if no more came. %s; the blind oracle the mean of the hour around each minute, the mean outage, and the lag as it goes.",
			r.Weights.Lag, r.Weights.Violation, knows),
		"Acc. lag and over are of the oldest untrained record at the end of each minute; p50, p99 and AUC weigh every record alike, one that still waits at the end at the age that it has then" + means + ". " + auc + ". Held % is of the GPUs of workers.max, busy % of those held.",
	}
	if slices.ContainsFunc(r.Policies, unguarded) {
		out = append(out, "Rivals run as published, without Kale's guard (guard = 0): they may let workers go while lag is over its objective, and within the job's cooldowns. "+
			"A row \"as in the job\" keeps the guard unless the job's params take it away.")
	}
	lacking := ""
	if r.ShareBeyondMax > 0 {
		lacking = ", and those that train most where none is"
	}
	fluid := fmt.Sprintf("Fluid bound: %.1f GPU-hours a day (the smallest sufficient number of workers at every moment%s, rescales free and instant).%s", r.FluidGPUHours, lacking, r.below())
	if r.ShareAtMin > 0 {
		share, enough := percent(r.ShareAtMin), job.Count(r.Min, "worker")+" are enough"
		if r.Min == 1 {
			enough = "1 worker is enough"
		}
		fluid += fmt.Sprintf(" For %s of the time %s.", share, enough)
		if r.floored() {
			fluid += fmt.Sprintf(" \"above min\" is x oracle where neither's cost has the GPU-hours of %s held all day.", job.Count(r.Min, "worker"))
		}
	}
	return append(append(out, fluid), r.Notes...)
}

// below explains GPU-hours of the oracle that lie below the fluid bound, in the digits of the tables; "": they do not.
func (r *Report) below() string {
	if r.Oracle == nil || math.Round(10*r.Oracle.GPUHours) >= math.Round(10*r.FluidGPUHours) {
		return ""
	}
	return fmt.Sprintf(" It bounds who lets no record wait. The oracle holds less, %.1f: it lets records wait, %s at most, and trains them with what whole workers can do beyond what arrives; "+
		"what waits is in its cost, as accumulated lag.", r.Oracle.GPUHours, short(r.Oracle.LagMax))
}

// unguarded says that a rival lets workers go by its own machinery alone; a fixed number of workers lets none go.
func unguarded(p Row) bool {
	guard, set := p.Fixed["guard"]
	return set && guard == 0 && p.Name != "static"
}

// overloaded says that for some of the time the job's workers cannot train what arrives, and what helps; "": they can.
func (r *Report) overloaded() string {
	if r.ShareBeyondMax == 0 {
		return ""
	}
	most, peak, _ := apart(r.model(r.best), r.Peak)
	who := fmt.Sprintf("workers.max (%s, %s/s)", job.Count(r.best, "worker"), most)
	if r.best < r.Max {
		who = fmt.Sprintf("the number of workers that trains most (%d, %s/s)", r.best, most)
	}
	text := fmt.Sprintf("For %s of the time even %s does not train what arrives (peak %s/s), and the lag grows", percent(r.ShareBeyondMax), who, peak)
	switch least := r.least(func(p *Row) bool { return p.ViolationPct == 0 }); {
	case least != nil: // the objective bears it
	case r.rising:
		text += ": raise workers.max"
	default:
		text += ": more workers do not help, as their throughput is modelled; make each faster"
	}
	return text + "."
}

// percent writes a share of more than nothing.
func percent(share float64) string {
	switch {
	case share < 0.005:
		return "less than 1 %"
	case share < 1 && share >= 0.995:
		return "more than 99 %"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// floored says that much of the cost is that of workers.min, so that ratios without it tell more.
func (r *Report) floored() bool { return r.ShareAtMin >= 0.05 }

// cheaper is the cheapest of the other settings of a best row's policy, where one costs less, in the digits of the tables, on the days that are measured.
func (r *Report) cheaper(best *Row) *Row {
	if best.Setting != LabelBest {
		return nil
	}
	p := r.least(func(p *Row) bool { return p.Name == best.Name && p.Setting != LabelBest })
	if p == nil || fmt.Sprintf("%.1f", p.Cost) == fmt.Sprintf("%.1f", best.Cost) || p.Cost > best.Cost {
		return nil
	}
	return p
}

// dearer tells of which policies the best setting is not the cheapest of their rows; "": of none.
func (r *Report) dearer() string {
	var of []string
	for i := range r.Policies {
		best := &r.Policies[i]
		if p := r.cheaper(best); p != nil {
			of = append(of, fmt.Sprintf("%s (best %.1f, %s %.1f)", best.Name, best.Cost, p.label(), p.Cost))
		}
	}
	if len(of) == 0 {
		return ""
	}
	chosen := "on other days"
	if r.ChosenDays == 0 {
		chosen = "with fewer seeds"
	}
	return fmt.Sprintf("What was best where it was chosen, %s, costs more here than another row of the same policy: %s. Hold other policies against the cheaper row.", chosen, strings.Join(of, ", "))
}

// label says in words which setting of its policy a row is.
func (p *Row) label() string {
	switch {
	case p.AsInJob:
		return "as in the job"
	case p.Setting == LabelDefault:
		return "default"
	}
	return p.Setting + " setting"
}

// title names a row; the job's own policy may be there twice.
func (r *Report) title(p Row) string {
	if p.AsInJob {
		return p.Name + " as in the job"
	}
	return name(p)
}

func name(p Row) string {
	if p.Mark == "" {
		return p.Name
	}
	return p.Name + " [" + p.Mark + "]"
}

// group is rows of one table.
type group struct {
	title string
	paper bool // to be held against Table 3
	rows  []Row
}

// groups are the tables of the report: the paper's settings (and the policies' defaults), and each at its best.
func (r *Report) groups() []group {
	first := group{title: "Paper setting", paper: r.comparable()}
	best := group{title: "Best setting (the cheapest of each policy's grid)"}
	if r.ChosenDays > 0 {
		best.title = fmt.Sprintf("Best setting (the cheapest of each policy's grid on the %s before)", days(r.ChosenDays))
	}
	for _, p := range r.Policies {
		switch p.Setting {
		case LabelBest:
			best.rows = append(best.rows, p)
		default:
			first.rows = append(first.rows, p)
		}
	}
	if len(best.rows) == 0 {
		first.title = "Policies"
		return []group{first}
	}
	// What has nothing to set is what it is at its best, too.
	for _, p := range first.rows {
		c, known := contestant(p.Name)
		if known && len(c.Grid) == 0 {
			best.rows = append(best.rows, p)
		}
	}
	return []group{first, best}
}

// comparable says that the published figures belong beside these: the paper's day, with the paper's rescale.
func (r *Report) comparable() bool {
	return strings.HasPrefix(r.Trace, syntheticName) && r.Rescale == PaperRestart().Outage.String()
}

// published is Table 3 of Kale (SoCC 2024): means of 20 runs of 24 h; rescales read off its figure.
var published = map[string]struct{ Violation, Lag, Downtime, GPUHours, AUC, Rescales float64 }{
	"static":          {0, 0, 0, 672, 95.3, 0},
	"hpa":             {19.57, 7151, 163, 268, 95.1, 27},
	"autopilot-short": {5.49, 4420, 269, 303, 95.2, 40},
	"madu":            {2.57, 2303, 190, 455, 95.3, 30},
	"kale":            {2.60, 2204, 109, 242, 95.8, 19},
}

// short writes a lag of so many seconds: 0s, 42s, 8.3m, 2.1h.
func short(s float64) string {
	switch {
	case s < 60:
		return fmt.Sprintf("%.0fs", s)
	case s < 3600:
		return fmt.Sprintf("%.1fm", s/60)
	}
	return fmt.Sprintf("%.1fh", s/3600)
}

// amount writes a number that may be large, three digits of it at most: 840, 6.6k, 12k, 4.5M.
func amount(v float64) string {
	switch {
	case v < 999.5:
		return fmt.Sprintf("%.3g", v)
	case v < 9_950:
		return fmt.Sprintf("%.1fk", v/1e3)
	case v < 999_500:
		return fmt.Sprintf("%.0fk", v/1e3)
	case v < 999.5e6:
		return fmt.Sprintf("%.3gM", v/1e6)
	}
	return fmt.Sprintf("%.0fM", v/1e6)
}

// apart writes two amounts, with all digits before the point where fewer do not tell them apart; differ says whether these do.
func apart(a, b float64) (x, y string, differ bool) {
	if x, y = amount(a), amount(b); x != y {
		return x, y, true
	}
	x, y = plan.Thousands(int64(math.Round(a))), plan.Thousands(int64(math.Round(b)))
	return x, y, x != y
}

func days(v float64) string {
	if v == 1 {
		return "1 day"
	}
	return fmt.Sprintf("%.3g days", v)
}

func money(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
