package replay

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteText writes the report for a terminal.
func WriteText(w io.Writer, r *Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s: %s\n", r.Headline(), r.Trace, strings.Join(r.facts(), ", "))
	for _, g := range r.groups() {
		fmt.Fprintf(&b, "\n%s, a day:\n", g.title)
		if err := r.writeTable(&b, g); err != nil {
			return err
		}
	}
	fmt.Fprintln(&b)
	for _, line := range r.remarks() {
		fmt.Fprintln(&b, line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeTable writes one table, the oracle first.
func (r *Report) writeTable(b *strings.Builder, g group) error {
	rows := append(r.oracles(), g.rows...)
	width := 0
	for _, p := range rows {
		width = max(width, len(r.title(p)))
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(cells []string) { fmt.Fprintln(t, strings.Join(cells, "\t")+"\t") }
	line(append([]string{fmt.Sprintf("  %-*s", width, "policy")}, r.head(g)...))
	for _, p := range rows {
		line(append([]string{fmt.Sprintf("  %-*s", width, r.title(p))}, r.cells(p, g)...))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, p := range rows {
		if len(p.Params) > 0 {
			fmt.Fprintf(b, "  %s: %s\n", p.Name, formatParams(p.Params))
		}
	}
	return nil
}

// title names a row; the job's own policy may be there twice.
func (r *Report) title(p Row) string {
	if p.Setting == LabelDefault && PaperSetting(p.Name).Label != LabelDefault {
		return p.Name + " as in the job"
	}
	return name(p)
}

func (r *Report) head(g group) []string {
	head := []string{"GPU-h", "over %", "acc. lag", "down", "rescales", "lag p99", "max", "busy %", "cost", "±", "x oracle"}
	if r.floored() {
		head = append(head, "above min")
	}
	if g.paper {
		head = append(head, "paper: GPU-h", "rescales")
	}
	return head
}

func (r *Report) cells(p Row, g group) []string {
	out := []string{
		fmt.Sprintf("%.1f", p.GPUHours), fmt.Sprintf("%.2f", p.ViolationPct), fmt.Sprintf("%.0f", p.AccumulatedLagMin), fmt.Sprintf("%.0f", p.DowntimeMin),
		fmt.Sprintf("%.1f", p.Rescales), short(p.LagP99), short(p.LagMax), fmt.Sprintf("%.0f", p.GPUBusyPct), fmt.Sprintf("%.1f", p.Cost), fmt.Sprintf("%.1f", p.CI95.Cost),
		fmt.Sprintf("%.3f", p.CostRatioOracle),
	}
	if r.floored() {
		above := "-"
		if p.CostAboveFloorRatioOracle > 0 {
			above = fmt.Sprintf("%.3f", p.CostAboveFloorRatioOracle)
		}
		out = append(out, above)
	}
	if g.paper {
		hours, rescales := "", ""
		if t, ok := published[p.Name]; ok {
			hours, rescales = fmt.Sprintf("%.0f", t.GPUHours), fmt.Sprintf("%.0f", t.Rescales)
		}
		out = append(out, hours, rescales)
	}
	return out
}
