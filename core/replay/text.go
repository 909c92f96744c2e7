package replay

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteText writes the report for a terminal.
func WriteText(w io.Writer, r *Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s to %s, %.3g days in bins of %v, %s to %s samples/s of load; %d to %d workers; objective %v; rescale %s; %d seeds\n",
		r.Trace, r.From.UTC().Format("2006-01-02 15:04"), r.To.UTC().Format("2006-01-02 15:04"), r.Days, time.Duration(r.Bin*1e9),
		"0", amount(r.Peak), r.Min, r.Max, time.Duration(r.MaxLag*1e9), r.Rescale, r.Seeds)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\tsetting\tGPU-h\tviolation %\tacc. lag min\tdown min\trescales\tlag p50\tp99\tmax\tbusy %\tcost\t±\tx oracle\t")
	rows := r.Policies
	if r.Oracle != nil {
		rows = append([]Row{*r.Oracle}, rows...)
	}
	for _, p := range rows {
		fmt.Fprintf(t, "%s\t%s\t%.1f\t%.2f\t%.0f\t%.1f\t%.1f\t%s\t%s\t%s\t%.0f\t%.1f\t%.1f\t%.3f\t\n", p.Name, p.Setting, p.GPUHours, p.ViolationPct, p.AccumulatedLagMin,
			p.DowntimeMin, p.Rescales, short(p.LagP50), short(p.LagP99), short(p.LagMax), p.GPUBusyPct, p.Cost, p.CI95.Cost, p.CostRatioOracle)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, p := range r.Policies {
		if len(p.Params) > 0 {
			fmt.Fprintf(&b, "%s (%s): %s\n", p.Name, p.Setting, formatParams(p.Params))
		}
	}
	fmt.Fprintf(&b, "fluid bound: %.1f GPU-hours a day; %.0f %% of the time %d workers are enough\n", r.FluidGPUHours, 100*r.ShareAtMin, r.Min)
	_, err := io.WriteString(w, b.String())
	return err
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

// amount writes a large number: 840, 12.3k, 4.5M.
func amount(v float64) string {
	switch {
	case v < 1e4:
		return fmt.Sprintf("%.3g", v)
	case v < 1e6:
		return fmt.Sprintf("%.3gk", v/1e3)
	}
	return fmt.Sprintf("%.3gM", v/1e6)
}
