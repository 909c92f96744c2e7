package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/profile"
	"github.com/kale-sched/kale/estimator"
)

func profileShowCommand(a *app) *cobra.Command {
	var f jobFlags
	c := &cobra.Command{
		Use: "show JOB", Short: "The stored profile of a job: a chart, every point, and how sure the model is",
		Args: exactly("JOB"), ValidArgsFunction: a.completeJobs,
		RunE: func(_ *cobra.Command, args []string) error {
			l, err := a.load(args[0], f)
			if dir, derr := a.jobDir(args[0]); err != nil && derr == nil { // a job that has only been profiled is known by nothing else
				if p, perr := readProfile(dir); perr == nil {
					most := 1
					for _, pt := range p.Points {
						most = max(most, pt.Workers)
					}
					return a.showProfile(filepath.Join(dir, profileFile), most, p)
				}
			}
			if errors.Is(err, errNoJob) {
				return a.noProfile(args[0], err)
			}
			if err != nil {
				return err
			}
			p, err := readProfile(l.dir)
			if errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("no profile of job %q is stored on this machine: kale profile %s%s measures one", l.Name, a.stateFlag(), quoted([]string{l.File}))
			}
			if err != nil {
				return err
			}
			return a.showProfile(filepath.Join(l.dir, profileFile), l.Workers.Max, p)
		},
	}
	f.register(c)
	a.jsonFlag(c, "print it as JSON")
	return c
}

// noProfile is the error of a job that is not known here, with those of which a profile is stored: these need not have run.
func (a *app) noProfile(name string, err error) error {
	root, rerr := a.stateRoot()
	if rerr != nil {
		return err
	}
	entries, _ := os.ReadDir(root) // what cannot be read is not listed
	var names []string
	for _, e := range entries {
		if exists(filepath.Join(root, e.Name(), profileFile)) {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return err
	}
	return fmt.Errorf("%w. %sProfiles are stored of: %s", err, job.DidYouMean(name, names), strings.Join(names, ", "))
}

// profiledJSON is what kale profile -json prints.
type profiledJSON struct {
	profile.Profile
	Rows  []profile.Row `json:"rows"`
	Block string        `json:"block"`
	File  string        `json:"file"`
}

func (a *app) showProfile(file string, most int, p *profile.Profile) error {
	if a.asJSON {
		return printJSON(a.out, profiledJSON{Profile: *p, Rows: p.Rows(most), Block: p.Block(), File: file})
	}
	var b strings.Builder
	width := textWidth(a.out)
	emulated := ""
	if p.Emulated {
		emulated = ", emulated accelerators"
	}
	fmt.Fprintf(&b, "job %s, profile of %s%s\n", p.Job, p.At.Local().Format("2006-01-02 15:04:05"), emulated)
	for _, servers := range p.ServerCounts() {
		fmt.Fprintf(&b, "\nrecords/s with %s: ● measured, · model, ~ model beyond what was measured\n", job.Count(servers, "server"))
		for _, line := range p.Chart(servers, most, min(width, 80), 14) {
			fmt.Fprintln(&b, line)
		}
	}
	fmt.Fprintln(&b)
	profileTable(&b, p.Rows(most))
	b.WriteString("\n" + profileWords(p, width))
	stored := "throughput { source = \"profile\" } starts from it. To"
	if filepath.Base(file) != profileFile {
		stored = "nothing starts from it. To"
	}
	fmt.Fprintf(&b, "\nstored in %s; %s have the figures in the file itself:\n\n%s", file, stored, p.Block())
	_, err := fmt.Fprint(a.out, b.String())
	return err
}

// unsteady is the relative spread of a point's intervals above which it is said that something disturbed them.
const unsteady = 0.1

// profileTable is every point, and what the model says of the others.
func profileTable(b *strings.Builder, rows []profile.Row) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "workers\tservers\tmeasured\tspread\tmodel\tmodel/measured\tsure within\t")
	for _, r := range rows {
		measured, spread, ratio, note := "", "", "", ""
		switch {
		case r.Why != "":
			measured = "failed"
		case r.Measured > 0:
			measured, spread, ratio = number(r.Measured), fmt.Sprintf("±%.1f %%", 100*r.Spread), fmt.Sprintf("%.3f", r.Ratio)
		}
		if r.Extrapolated {
			note = "  extrapolated"
		}
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t±%.1f %%\t%s\n", r.Workers, r.Servers, measured, spread, number(r.Fitted), ratio, 100*r.Error, note)
	}
	_ = t.Flush() // a strings.Builder takes all
	for _, r := range rows {
		if r.Why != "" {
			fmt.Fprintf(b, "%s, %s: %s\n", job.Count(r.Workers, "worker"), job.Count(r.Servers, "server"), r.Why)
			continue
		}
		if r.Fewer != "" {
			fmt.Fprintf(b, "%s, %s: %s only: %s\n", job.Count(r.Workers, "worker"), job.Count(r.Servers, "server"), job.Count(r.Intervals, "interval"), r.Fewer)
		}
		if r.Spread > unsteady {
			fmt.Fprintf(b, "%s, %s: the intervals differ by ±%.0f %%: something else took of what they need, and the figure is worth little; measure again in a quieter hour\n",
				job.Count(r.Workers, "worker"), job.Count(r.Servers, "server"), 100*r.Spread)
		}
	}
}

// profileWords say which model it is, how it was chosen and how sure it is.
func profileWords(p *profile.Profile, width int) string {
	theta := make([]string, len(p.Model.Theta))
	for i, v := range p.Model.Theta {
		theta[i] = fmt.Sprintf("%.4g", v)
		if i < len(p.ThetaErrors) {
			theta[i] += fmt.Sprintf(" ±%.2g", p.ThetaErrors[i])
		}
	}
	out := hang("model   ", "        ", fmt.Sprintf("%s, theta %s", p.Model.Form, strings.Join(theta, ", ")), width)
	if len(p.Trials) == 0 {
		return out + hang("choice  ", "        ", fmt.Sprintf("none: with %s no form can be tried on one that it was not shown", job.Count(p.Measured(), "point")), width)
	}
	tried := slices.DeleteFunc(slices.Clone(p.Trials), func(t estimator.Trial) bool { return t.Why != "" })
	slices.SortStableFunc(tried, func(x, y estimator.Trial) int {
		if x.Error < y.Error {
			return -1
		}
		return 1
	})
	words := make([]string, len(tried))
	for i, t := range tried {
		words[i] = fmt.Sprintf("%s %.2f %%", t.Form, t.Error)
	}
	out += hang("choice  ", "        ", "error at a point left out: "+strings.Join(words, ", ")+"; of those that are not certainly worse than the best, the one with the fewest terms", width)
	sure := fmt.Sprintf("an interval spreads by ±%.1f %%", 100*p.Noise)
	if p.Misfit > 0 {
		sure += fmt.Sprintf(", and the form is off by %.1f %% more than that explains", 100*p.Misfit)
	}
	return out + hang("noise   ", "        ", sure, width)
}
