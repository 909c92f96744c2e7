package replay

import (
	"fmt"
	"slices"
)

// sheet is one table of the report.
type sheet struct {
	Title string
	Head  []string // of the cells; the first column has names
	Rows  []sheetRow
}

type sheetRow struct {
	Name, Params string
	Ours, Limit  bool
	Cells        []string
}

// column is a figure of the tables.
type column struct {
	name string
	cell func(p *Row) string
}

// numbered writes a figure with so many digits after the point.
func numbered(name, format string, figure func(p *Row) float64) column {
	return column{name, func(p *Row) string { return fmt.Sprintf(format, figure(p)) }}
}

// lagMax is the column of the largest lag of a seed.
const lagMax = "lag max"

// The columns of the tables, in groups.
var (
	columnsOfADay = []column{
		numbered("GPU-h", "%.1f", func(p *Row) float64 { return p.GPUHours }),
		numbered("over %", "%.2f", func(p *Row) float64 { return p.ViolationPct }),
		numbered("acc. lag", "%.0f", func(p *Row) float64 { return p.AccumulatedLagMin }),
		numbered("down", "%.0f", func(p *Row) float64 { return p.DowntimeMin }),
		numbered("rescales", "%.1f", func(p *Row) float64 { return p.Rescales }),
	}
	columnsOfRecords = []column{
		{"lag p50", func(p *Row) string { return short(p.LagP50) }},
		{"lag p99", func(p *Row) string { return short(p.LagP99) }},
		{lagMax, func(p *Row) string { return short(p.LagMax) }},
		numbered("AUC %", "%.2f", func(p *Row) float64 { return p.AUCPct }),
		numbered("held %", "%.0f", func(p *Row) float64 { return p.GPUAllocatedPct }),
		numbered("busy %", "%.0f", func(p *Row) float64 { return p.GPUBusyPct }),
	}
)

// columnsOfCost are what a day costs in all; its interval is left out where there is one seed, and with it none.
func (r *Report) columnsOfCost() []column {
	out := []column{numbered("cost", "%.1f", func(p *Row) float64 { return p.Cost })}
	if r.Seeds > 1 {
		out = append(out, numbered("±", "%.1f", func(p *Row) float64 { return p.CI95.Cost }))
	}
	out = append(out, numbered("x oracle", "%.3f", func(p *Row) float64 { return p.CostRatioOracle }))
	if r.floored() {
		out = append(out, column{"above min", func(p *Row) string {
			if p.CostAboveFloorRatioOracle <= 0 {
				return "-"
			}
			return fmt.Sprintf("%.3f", p.CostAboveFloorRatioOracle)
		}})
	}
	return out
}

// wide has all figures of a group, the oracles' first; narrow those that decide, and detailed the others, for a terminal.
func (r *Report) wide(g group) sheet {
	return r.sheet(g.title, g.rows, slices.Concat(columnsOfADay, columnsOfRecords, r.columnsOfCost()))
}

func (r *Report) narrow(g group) sheet {
	return r.sheet(g.title+", a day", g.rows, slices.Concat(columnsOfADay, r.columnsOfCost()))
}

func (r *Report) detailed(g group) sheet {
	return r.sheet(g.title+", records and GPUs", g.rows, columnsOfRecords)
}

func (r *Report) sheet(title string, rows []Row, columns []column) sheet {
	s := sheet{Title: title}
	for _, c := range columns {
		name := c.name
		if name == lagMax && r.Seeds > 1 { // a mean, as all figures are, and not the largest of all
			name = "mean max"
		}
		s.Head = append(s.Head, name)
	}
	oracles := r.oracles()
	for i, p := range append(oracles, rows...) {
		row := sheetRow{Name: r.title(p), Params: formatParams(p.Params), Limit: i < len(oracles), Ours: p.Name == "cost"}
		if other := r.cheaper(&p); other != nil {
			row.Params += "; dearer here than its row \"" + other.label() + "\""
		}
		if p.lacking {
			row.Params = "none found within " + row.Params + " (minutes a day)"
		}
		for _, c := range columns {
			cell := "-"
			if !p.lacking {
				cell = c.cell(&p)
			}
			row.Cells = append(row.Cells, cell)
		}
		s.Rows = append(s.Rows, row)
	}
	return s
}

// beside holds the figures of the paper's settings against the published ones; ok is false where there are none to hold them against.
func (r *Report) beside(g group) (s sheet, ok bool) {
	if !g.paper {
		return s, false
	}
	s = sheet{Title: "Beside Table 3 of Kale (SoCC '24), a day"}
	auc := columnsOfRecords[3]
	columns := append(slices.Clone(columnsOfADay), auc)
	for _, c := range columns {
		s.Head = append(s.Head, c.name, "paper")
	}
	for _, p := range g.rows {
		t, known := published[p.Name]
		if !known || p.Setting != LabelPaper {
			continue
		}
		theirs := []string{
			fmt.Sprintf("%.0f", t.GPUHours), fmt.Sprintf("%.2f", t.Violation), fmt.Sprintf("%.0f", t.Lag), fmt.Sprintf("%.0f", t.Downtime), fmt.Sprintf("%.0f", t.Rescales),
			fmt.Sprintf("%.1f", t.AUC),
		}
		row := sheetRow{Name: r.title(p)}
		for i, c := range columns {
			row.Cells = append(row.Cells, c.cell(&p), theirs[i])
		}
		s.Rows = append(s.Rows, row)
	}
	return s, len(s.Rows) > 0
}
