package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

// Frame is one moment of a picture.
type Frame struct {
	// View is the scheduler's; nil: it has not looked yet.
	View *core.View
	// Trail holds the samples that were seen, by time; the chart's past capacity is theirs.
	Trail []core.Sample
	// Finished is the last rescale that ended; may be nil.
	Finished *core.Rescale
	// Title and Hint are the first words and the last line; see [Options]. Note is a line above the last one.
	Title, Note, Hint string
	// Zone is that of the clock; nil is the machine's.
	Zone *time.Location
	// Coloured says that the terminal knows colours, and that its user wants them.
	Coloured bool
}

// labels is the width of the words before the lines under the chart.
const labels = 10

// Render draws a frame as lines, at most height of them and none wider than width.
func Render(f Frame, width, height int) string {
	width, height = max(width, 1), max(height, 1)
	if f.View == nil {
		return cut([]string{f.bold().Render(f.title()), "", "The scheduler has not looked at the job yet …", clean(f.Note), "", f.dim(f.hint())}, width, height)
	}
	body, foot := f.body(width), f.foot(width)
	foot = foot[max(0, len(foot)-height+1):] // the last lines, under the first of all
	head := []string{f.head(width)}
	room := height - len(head) - len(foot) - len(body) - 4                           // the legend, the times and two empty lines
	tall := min(room, max(8, height*2/5, min(height/2, room-len(f.View.Workers)-3))) // what the table of workers leaves
	if chart := rateChart(f, width, tall); len(chart) > 0 {
		head = append(append(append(head, f.legend()), chart...), "")
		body = append(body, f.workerTable(height-len(head)-len(body)-len(foot)-1, width)...)
	}
	lines := append(head, body...)
	if gap := height - len(lines) - len(foot); gap > 0 {
		lines = append(lines, make([]string, gap)...)
	} else if gap < 0 {
		lines = lines[:height-len(foot)]
	}
	return cut(append(lines, foot...), width, height)
}

func cut(lines []string, width, height int) string {
	lines = lines[:min(len(lines), height)]
	for i := range lines {
		lines[i] = fit(lines[i], width)
	}
	return strings.Join(lines, "\n")
}

// ink is how text is written: the parameters of the terminal's command for it, "" for none.
type ink string

// Render writes text so, and what follows it plainly.
func (i ink) Render(s string) string {
	if i == "" || s == "" {
		return s
	}
	return "\x1b[" + string(i) + "m" + s + "\x1b[m"
}

// style is a colour of the terminal's own palette, "0" to "7", or "8", which is grey.
func (f Frame) style(colour string) ink {
	switch {
	case !f.Coloured:
		return ""
	case colour == "8":
		return "90"
	}
	return ink("3" + colour)
}

func (f Frame) bold() ink {
	if !f.Coloured {
		return ""
	}
	return "1"
}

func (f Frame) dim(s string) string { return f.style("8").Render(s) }

func (f Frame) clock(t time.Time) string {
	if f.Zone != nil {
		return t.In(f.Zone).Format("15:04:05")
	}
	return t.Local().Format("15:04:05")
}

func (f Frame) title() string {
	if f.Title == "" {
		return "Kale"
	}
	return clean(f.Title)
}

func (f Frame) hint() string {
	if f.Hint == "" {
		return "q or Ctrl-C ends this picture"
	}
	return clean(f.Hint)
}

// head is the first line: what is shown on the left, the clock on the right.
func (f Frame) head(width int) string {
	v := f.View
	left := f.bold().Render(f.title()) + "  job " + f.bold().Render(clean(v.Job)) + f.dim(" · ") + clean(v.Mode)
	if v.Emulated {
		left += f.dim(" · ") + f.style("5").Render("emulated accelerators")
	}
	switch {
	case v.Stopped:
		left += f.dim(" · ") + f.style("1").Render("stopped")
	case v.Stopping:
		left += f.dim(" · ") + f.style("3").Render("stopping")
	case v.Manual.Paused:
		left += f.dim(" · ") + f.style("3").Render("paused")
	case v.Manual.Pinned:
		left += f.dim(" · ") + f.style("3").Render(fmt.Sprintf("pinned at %d", v.Manual.Target))
	}
	right := "up " + job.Length(v.Now.Sub(v.Started)) + "  " + f.clock(v.Now)
	gap := width - ansi.StringWidth(left) - ansi.StringWidth(right)
	if gap < 2 {
		left = fit(left, width-ansi.StringWidth(right)-2)
		gap = max(1, width-ansi.StringWidth(left)-ansi.StringWidth(right))
	}
	return left + strings.Repeat(" ", gap) + right
}

