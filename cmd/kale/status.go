package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/cmd/kale/view"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

type statusFlags struct {
	varFlags
	watch bool
	every span
}

func statusCommand(a *app) *cobra.Command {
	f := statusFlags{every: span(2 * time.Second)}
	c := &cobra.Command{
		Use: "status [JOB]", SuggestFor: []string{"ps", "ls", "list", "show", "top", "jobs"}, Short: "What a job does now, or which jobs there are",
		Long: `Shows what a job does. It works with a running scheduler and without: then it tells from what the last one wrote down, and for a
job that was not stopped from its chief and the backend, whether the job has stopped, trains on, or was never started. With no
JOB, a line for every job that has run here; kale forget takes one from that list.

A job is one of: never started, observed (autoscale.mode is "observe", and nothing of it runs), starting (nothing is trained yet, or until a
parameter server that is down or silent is back), cannot start (its processes are refused or end again and again: the cause is beside
it), running, stuck (something stands in its way until a person has done something about it), paused, stopping, stopped, gone
(it was not stopped, and nothing of it runs), unknown.

-json prints one object for a JOB, and an array without. Times of day are RFC 3339, durations seconds under names that end in _s, rates
records per second. What is not known is left out, and what is 0 is known to be. Of a JOB:

  job, state, scheduler   its name, its state as above, and whether a scheduler was asked
  says                    the state in a sentence, where no scheduler was asked
  sample                  what was seen last: rate (arrivals), trained (both records/s), lag_s and lag_records, lag_unknown (why they are not known), capacity (of the workers that run), target, running, pending, draining, held (workers), busy (0 to 1), forecast, unknown (why something is not known)
  decision, last_change   the last decision and the last that scaled (of one that is observed only: the last that differed from the one before), with all that they were made from: see kale explain
  rescale, last_rescale   the change of workers under way and the last that ended; rollbacks, server_renewal, waits_for likewise
  forecast, history       what is expected from now on, and the arrivals that it was made from; calibrated says that its bands rest on 19 or more past outcomes at each horizon (outcomes: how many), that it was scored, and that measurements are recent
  workers, servers        one object for each process
  trained_records, auc    since the job began; dead_records, lost_offsets: what could not be trained; cut_off_offsets: trained before the end of the log was cut off, what it has there now is not
  totals_past             the totals are those of when its chief was heard last; snapshot_records: what its snapshots have, where that is less; most_records (in totals): what it had before it was restored with less
  problems                what an operator should read, the gravest first`,
		Args: upTo(1), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.repeat(cmd.Context(), f, a.overview)
			}
			name, err := a.jobName(args[0], f.varFlags)
			if err != nil {
				return err
			}
			return a.repeat(cmd.Context(), f, func(ctx context.Context, w io.Writer) error {
				return a.jobStatus(ctx, w, name)
			})
		},
	}
	a.jsonFlag(c, "print the whole picture as JSON, times in seconds (_s); with -watch one line each")
	f.register(c)
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "show it again and again until q or Ctrl-C; the arrow keys go through what does not fit")
	c.Flags().Var(positive{&f.every}, "every", "how often -watch shows it")
	return c
}

