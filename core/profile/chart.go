package profile

import (
	"fmt"
	"math"
	"strings"
)

// Signs of the chart: what was measured, the model between what was measured, and the model beyond it.
const (
	signMeasured     = '●'
	signFitted       = '·'
	signExtrapolated = '~'
)

// Chart draws the model over the workers, from 0 to most, with what was measured on it, in so many columns and rows; nil where there is no room. It is
// of one number of servers.
func (p *Profile) Chart(servers, most, width, height int) []string {
	least, last := p.Range()
	most = max(most, last)
	columns, rows := width-10, height-2
	if columns < 12 || rows < 3 {
		return nil
	}
	grid := make([][]rune, rows)
	for i := range grid {
		grid[i] = []rune(strings.Repeat(" ", columns))
	}
	top := 0.0
	rate := make([]float64, columns)
	at := func(c int) float64 { return float64(c+1) / float64(columns) * float64(most) } // workers
	for c := range rate {
		// Between whole numbers of workers the curve is their straight line, so that few workers draw no stairs.
		w := at(c)
		lo := math.Floor(w)
		a, b := p.Model.Throughput(int(lo), servers), p.Model.Throughput(int(lo)+1, servers)
		rate[c] = a + (b-a)*(w-lo)
		top = max(top, rate[c])
	}
	for _, pt := range p.Points {
		if pt.Servers == servers {
			top = max(top, pt.Mean())
		}
	}
	if !(top > 0) {
		return nil
	}
	put := func(c int, rate float64, sign rune) {
		r := rows - 1 - int(rate/top*float64(rows-1)+0.5)
		if c >= 0 && c < columns && r >= 0 && r < rows {
			grid[r][c] = sign
		}
	}
	for c, v := range rate {
		sign := signFitted
		if w := at(c); w < float64(least) || w > float64(last) {
			sign = signExtrapolated
		}
		put(c, v, sign)
	}
	for _, pt := range p.Points {
		if pt.Servers == servers && pt.Why == "" {
			put(int(math.Round(float64(pt.Workers)/float64(most)*float64(columns)))-1, pt.Mean(), signMeasured)
		}
	}
	out := make([]string, 0, height)
	for r, line := range grid {
		label := ""
		if r == 0 || r == rows-1 || r == (rows-1)/2 {
			label = fmt.Sprintf("%.0f", top*float64(rows-1-r)/float64(rows-1))
		}
		out = append(out, strings.TrimRight(fmt.Sprintf("%8s │%s", label, string(line)), " "))
	}
	out = append(out, strings.Repeat(" ", 9)+"└"+strings.Repeat("─", columns))
	foot := fmt.Sprintf("%d", most)
	return append(out, strings.Repeat(" ", 10)+"workers"+strings.Repeat(" ", max(1, columns-7-len(foot)))+foot)
}
