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
		sheets := []sheet{r.narrow(g), r.detailed(g)}
		if s, ok := r.beside(g); ok {
			sheets = append(sheets, s)
		}
		for i, s := range sheets {
			fmt.Fprintf(&b, "\n%s:\n", s.Title)
			if err := s.write(&b, i == 0); err != nil {
				return err
			}
		}
	}
	fmt.Fprintln(&b)
	for _, line := range r.remarks() {
		fmt.Fprintln(&b, line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// write writes a table, and below it, if they are wanted, the settings of its rows.
func (s sheet) write(b *strings.Builder, settings bool) error {
	width := len("policy")
	for _, row := range s.Rows {
		width = max(width, len(row.Name))
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(name string, cells []string) {
		fmt.Fprintf(t, "  %-*s\t%s\t\n", width, name, strings.Join(cells, "\t"))
	}
	line("policy", s.Head)
	for _, row := range s.Rows {
		line(row.Name, row.Cells)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, row := range s.Rows {
		if settings && row.Params != "" {
			fmt.Fprintf(b, "  %s: %s\n", row.Name, row.Params)
		}
	}
	return nil
}
