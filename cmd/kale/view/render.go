package view

import (
	"fmt"
	"slices"
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
	foot := f.foot(width)
	foot = foot[max(0, len(foot)-height+1):] // the last lines, under the first of all
	head := append([]string{f.head(width)}, f.legend(width)...)
	facts, why, before := f.facts(width), f.decision(width), append(f.doubt(width), f.change(width)...)
	after := f.rescale(width)
	air := 3 // an empty line under the chart, one under the facts, and one above the last lines
	room := func() int {
		return height - len(head) - len(foot) - len(facts) - len(why) - len(before) - len(after) - air - 1 // the times under the chart
	}
	if room() < 6 {
		air = 0
	}
	if room() < 3 {
		before = nil // what a small terminal can do without
	}
	tall := min(room(), max(8, height*2/5, min(height/2, room()-len(f.View.Workers)-3))) // what the table of workers leaves
	space := make([]string, air/3)
	lines, table := head, []string(nil)
	if chart := rateChart(f, width, tall); len(chart) > 0 {
		lines = append(append(lines, chart...), space...)
		table = f.workerTable(room()-tall, width)
	}
	lines = slices.Concat(lines, facts, space, why, before, after, table)
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

// head is the first line: what is shown on the left, the clock on the right. Where there is no room for all of it, the title is left out.
func (f Frame) head(width int) string {
	v := f.View
	title := f.bold().Render(f.title()) + "  "
	left := "job " + f.bold().Render(clean(v.Job)) + f.dim(" · ") + clean(v.Mode)
	switch {
	case v.Stopped:
		left += f.dim(" · ") + f.style("1").Render("stopped")
	case v.Stopping:
		left += f.dim(" · ") + f.style("3").Render("stopping")
	case v.State == core.StateObserved:
		left += f.dim(" · ") + f.style("3").Render("nothing of it runs")
	case v.Manual.Paused:
		left += f.dim(" · ") + f.style("3").Render("paused")
	case v.Manual.Pinned:
		left += f.dim(" · ") + f.style("3").Render(fmt.Sprintf("pinned at %d", v.Manual.Target))
	}
	if v.Emulated {
		left += f.dim(" · ") + f.style("5").Render("emulated accelerators")
	}
	right := "up " + job.Length(v.Now.Sub(v.Started)) + "  " + f.clock(v.Now)
	room := width - ansi.StringWidth(right) - 2
	if ansi.StringWidth(title+left) <= room {
		left = title + left
	}
	left = fit(left, room)
	return left + strings.Repeat(" ", max(1, width-ansi.StringWidth(left)-ansi.StringWidth(right))) + right
}

// legend says what the chart's lines are, with their newest values, in one line or, where there is no room, in two.
func (f Frame) legend(width int) []string {
	v := f.View
	arrivals := maybe(v.Sample.Rate, func(now float64) string { return rate(now) + " records/s" })
	known := f.style("6").Render("── arrivals ") + arrivals + "  " + f.style("5").Render("━━ capacity ") + maybe(v.Sample.Capacity, rate)
	expected, horizon := f.style("3").Render("╌╌ forecast ")+"none", ""
	if n := len(v.Forecast.Mean); n > 0 {
		expected = f.style("3").Render("╌╌ forecast ") + rate(v.Forecast.Mean[n-1])
		if n <= len(v.Forecast.Lower) && n <= len(v.Forecast.Upper) {
			expected += " (" + rate(v.Forecast.Lower[n-1]) + "–" + rate(v.Forecast.Upper[n-1]) + ")"
		}
		horizon = " in " + job.Length(f.horizon())
		if !v.Forecast.Trusted {
			horizon += f.style("1").Render(", not trusted")
		}
	}
	one := known + "  " + expected
	switch {
	case ansi.StringWidth(one+horizon)+2 <= width:
		return []string{strings.Replace(one+horizon, "╌╌", "╌╌··", 1)} // with the band's sign
	case v.Forecast.Trusted && ansi.StringWidth(one) <= width: // the axis says how far it reaches
		return []string{one}
	}
	return []string{known, expected + horizon}
}

// facts are the lines under the chart: what is so now.
func (f Frame) facts(width int) []string {
	return []string{f.workers(width), f.lag(width), f.model(width), f.totals()}
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
	wanted := Wanted(v)
	if s.Running == nil {
		return f.line("workers", f.dim(wanted)+f.style("3").Render("; how many train is unknown"))
	}
	text := fmt.Sprintf("  %d %s", *s.Running, Doing(s, v.Manual.Paused))
	starting := 0
	switch {
	case s.Pending == nil:
		text += f.style("3").Render("  others unknown")
	case *s.Pending > 0:
		starting = *s.Pending
		text += f.style("3").Render(fmt.Sprintf("  %d starting", starting))
	}
	if s.Draining > 0 {
		text += f.style("5").Render(fmt.Sprintf("  %d leaving", s.Draining))
	}
	text += f.dim("  of " + wanted)
	slots := max(v.Max, *s.Running+starting+s.Draining)
	room := max(4, min(width-labels-ansi.StringWidth(text), 40))
	shown := min(slots, room)
	if wide := min(4, room/max(slots, 1)); wide > 1 {
		shown = slots * wide // each worker is as many cells
	}
	scale := func(n int) int { return (n*shown + slots/2) / max(slots, 1) }
	running, pending, draining := scale(*s.Running), scale(*s.Running+starting), scale(*s.Running+starting+s.Draining)
	bar := f.style("4").Render(strings.Repeat("█", running)) + f.style("3").Render(strings.Repeat("▒", pending-running)) +
		f.style("5").Render(strings.Repeat("░", draining-pending)) + f.dim(strings.Repeat("·", max(0, shown-draining)))
	return f.line("workers", bar+text)
}

func (f Frame) lag(width int) string {
	v := f.View
	s := v.Sample
	if s.Lag == nil {
		why := s.LagUnknown
		if why == "" {
			why = s.Unknown
		}
		if why == "" {
			why = "not measured yet"
		}
		return f.line("lag", f.style("3").Render("unknown: ")+clean(why)+waiting(s))
	}
	cells := 20
	if width < 70 {
		cells = 10
	}
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
	full := min(cells, max(0, int(share*float64(cells)+0.5)))
	text := f.style(colour).Render(strings.Repeat("█", full)) + f.dim(strings.Repeat("·", cells-full)) + "  " + f.style(colour).Render(seconds(*s.Lag)+word) +
		f.dim(" of "+job.Length(v.MaxLag)) + waiting(s)
	if s.Repairing {
		text += f.style("3").Render("  repairing: trained records are counted again")
	}
	return f.line("lag", text)
}

// waiting is how many records wait, where that is known.
func waiting(s core.Sample) string {
	if s.LagRecords == nil {
		return ""
	}
	if *s.LagRecords == 1 {
		return "  1 record"
	}
	return fmt.Sprintf("  %s records", plan.Thousands(*s.LagRecords))
}

// model is what is trained of what could be, by the throughput model.
func (f Frame) model(width int) string {
	v := f.View
	s := v.Sample
	if s.Running == nil {
		return f.line("training", f.style("3").Render("unknown")+f.dim("  "+clean(v.Model)))
	}
	basis := ""
	if word := v.ModelBasis.Word(*s.Running, len(v.Serving())); word != "" {
		basis = " (" + word + ")"
	}
	busy := basis + ", busy " + maybe(s.Busy, percent)
	if v.Emulated {
		busy += " (emulated)"
	}
	if d := v.Decision; d != nil && d.Decision.Saturated {
		busy += f.style("1").Render("  SATURATED")
	}
	of := maybe(s.Trained, rate) + " of " + maybe(s.Capacity, rate)
	for _, text := range []string{of + " records/s" + busy + f.dim("  "+clean(v.Model)), of + " records/s" + busy} {
		if labels+ansi.StringWidth(text) <= width {
			return f.line("training", text)
		}
	}
	return f.line("training", of+"/s"+busy)
}

// totals are what was trained since the job began, and first what could not be.
func (f Frame) totals() string {
	v := f.View
	text := "unknown"
	if v.Trained != nil {
		text = plan.Thousands(*v.Trained) + " records"
	}
	if v.Dead != nil && *v.Dead > 0 {
		text += f.style("3").Render(fmt.Sprintf("  %s could not be decoded", plan.Thousands(*v.Dead)))
	}
	if v.Lost != nil && *v.Lost > 0 {
		text += f.style("1").Render(fmt.Sprintf("  %s lost to retention", plan.Thousands(*v.Lost)))
	}
	if v.CutOff != nil && *v.CutOff > 0 {
		text += f.style("1").Render(fmt.Sprintf("  %s cut off the log once trained", plan.Thousands(*v.CutOff)))
	}
	if v.AUC != nil && *v.AUC >= 0 && *v.AUC <= 1 {
		text += fmt.Sprintf("  AUC so far %.4f", *v.AUC)
	}
	up, known, servers := 0, true, v.Serving()
	for _, s := range servers {
		if known = known && s.Up != nil; known && *s.Up {
			up++
		}
	}
	colour, count := "8", fmt.Sprintf("  %d/%s up", up, job.Count(len(servers), "server"))
	switch {
	case !known:
		colour, count = "3", fmt.Sprintf("  %s, state unknown", job.Count(len(servers), "server"))
	case up < len(servers):
		colour = "1"
	}
	return f.line("trained", text+f.style(colour).Render(count))
}

// decision is the last one.
func (f Frame) decision(width int) []string {
	v := f.View
	if v.Decision == nil {
		return []string{f.line("decision", f.dim("none yet"))}
	}
	return f.paragraph("decision", f.sentence(v.Decision), width, 2)
}

// doubt is why the forecast is not trusted.
func (f Frame) doubt(width int) []string {
	fc := f.View.Forecast
	if fc.Trusted || fc.Reason == "" {
		return nil
	}
	return f.paragraph("forecast", "not trusted: "+fc.Reason, width, 2)
}

// change is the last decision that changed something, where that is not the last one.
func (f Frame) change(width int) []string {
	v := f.View
	if v.Decision == nil || v.LastChange == nil || v.LastChange.Decision.At.Equal(v.Decision.Decision.At) {
		return nil
	}
	if now, was := v.Decision, v.LastChange; was.ObserveOnly && now.Decision.Target == was.Decision.Target && now.Decision.Current == was.Decision.Current {
		return nil // it is that decision again
	}
	return f.paragraph(ChangeName("change", "hold", v.LastChange), f.sentence(v.LastChange), width, 2)
}

// ChangeName is what a decision that says something new is called: a change or a hold, as the caller names them, or what would be done where nothing is.
func ChangeName(change, hold string, r *core.Record) string {
	switch {
	case r.Decision.Kind == plan.KindHold: // a new reason not to do anything
		return hold
	case r.ObserveOnly:
		return "would do"
	}
	return change
}

// sentence says when and what was decided, and why.
func (f Frame) sentence(r *core.Record) string {
	return f.clock(r.Decision.At) + " " + Decided(r, Reason(r))
}

// Reason is why something was decided, without the gate's words on a forecast that is not trusted where those are long: they would leave no room for
// what was decided by instead, and kale status has them.
func Reason(r *core.Record) string {
	why := r.Observation.Forecast.Reason
	if len(why) < 40 {
		return r.Decision.Reason
	}
	return strings.ReplaceAll(r.Decision.Reason, ": "+why, "")
}

// Decided says what was decided and why, with what a pool gives where that is less than was asked for.
func Decided(r *core.Record, why string) string {
	d, text := r.Decision, ""
	switch {
	case d.Kind == plan.KindHold: // Its reason begins with the words.
	case d.Current != d.Target:
		text = fmt.Sprintf("%s %d → %d: ", d.Kind.Words(), d.Current, d.Target)
	default:
		text = fmt.Sprintf("%s at %d: ", d.Kind.Words(), d.Target)
	}
	text += why
	if r.Pool != nil && r.Pool.Holds(d) {
		text += fmt.Sprintf("; %s %s", r.Pool.Job.Name, r.Pool.Why)
	}
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
