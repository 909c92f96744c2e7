package main

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// column is one of a table. Where a table is too wide for its terminal, the columns of the least worth are left out first.
type column struct {
	name  string
	worth int
}

// row is a line of a table: a cell for each column and what is to be said beside them, below the row where there is no room.
type row struct {
	cells []string
	note  string
}

// table is a list for people that fits its terminal.
type table struct {
	columns []column
	rows    []row
}

// gap is what stands between two columns.
const gap = "  "

// text writes the table so that no line is wider than width (0: as wide as it gets), save where a word is. Its first column always stays.
func (t table) text(width int) string {
	if len(t.rows) == 0 {
		return ""
	}
	shown, missing := t.choose(width)
	widths := make([]int, len(t.columns))
	total := -len(gap)
	for _, c := range shown {
		widths[c] = t.width(c)
		total += len(gap) + widths[c]
	}
	beside := width <= 0
	if !beside {
		beside = !slices.ContainsFunc(t.rows, func(r row) bool { return r.note != "" && total+len(gap)+utf8.RuneCountInString(r.note) > width })
	}
	var out strings.Builder
	line := func(cell func(c int) string, note string) {
		var s string
		for _, c := range shown {
			s += padded(cell(c), widths[c]) + gap
		}
		if beside {
			s += note
		}
		out.WriteString(strings.TrimRight(s, " ") + "\n")
	}
	line(func(c int) string { return t.columns[c].name }, "")
	for _, r := range t.rows {
		first, last, inside := t.free(r, shown, widths)
		if !beside && inside {
			var s string
			for i, c := range shown {
				switch {
				case i == first:
					s += padded(r.note, t.room(shown[first:last+1], widths)) + gap
				case i < first || i > last:
					s += padded(r.cells[c], widths[c]) + gap
				}
			}
			out.WriteString(strings.TrimRight(s, " ") + "\n")
			continue
		}
		line(func(c int) string { return r.cells[c] }, r.note)
		if !beside && r.note != "" {
			out.WriteString(hang("    ", "    ", r.note, width))
		}
	}
	if len(missing) > 0 {
		out.WriteString(hang("", "", "(A wider terminal also shows "+strings.ToLower(listed(missing))+".)", width))
	}
	return out.String()
}

// free finds neighbours among the columns that are shown in which a row has nothing, and its note has room.
func (t table) free(r row, shown, widths []int) (first, last int, found bool) {
	for first = 0; first < len(shown) && r.note != ""; first = last + 1 {
		for last = first; last < len(shown) && r.cells[shown[last]] == ""; last++ {
		}
		if last > first && utf8.RuneCountInString(r.note) <= t.room(shown[first:last], widths) {
			return first, last - 1, true
		}
	}
	return 0, 0, false
}

// room is how wide some columns are together.
func (t table) room(columns, widths []int) int {
	n := -len(gap)
	for _, c := range columns {
		n += widths[c] + len(gap)
	}
	return n
}

// choose says which columns there is room for, in their order, and names the others: those of the most worth that fit.
func (t table) choose(width int) (shown []int, missing []string) {
	byWorth := make([]int, len(t.columns))
	for c := range byWorth {
		byWorth[c] = c
	}
	slices.SortStableFunc(byWorth[1:], func(a, b int) int { return t.columns[b].worth - t.columns[a].worth })
	total := -len(gap)
	for _, c := range byWorth {
		if more := len(gap) + t.width(c); width <= 0 || c == 0 || total+more <= width {
			total += more
			shown = append(shown, c)
		}
	}
	slices.Sort(shown)
	for c := range t.columns {
		if !slices.Contains(shown, c) {
			missing = append(missing, t.columns[c].name)
		}
	}
	return shown, missing
}

// width is that of a column's widest cell.
func (t table) width(c int) int {
	w := utf8.RuneCountInString(t.columns[c].name)
	for _, r := range t.rows {
		w = max(w, utf8.RuneCountInString(r.cells[c]))
	}
	return w
}

func padded(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}