// legend says what the chart's lines are, with their newest values.
func (f Frame) legend() string {
	v := f.View
	arrivals, forecast := "unknown", "none"
	if now, ok := last(f.Trail, func(s core.Sample) *float64 { return s.Rate }); ok && v.Sample.Rate != nil {
		arrivals = rate(now)
	}
	if len(v.Forecast.Mean) > 0 {
		forecast = rate(v.Forecast.Mean[len(v.Forecast.Mean)-1]) + " in " + job.Length(f.horizon())
		if !v.Forecast.Trusted {
			forecast = f.style("1").Render("not trusted")
		}
	}
	return f.bold().Render("records/s") + "  " + f.style("6").Render("── arrivals ") + arrivals + "  " + f.style("5").Render("━━ capacity ") + rate(v.Sample.Capacity) +
		"  " + f.style("3").Render("╌╌·· forecast ") + forecast
}

// body are the lines under the chart.
func (f Frame) body(width int) []string {
	lines := []string{f.workers(width), f.lag(), f.model(), f.totals(), ""}
	lines = append(lines, f.decisions(width)...)
	return append(lines, f.rescale(width)...)
}

// line is a label and what it says.
func (f Frame) line(label, text string) string {
	return f.dim(fmt.Sprintf("%-*s", labels, label)) + text
}

// paragraph is a label and text of at most n lines.
func (f Frame) paragraph(label, text string, width, n int) []string {
	var out []string
	for i, l := range wrapped(text, width-labels, n) {
		if i > 0 {
			label = ""
		}
		out = append(out, f.line(label, l))
	}
	return out
}

func (f Frame) workers(width int) string {
	s, v := f.View.Sample, f.View
	text := fmt.Sprintf("  %d running", s.Running)
	if s.Pending > 0 {
		text += f.style("3").Render(fmt.Sprintf("  %d pending", s.Pending))
	}
	if s.Draining > 0 {
		text += f.style("5").Render(fmt.Sprintf("  %d draining", s.Draining))
	}
	text += f.dim(fmt.Sprintf("  target %d of %d–%d, %d held", s.Target, v.Min, v.Max, s.Held))
	slots := max(v.Max, s.Running+s.Pending+s.Draining)
	room := max(4, min(width-labels-ansi.StringWidth(text), 40))
	shown := min(slots, room)
	if wide := min(4, room/max(slots, 1)); wide > 1 {
		shown = slots * wide // each worker is as many cells
	}
	scale := func(n int) int { return (n*shown + slots/2) / max(slots, 1) }
	running, pending, draining := scale(s.Running), scale(s.Running+s.Pending), scale(s.Running+s.Pending+s.Draining)
	bar := f.style("4").Render(strings.Repeat("█", running)) + f.style("3").Render(strings.Repeat("▒", pending-running)) +
		f.style("5").Render(strings.Repeat("░", draining-pending)) + f.dim(strings.Repeat("·", max(0, shown-draining)))
	return f.line("workers", bar+text)
}

func (f Frame) lag() string {
	v := f.View
	s := v.Sample
	if s.Lag == nil {
		why := s.Unknown
		if why == "" {
			why = "not measured yet"
		}
		return f.line("lag", f.style("3").Render("unknown: ")+clean(why))
	}
	const cells = 20
	share := 0.0
	if v.MaxLag > 0 {
		share = *s.Lag / v.MaxLag.Seconds()
	}
	colour, word := "2", ""
	switch {
	case share > 1:
		colour, word = "1", " OVER ITS OBJECTIVE"
	case share > 0.5:
		colour = "3"
	}
	full := min(cells, max(0, int(share*cells+0.5)))
	text := f.style(colour).Render(strings.Repeat("█", full)) + f.dim(strings.Repeat("·", cells-full)) + "  " + f.style(colour).Render(seconds(*s.Lag)+word) +
		f.dim(" of "+job.Length(v.MaxLag)) + fmt.Sprintf("  %s records", plan.Thousands(uint64(max(0, s.LagRecords))))
	if s.Repairing {
		text += f.style("3").Render("  repairing: trained records are counted again")
	}
	return f.line("lag", text)
}