// repeat prints once or, with -watch, until ctx ends: on a terminal over what was printed before, and until its user presses q; else below it.
func (a *app) repeat(ctx context.Context, f statusFlags, show func(ctx context.Context, w io.Writer) error) error {
	if !f.watch {
		return show(ctx, a.out)
	}
	if !a.asJSON && a.pictured(a.out) {
		return view.Pages(ctx, a.in, behind(a.out), time.Duration(f.every), func(ctx context.Context) (string, error) {
			var b strings.Builder
			err := show(ctx, &b)
			return b.String(), err
		})
	}
	t := time.NewTicker(time.Duration(f.every))
	defer t.Stop()
	for {
		var b strings.Builder
		err := show(ctx, &b)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		fmt.Fprint(a.out, b.String())
		if !a.asJSON {
			fmt.Fprintln(a.out)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// jobState is a job in the overview.
type jobState struct {
	Job       string     `json:"job"`
	State     core.State `json:"state"`
	Scheduler bool       `json:"scheduler"`
	Says      string     `json:"says"`
	File      string     `json:"file,omitempty"`
}

func (a *app) overview(ctx context.Context, w io.Writer) error {
	names, moved, err := a.stateFolders()
	if err != nil {
		return err
	}
	states := make([]jobState, len(names))
	var all sync.WaitGroup // all at once: one that does not answer keeps nobody waiting for the others
	for i, name := range names {
		all.Go(func() {
			states[i] = a.brief(ctx, name)
			if how, err := a.known(name); err == nil {
				states[i].File = how.File
			}
		})
	}
	all.Wait()
	if a.asJSON {
		return printJSON(w, states)
	}
	width, _ := terminal(a.out)
	text := overviewText(states, width)
	for _, name := range slices.Sorted(maps.Keys(moved)) {
		if !slices.Contains(names, name) {
			text += folded(fmt.Sprintf("job %q is not listed, since its state folder was moved: %s\n", name, a.putBack(name, moved[name])), width)
		}
	}
	if text == "" {
		root, err := a.stateRoot()
		if err != nil {
			return err
		}
		text = folded(fmt.Sprintf("no job is known on this machine (state folder %s): kale run JOB.hcl runs one, and kale status JOB.hcl finds one whose state was moved or removed\n", root), width)
	}
	_, err = io.WriteString(w, text)
	return err
}

// longSays is how much may be said of a job before its line, on no terminal, no longer widens the lines of the others.
const longSays = 80

// overviewText is a line for each job. Where there is no room for it, the job file's path is left out, and what is said goes on under itself.
func overviewText(states []jobState, width int) string {
	job, state, says, file, column := 0, 0, 0, 0, 0
	for _, s := range states {
		job, state = max(job, utf8.RuneCountInString(s.Job)), max(state, utf8.RuneCountInString(string(s.State)))
		n := utf8.RuneCountInString(s.Says)
		says, file = max(says, n), max(file, utf8.RuneCountInString(s.File))
		if width > 0 || n <= longSays {
			column = max(column, n)
		}
	}
	withFile := width <= 0 || job+state+says+file+3*len(gap) <= width
	var out strings.Builder
	for _, s := range states {
		head := padded(s.Job, job) + gap + padded(string(s.State), state) + gap
		if withFile {
			out.WriteString(strings.TrimRight(head+padded(s.Says, column)+gap+s.File, " ") + "\n")
			continue
		}
		out.WriteString(hang(head, strings.Repeat(" ", utf8.RuneCountInString(head)), s.Says, width))
	}
	return out.String()
}

func (a *app) view(ctx context.Context, name string) (*core.View, error) {
	c, err := a.connect(ctx, name)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return a.viewFrom(ctx, c)
}

// viewFrom is a job's picture from its scheduler, which is not waited for longer than it takes to be told that it hangs.
func (a *app) viewFrom(ctx context.Context, c *api.Client) (*core.View, error) {
	ctx, enough := context.WithTimeout(ctx, 2*a.patience)
	defer enough()
	return c.Status(ctx)
}

func (a *app) jobStatus(ctx context.Context, w io.Writer, name string) error {
	v, g, err := a.viewOrGlance(ctx, name, true)
	if g != nil && g.State == core.StateStopped {
		a.askTopic(ctx, g)
	}
	width, _ := terminal(a.out) // also where w is what -watch will print there
	switch {
	case err != nil:
		return err
	case a.asJSON && v != nil:
		return printJSON(w, trimmed(v))
	case a.asJSON:
		return printJSON(w, g)
	case v != nil:
		return writeStatus(w, v, width)
	}
	return writeGlance(w, g, a.advice(g), width)
}

// trimmed is a view without what was not measured before the first rate that was: a history may reach back for days.
func trimmed(v *core.View) *core.View {
	short := *v
	short.History = short.History.Trimmed()
	for _, r := range []**core.Record{&short.Decision, &short.LastChange} {
		if *r != nil {
			c := **r
			c.Observation.Rates = c.Observation.Rates.Trimmed()
			*r = &c
		}
	}
	return &short
}

// writeStatus prints a view for people, on a terminal of a width (0: on none).
func writeStatus(w io.Writer, v *core.View, width int) error {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	s := v.Sample
	by := "scheduler up"
	if v.StopProcess != 0 {
		by = stopsIt(v.StopProcess)
	}
	row("job", "%s, %s, %s, %s since %s", v.Job, stateWords(v), v.Mode, by, clock(v.Started, v.Now))
	if v.State == core.StateStuck {
		row("stuck", "%s: see the problems", v.Stuck)
	}
	if v.Cause != "" {
		row("because", "%s", v.Cause)
	}
	for _, p := range v.Problems {
		if v.Cause == "" || strings.TrimSuffix(p, core.TriedAgain) != v.Cause {
			row("problem", "%s", p)
		}
	}
	if age := v.Now.Sub(s.At); !s.At.IsZero() && age > time.Second {
		why := ""
		if s.Unknown == "" && v.Watch > 0 { // else it waits for who does not answer
			why = fmt.Sprintf(": the scheduler looks every %s (autoscale.watch)", job.Length(v.Watch))
		}
		row("seen", "%s ago%s", job.Length(age), why)
	}
	switch {
	case v.Unlisted == "":
	case v.Listed.IsZero():
		row("cluster", "has not told of all processes since the scheduler is up")
	default:
		row("cluster", "last told of all processes %s ago, at %s", job.Length(v.Now.Sub(v.Listed)), clock(v.Listed, v.Now))
	}
	if s.Lag == nil {
		why := s.LagUnknown
		if slices.ContainsFunc(v.Problems, func(p string) bool { return strings.HasPrefix(p, why) }) {
			why = "" // it is said above
		}
		row("lag", "unknown%s%s; the objective is at most %s", inBrackets(why), waiting(s), job.Length(v.MaxLag))
	} else {
		row("lag", "%s of at most %s%s%s", lag(s), job.Length(v.MaxLag), waiting(s), repairing(s))
	}
	switch {
	case s.Rate == nil && s.Trained == nil:
		row("rate", "unknown")
	case s.Trained == nil:
		row("rate", "%s, how many are trained is unknown", arriving(s))
	case v.Manual.Paused:
		row("rate", "%s; while it is paused, none are trained", arriving(s))
	case s.Rate == nil:
		row("rate", "%s, %s records/s are trained", arriving(s), number(*s.Trained))
	default:
		row("rate", "%s, %s are trained", arriving(s), number(*s.Trained))
	}
	row("forecast", "%s", forecastWords(s.Forecast, v.Forecast))
	for _, text := range v.Calendar {
		row("calendar", "%s", text)
	}
	if s.Running == nil || s.Capacity == nil || s.Busy == nil {
		row("workers", "%s; how many train is unknown%s", view.Wanted(v), emulated(v))
	} else {
		starting := "how many start is unknown"
		if s.Pending != nil {
			starting = fmt.Sprintf("%d starting", *s.Pending)
		}
		row("workers", "%d %s of %s, %s, %d leaving; capacity %s records/s, %.0f %% busy%s", *s.Running, view.Doing(s, v.Manual.Paused), view.Wanted(v),
			starting, s.Draining, number(*s.Capacity), 100**s.Busy, emulated(v))
	}
	if v.Pool != nil {
		row("pool", "%s", v.Pool)
	}
	row("throughput", "%s", strings.TrimSuffix(v.Model+"; "+v.ModelBasis.String(), "; "))
	if m := manualLine(v.Manual); v.Manual.Paused || v.Manual.Pinned {
		row("order", "%s", m)
	}
	if r := v.Rescale; r != nil {
		row("rescale", "%d → %d under way since %s", r.From, r.To, job.Length(v.Now.Sub(r.Decided)))
	}
	if v.Waits != "" {
		row("waits for", "%s", v.Waits)
	}
	if r := v.LastRescale; r != nil {
		row("last rescale", "%s", view.RescaleWords(*r, nil, 0))
	}
	if r := v.Retraining; r != nil {
		row("retraining", "%s", retrainingWords(r, v.Now))
	}
	if r := v.WorkerRenewal; r != nil {
		row("worker renewal", "%s", r)
	}
	if r := v.ServerRenewal; r != nil {
		row("server renewal", "%s", r)
	}
	if j := v.LastJoin; j != nil {
		queue := ""
		if v.Join.Queue > 0 {
			queue = fmt.Sprintf(", and before it %s in the cluster's queue", job.Length(v.Join.Queue))
		}
		row("join time", "%s, the median of %s%s; the last%s was %s", job.Length(v.Join.Value-v.Join.Queue), job.Count(v.Join.Samples, "rescale"), queue, decidedAt(*j, v.Now), j)
	}
	writeRecords(row, v.Now, v.LastChange, v.Decision, v.Problems)
	if v.Trained != nil || v.State != core.StateObserved { // nobody could tell
		row("trained", "%s%s%s", trainedTotal(v.Trained), aucSoFar(v.AUC), lossesOf(v))
	}
	writeNotes(row, v.Job, v.Notes)
	if err := t.Flush(); err != nil {
		return err
	}
	if _, err := io.WriteString(w, folded(text.String(), width)); err != nil {
		return err
	}
	return writeProcesses(w, v.Now, v.Workers, v.Servers, width)
}

// notesShown is how many notes a status has, so that those of days do not push the rest off the screen.
const notesShown = 5

// writeNotes prints the last notes.
func writeNotes(row func(name, format string, args ...any), job string, notes []core.Note) {
	if earlier := len(notes) - notesShown; earlier > 0 {
		row("notes", "%d earlier, which kale status %s -json has", earlier, job)
		notes = notes[earlier:]
	}
	for _, n := range notes {
		row("note", "%s  %s", n.At.Local().Format("2006-01-02 15:04:05"), n.Text)
	}
}

// writeRecords prints the last change and the last decision, each with its day where that is another than now's. What problems say already is not told again.
func writeRecords(row func(name, format string, args ...any), now time.Time, change, last *core.Record, problems []string) {
	if d := change; d != nil {
		row(view.ChangeName("last change", "last hold", d), "%s  %s", clock(d.Decision.At, now), view.Decided(d, view.Reason(d)))
	}
	if d := last; d != nil && (change == nil || !d.Decision.At.Equal(change.Decision.At)) {
		row("decided", "%s  %s", clock(d.Decision.At, now), view.HeldReason(d, view.Reason(d), problems))
	}
}

// decidedAt is when a join began, as a part of a sentence; empty where that is not known.
func decidedAt(j core.Join, now time.Time) string {
	if j.Decided.IsZero() {
		return ""
	}
	return ", decided " + clock(j.Decided, now) + ","
}

// clock is a time of day, with the date where that is not today.
func clock(at, now time.Time) string {
	at, now = at.Local(), now.Local()
	if at.YearDay() == now.YearDay() && at.Year() == now.Year() {
		return at.Format("15:04:05")
	}
	return at.Format("2006-01-02 15:04:05")
}

func trainedTotal(n *uint64) string {
	if n == nil {
		return "unknown"
	}
	return plan.Thousands(*n) + " records"
}

// writeProcesses lists the processes of a job, in as many columns as there is room for; width 0: all.
func writeProcesses(w io.Writer, now time.Time, workers []core.WorkerView, servers []core.ServerView, width int) error {
	restarts := 1
	var rows []row
	for _, p := range workers {
		if p.Restarts > 0 {
			restarts = 8 // tells of something that is wrong
		}
		rate, busy, queue := "-", "-", "-"
		if p.Rate != nil && p.Busy != nil && p.Queue != nil {
			rate, busy, queue = number(*p.Rate), fmt.Sprintf("%.0f %%", 100**p.Busy), plan.Thousands(*p.Queue)
		}
		rows = append(rows, row{[]string{p.ID, p.Backend, p.Member, rate, busy, queue, partitions(p.Partitions, width), fmt.Sprint(p.Restarts),
			strings.TrimSpace(p.Node + " " + strings.Join(p.Devices, ","))}, p.Reason})
	}
	for _, p := range servers {
		if p.Replaced && !backend.State(p.Backend).Live() && slices.ContainsFunc(servers, func(o core.ServerView) bool { return o.Index == p.Index && !o.Replaced }) {
			continue // its successor is there, and nothing is awaited of it
		}
		if p.Restarts > 0 {
			restarts = 8
		}
		up := "unknown"
		if p.Up != nil {
			up = map[bool]string{true: "up", false: "down"}[*p.Up]
		}
		says := []string{"rows and snapshot unknown"}
		switch {
		case p.Beside:
			up, says = "waits", []string{p.Reason}
		case p.Replaced:
			up, says = "replaced", []string{p.Reason}
		case p.Rows == nil:
		case p.LastSnapshot.IsZero():
			says = []string{plan.Thousands(*p.Rows) + " rows", "no snapshot since it started"}
		default:
			says = []string{plan.Thousands(*p.Rows) + " rows", "snapshot " + job.Length(now.Sub(p.LastSnapshot)) + " ago"}
		}
		switch {
		case p.Reason == "" || p.Beside || p.Replaced:
		case p.Rows == nil:
			says = []string{p.Reason}
		default:
			says = append([]string{p.Reason}, says...)
		}
		rows = append(rows, row{[]string{p.ID, p.Backend, up, "", "", "", "", fmt.Sprint(p.Restarts), p.Node}, strings.Join(says, ", ")})
	}
	if len(rows) == 0 {
		return nil
	}
	t := table{rows: rows, columns: []column{{"PROCESS", 9}, {"ALLOCATION", 6}, {"MEMBER", 8}, {"RECORDS/S", 7}, {"BUSY", 5}, {"QUEUE", 2}, {"PARTITIONS", 4},
		{"RESTARTS", restarts}, {"NODE", 3}}}
	_, err := fmt.Fprint(w, "\n"+t.text(width))
	return err
}

func repairing(s core.Sample) string {
	if s.Repairing {
		return " (being repaired: some of them were trained before)"
	}
	return ""
}

func emulated(v *core.View) string {
	if v.Emulated {
		return " (emulated accelerator)"
	}
	return ""
}

func aucSoFar(auc *float64) string {
	if auc == nil {
		return ""
	}
	return fmt.Sprintf(", AUC so far %.4f (each record scored before it is trained)", *auc)
}

// losses are the records that were not trained, as the end of a sentence.
type losses struct {
	job        string
	dead, lost uint64
	cutOff     uint64
	skips      bool
	deadLetter string
}

// lossesOf are those that a view knows of.
func lossesOf(v *core.View) losses {
	l := losses{job: v.Job, skips: v.Skips, deadLetter: v.DeadLetter}
	if v.Dead != nil && v.Lost != nil {
		l.dead, l.lost = *v.Dead, *v.Lost
	}
	if v.CutOff != nil {
		l.cutOff = *v.CutOff
	}
	return l
}

func (l losses) String() string {
	s := ""
	if l.dead > 0 {
		s += fmt.Sprintf(", %s could not be decoded", plan.Thousands(l.dead))
		switch {
		case l.skips:
			s += fmt.Sprintf(` (such are skipped now, by on_undecodable; kale logs %s names them)`, l.job)
		case l.deadLetter != "":
			s += fmt.Sprintf(" (such go into topic %s now)", l.deadLetter)
		}
	}
	if l.lost > 0 {
		s += fmt.Sprintf(", %s offsets lost to retention", plan.Thousands(l.lost))
	}
	if l.cutOff > 0 {
		s += fmt.Sprintf(", %s of them before the end of the log was cut off (what it has at their offsets now is not trained; kale audit %s counts it)", counted(int64(l.cutOff), "offset"), l.job)
	}
	return s
}

// partitions lists a worker's, marked as what is no count. On a terminal (width above 0) so many that they would take the room of the rest are counted.
func partitions(p []int32, width int) string {
	text := view.Partitions(p)
	if width > 0 && len(text) > max(12, width/6) {
		return fmt.Sprintf("%d of them", len(p))
	}
	if len(p) > 0 {
		text = "p" + text
	}
	return text
}