func (f Frame) model() string {
	v := f.View
	n := v.Sample.Running
	basis := ""
	if word := v.ModelBasis.Word(n, len(v.Servers)); word != "" {
		basis = " (" + word + ")"
	}
	text := fmt.Sprintf("%s of F(%d) = %s/s%s, busy %s", rate(v.Sample.Trained), n, rate(v.Sample.Capacity), basis, percent(v.Sample.Busy))
	if v.Emulated {
		text += " (emulated)"
	}
	if d := v.Decision; d != nil && d.Decision.Saturated {
		text += f.style("1").Render("  SATURATED")
	}
	return f.line("training", text+f.dim("  "+clean(v.Model)))
}

func (f Frame) totals() string {
	v := f.View
	text := "unknown number of records"
	if v.Trained != nil {
		text = plan.Thousands(*v.Trained) + " records"
	}
	if v.AUC != nil && *v.AUC >= 0 && *v.AUC <= 1 {
		text += fmt.Sprintf("  AUC so far %.4f", *v.AUC)
	}
	dead, lost := fmt.Sprintf("  %s dead", plan.Thousands(v.Dead)), fmt.Sprintf("  %s lost", plan.Thousands(v.Lost))
	if v.Dead > 0 {
		dead = f.style("3").Render(dead)
	} else {
		dead = f.dim(dead)
	}
	if v.Lost > 0 {
		lost = f.style("1").Render(lost)
	} else {
		lost = f.dim(lost)
	}
	up := 0
	for _, s := range v.Servers {
		if s.Up {
			up++
		}
	}
	return f.line("trained", text+dead+lost+f.dim(fmt.Sprintf("  servers %d/%d up", up, len(v.Servers))))
}

// decisions are the last one, and the last that changed something where that is another.
func (f Frame) decisions(width int) []string {
	v := f.View
	if v.Decision == nil {
		return []string{f.line("decision", f.dim("none yet"))}
	}
	out := f.paragraph("decision", f.sentence(v.Decision), width, 2)
	if v.LastChange != nil && !v.LastChange.Decision.At.Equal(v.Decision.Decision.At) {
		out = append(out, f.paragraph("change", f.sentence(v.LastChange), width, 2)...)
	}
	return out
}

// sentence says when and what was decided, and why.
func (f Frame) sentence(r *core.Record) string { return f.clock(r.Decision.At) + " " + decided(r) }

// decided says what was decided and why.
func decided(r *core.Record) string {
	d, text := r.Decision, ""
	switch {
	case d.Kind == plan.KindHold: // Its reason begins with the words.
	case d.Current != d.Target:
		text = fmt.Sprintf("%s %d → %d: ", d.Kind, d.Current, d.Target)
	default:
		text = fmt.Sprintf("stay at %d: ", d.Target)
	}
	text += d.Reason
	if r.ObserveOnly {
		text += " (observed only: nothing is done)"
	}
	return text
}

// rescale is the one under way, or the last finished one and what it cost.
func (f Frame) rescale(width int) []string {
	v := f.View
	if r := v.Rescale; r != nil {
		return []string{f.line("rescale", f.style("3").Render(fmt.Sprintf("%d → %d under way", r.From, r.To))+f.dim(" for "+job.Length(v.Now.Sub(r.Decided))))}
	}
	if f.Finished == nil {
		return []string{f.line("rescale", f.dim("none yet"))}
	}
	return f.paragraph("rescale", f.clock(f.Finished.Decided)+" "+RescaleWords(*f.Finished, f.Trail, f.horizon()), width, 2)
}

func (f Frame) horizon() time.Duration {
	return time.Duration(len(f.View.Forecast.Mean)) * f.View.Forecast.Step
}

// foot are the last lines: problems, the note, the hint.
func (f Frame) foot(width int) []string {
	var out []string
	const most = 3
	for i, p := range f.View.Problems {
		if i == most-1 && len(f.View.Problems) > most {
			out = append(out, f.style("1").Render(fmt.Sprintf("✗ and %d more problems: kale status lists them", len(f.View.Problems)-i)))
			break
		}
		lines := wrapped(p, width-2, 2)
		for k, l := range lines {
			sign := "✗ "
			if k > 0 {
				sign = "  "
			}
			out = append(out, f.style("1").Render(sign+l))
		}
	}
	if note := clean(f.Note); note != "" {
		out = append(out, note)
	}
	return append(out, f.dim(f.hint()))
}
