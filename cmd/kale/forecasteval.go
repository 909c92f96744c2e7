package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/forecast"
)

// evalOrigins is at how many past moments the forecasters are measured unless -origins says otherwise.
const evalOrigins = 500

type evalFlags struct {
	historyFlags
	fedformerFlags
	workers   int // threads that measure
	fedformer bool
	horizons  []string
	models    []string
	origins   int
	table     string
	only      string
	input     int
	out       string
	ahead     string
}

func forecastEvalCommand(a *app) *cobra.Command {
	var f evalFlags
	c := &cobra.Command{
		Use: "eval JOB.hcl|-trace FILE|-table FOLDER", Short: "Measure forecasters on history",
		Long: `Lets forecasters forecast at moments of the last 30 % of a history, each time from what lay before, and compares with what came at each
horizon. Measured are naive (the bin of a season before), seasonal (what kale run forecasts with unless the job names a model), nlinear and dlinear
(linear maps of the last bins, learnt from the first 70 %), sparsetsf (one linear map for each phase of the shortest season, from the last seven of them, learnt likewise),
ensemble (the mean of seasonal and of an nlinear of 336 bins that is learnt anew once a season, as forecast.model = "ensemble" has it; of fewer than four seasons seasonal alone), the job's own model and those of -model, and with -fedformer the paper's FEDformer-f, learnt from the first 70 %, which takes
minutes. Events and holidays of the job file count as they do in kale run: what is learnt is learnt from the history as it would have been without them. Where holidays are
measured, or those of -holidays, the errors on them alone follow, beside those of seasonal without them.

Each is asked at the same moments, those after which something was measured, on as many threads as there are cores: the figures do not depend on their number. One that
has an answer at fewer than 90 % of those at which seasonal has one is measured at its own, in a note. Model files, which may take long, are asked after the others; one that
takes longer than a minute for an answer is asked for no other. Interrupted, it prints what was measured so far, says
that it is not all, and fails. It fails, too, where a model that was named has no answer at any moment.

With -o it writes a page: the errors by horizon, and what came against what each forecaster had said of it one horizon before, with the band of 90 %.

With -table it measures on the files ETTh1.csv and ETTm2.csv (.gz allowed) of FOLDER as the published tables do: column OT, 12, 4 and 4 months to learn,
to choose and to test, z-scored, every window of the test. Beside each cell is what FEDformer-f reached, of input 96.`,
		Example: "  kale forecast eval ctr.hcl -model ctr.onnx\n  kale forecast eval -trace rates.csv.gz -interval 5m -horizon 15m,1h -o eval.html\n  kale forecast eval -table ett -only ETTh1/96",
		Args:    upTo(1), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, f.fedformer, "-fedformer"); err != nil {
				return err
			}
			if f.workers = runtime.GOMAXPROCS(0); cmd.Flags().Changed("threads") {
				f.workers = f.threads
			}
			switch {
			case cmd.Flags().Changed("origins") && f.origins < 1:
				return usagef("-origins %d: nothing is measured at none: want 1 moment or more, or leave it out (then it is %d; of a table all)", f.origins, evalOrigins)
			case f.input < 2:
				return usagef("-input %d: want 2 bins or more", f.input)
			case f.table == "" && (f.only != "" || cmd.Flags().Changed("input")):
				return usagef("-only and -input are of -table: name the folder of its files")
			case f.ahead != "" && f.out == "":
				return usagef("-ahead is of the page: name its file with -o")
			case f.table == "":
				return a.forecastEval(cmd.Context(), args, f)
			case f.out != "":
				return usagef("-o is not of -table: it has no page")
			case len(args) > 0 || f.trace != "":
				return usagef("-table has files of its own: give no job and no -trace with it")
			}
			return a.forecastTable(cmd.Context(), f)
		},
	}
	f.historyFlags.register(c)
	f.fedformerFlags.register(c)
	fl := c.Flags()
	threads := fl.Lookup("threads")
	threads.Usage, threads.DefValue = "`NUMBER` of threads that measure, and that train FEDformer (default: the cores there are, and 1 for FEDformer, whose weights depend on it)", "0"
	fl.BoolVar(&f.fedformer, "fedformer", false, "train FEDformer and measure it too")
	fl.StringSliceVar(&f.horizons, "horizon", nil, "`DURATIONS` ahead to measure at (default 5m,15m,30m,1h,2h, as far as they are whole bins; of a job those below its horizon, and that)")
	fl.StringArrayVar(&f.models, "model", nil, "`FILE`.onnx to measure too; may be repeated")
	fl.IntVar(&f.origins, "origins", 0, "`NUMBER` of moments to forecast at, 1 or more (default 500; of a table all)")
	fl.StringVar(&f.table, "table", "", "`FOLDER` with ETTh1.csv and ETTm2.csv: measure as the published tables do")
	fl.StringVar(&f.only, "only", "", "`CELL` of the table, such as ETTh1/96")
	fl.IntVar(&f.input, "input", 96, "`BINS` that nlinear and FEDformer see in the table; sparsetsf sees seven days there, and seasonal all that lay before")
	fl.StringVarP(&f.out, "out", "o", "", "`FILE`.html for a page with the table and charts")
	fl.StringVar(&f.ahead, "ahead", "", "`DURATION` that the forecasts drawn on the page looked ahead (default: the longest horizon)")
	a.jsonFlag(c, "print the measurement as JSON")
	return c
}

// evalRow is one forecaster at one horizon; null where there is nothing to measure.
type evalRow struct {
	Model      string   `json:"model"`
	File       string   `json:"file,omitempty"` // of a model
	HorizonMin float64  `json:"horizon_min"`
	Bins       int      `json:"bins"` // measured, each after a moment of its own
	MAE        *float64 `json:"mae"`
	RMSE       *float64 `json:"rmse"`
	WAPE       *float64 `json:"wape"`
	MASE       *float64 `json:"mase"`
	Pinball    *float64 `json:"pinball"`
	Coverage80 *float64 `json:"coverage80"`
	Coverage90 *float64 `json:"coverage90"`
	// Coverage90SD is its standard deviation by block bootstrap.
	Coverage90SD *float64 `json:"coverage90_sd"`
	// Best has the least pinball loss of its horizon, and that of Level is greater by no more than chance: two standard deviations of the differences at the same moments, by block bootstrap.
	Best  bool `json:"best"`
	Level bool `json:"level_with_best"`

	losses []float64 // at each moment
	block  int       // so many of them depend on each other
}

// mark is what the table has beside the pinball loss.
func (r evalRow) mark() string {
	switch {
	case r.Best:
		return " *"
	case r.Level:
		return " ≈"
	}
	return ""
}

// evalNote is what a reader of the rows of a forecaster has to know.
type evalNote struct {
	Model string `json:"model"`
	Note  string `json:"note"`
}

// evaluation is what kale forecast eval prints.
type evaluation struct {
	Trace string    `json:"trace"`
	StepS float64   `json:"step_s"`
	From  time.Time `json:"from"` // the first moment forecast at
	Rows  []evalRow `json:"rows"`
	// Moments are those at which all were measured, of as many as there were to be. Partial: it was interrupted before.
	Moments int  `json:"moments"`
	Planned int  `json:"moments_planned"`
	Partial bool `json:"partial,omitempty"`
	// Warning says that figures are of so few moments that they say little; "": they are not.
	Warning string `json:"warning,omitempty"`
	// Events are those of the job file that the history has, in words.
	Events string     `json:"events,omitempty"`
	Notes  []evalNote `json:"notes,omitempty"`
	// OnHolidays are the errors on the holidays alone, which Holidays names.
	OnHolidays []evalHoliday `json:"on_holidays,omitempty"`
	Holidays   string        `json:"holidays,omitempty"`
}

func (e *evaluation) note(model, format string, args ...any) {
	e.Notes = append(e.Notes, evalNote{model, fmt.Sprintf(format, args...)})
}

func (a *app) forecastEval(ctx context.Context, args []string, f evalFlags) error {
	if f.out != "" {
		if err := checkOut(f.out, a.inputs(args, f.historyFlags, f.models...)...); err != nil {
			return err
		}
	}
	p, err := a.past(ctx, args, f.historyFlags)
	if err != nil {
		return err
	}
	if ext := filepath.Ext(f.out); f.out != "" && !strings.EqualFold(ext, ".html") && !strings.EqualFold(ext, ".htm") {
		return usagef("-o %s: what is written is an HTML page: let its name end in .html; the table goes to the output, and with -json its figures do", f.out)
	}
	horizons, err := evalHorizons(f.horizons, p)
	if err != nil {
		return err
	}
	lead, err := f.lead(p, horizons)
	if err != nil {
		return err
	}
	if p.job != nil && p.job.Forecast.ModelFile() != "" {
		f.models = append([]string{p.job.Forecast.ModelFile()}, f.models...)
		if f.out != "" {
			if err := checkOut(f.out, p.job.Forecast.ModelFile()); err != nil {
				return err
			}
		}
	}
	models, err := a.openModels(f.models) // before anything is measured that takes long
	defer closeModels(models)
	if err != nil {
		return err
	}
	first := len(p.series.Values) * 7 / 10
	if left := len(p.series.Values) - first; slices.Max(horizons) > left {
		return usagef("-horizon %s is longer than what is measured, the last %s of %s: take a shorter one, or a longer history",
			job.FormatDuration(time.Duration(slices.Max(horizons))*p.series.Step), job.FormatDuration(time.Duration(left)*p.series.Step), p.source)
	}
	for _, m := range models {
		if err := m.answers(p, slices.Min(horizons), time.Duration(f.interval)); err != nil {
			return err
		}
	}
	e := evaluation{Trace: p.source, StepS: p.series.Step.Seconds(), From: p.series.At(first), Events: p.events(), Holidays: feastNames(p.feastsFrom(first))}
	fmt.Fprintf(a.err, "measuring on %d bins of %s, %d of them known, from %s\n", len(p.series.Values), job.FormatDuration(p.series.Step), p.known(), p.source)
	contenders, done, err := a.evalContenders(ctx, p, first, slices.Max(horizons), models, f, &e)
	if err != nil {
		return err
	}
	defer done()
	failed := a.evalAll(ctx, contenders, p, first, horizons, f, &e)
	if failed != nil && len(e.Rows) == 0 {
		return failed
	}
	if f.out != "" && e.Partial {
		failed = fmt.Errorf("%w; %s is not written, which would be of all of it", failed, f.out)
	}
	slices.SortStableFunc(e.Rows, func(x, y evalRow) int { return cmp.Compare(x.HorizonMin, y.HorizonMin) })
	e.Warning = fewWords(e)
	if f.out != "" && !e.Partial {
		if err := a.evalPage(ctx, contenders, p, first, lead, e, f); err != nil {
			return err
		}
	}
	if a.asJSON {
		if e.Warning != "" {
			a.advise("warning: %s\n", e.Warning)
		}
		err = json.NewEncoder(a.out).Encode(e)
	} else {
		err = writeEvaluation(a.out, e)
	}
	return errors.Join(failed, err)
}

// evalContenders are all that are measured. done lets go of what was learnt for that.
func (a *app) evalContenders(ctx context.Context, p past, first, steps int, models []namedModel, f evalFlags, e *evaluation) (out []contender, done func(), err error) {
	if out, err = a.contenders(ctx, p, first, steps, f.workers, e); err != nil {
		return nil, nil, err
	}
	out, done = p.withHeedless(out, first, f.workers), func() {}
	if f.fedformer {
		o := forecast.FEDformerOptions{Horizon: steps, Seasons: p.seasons}
		m, note, err := a.learntFEDformer(ctx, p.calendar().Plain(p.series.Until(e.From)), o, f.fedformerFlags)
		if err != nil {
			return nil, nil, err
		}
		done = func() { _ = m.Close() } // it was only read
		models = append([]namedModel{{ONNXModel: m}}, models...)
		e.note(m.Name(), "%s", note)
	}
	for i, name := range modelNames(models) {
		m := models[i]
		if m.path != "" && m.TrainedUntil().After(e.From) {
			e.note(name, "trained on what came before %s: what it says of that flatters it", m.TrainedUntil().Local().Format(time.DateTime))
		}
		out = append(out, contender{name: name, file: m.path, reach: m.Info().Horizon, of: []forecast.Forecaster{m.ONNXModel}})
	}
	return out, done, nil
}

// evalHorizons are in bins, shortest first.
func evalHorizons(given []string, p past) ([]int, error) {
	var out []int
	for _, text := range given {
		d, err := job.ParseDuration(text)
		if err != nil {
			return nil, usagef("-horizon %q: %w", text, err)
		}
		if d < p.series.Step || d%p.series.Step != 0 {
			return nil, usagef("-horizon %s is not a whole number of bins of %s", job.FormatDuration(d), job.FormatDuration(p.series.Step))
		}
		out = append(out, int(d/p.series.Step))
	}
	if len(given) == 0 {
		for _, d := range []time.Duration{5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour} {
			if bins := int(d / p.series.Step); bins > 0 && d%p.series.Step == 0 && (p.job == nil || bins < p.steps) {
				out = append(out, bins)
			}
		}
		if p.job != nil || len(out) == 0 {
			out = append(out, p.steps)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Of how many phases of a season moments are, at least, and what part of what is measured may be skipped for that.
const (
	stridePhases = 96
	strideSkips  = 10
)

// strideOf is how far apart so many origins in n bins are, such that they fall on every phase of the season, or on stridePhases of them, and how many bins are skipped so that they are as many as were
// asked for. Where those would be many, the origins are fewer instead.
func strideOf(n, origins, season int) (every, skip int) {
	common := func(a, b int) int {
		for b != 0 {
			a, b = b, a%b
		}
		return a
	}
	most := max(1, season/stridePhases) // that a stride and the season have in common
	start := max(1, n/origins)
	for every = start; every > 1 && common(every, season) > most; {
		every--
	}
	if skip = max(0, (n+every-1)/every-origins) * every; strideSkips*skip <= n {
		return every, skip
	}
	for every = start; common(every, season) > most; {
		every++
	}
	return every, max(0, (n+every-1)/every-origins) * every
}

// horizonWords is a horizon in minutes for people.
func horizonWords(minutes float64) string {
	return job.FormatDuration(time.Duration(minutes * float64(time.Minute)).Round(time.Second))
}

// fewMoments is of fewer than how many a band of 90 % that holds all of them is no surprise, be it too narrow or too wide: 0.9^28 = 5.2 %.
const fewMoments = 29

// fewWords say of rows what so few moments are worth, and what helps; "": there are enough behind each.
func fewWords(e evaluation) string {
	var of []string
	for i, r := range e.Rows { // in order of their horizons, at which all have the same
		if r.Bins < fewMoments && (i == 0 || r.HorizonMin != e.Rows[i-1].HorizonMin) {
			of = append(of, fmt.Sprintf("%s %s ahead", job.Count(r.Bins, "moment"), horizonWords(r.HorizonMin)))
		}
	}
	if len(of) == 0 {
		return ""
	}
	help := "give -origins more"
	if e.Planned >= fewMoments {
		help = "take a shorter -horizon"
	}
	return fmt.Sprintf("of so few moments errors are chance, and coverage says nothing: %s. A band of 90 %% is told from another by %d or more, best by hundreds: %s, or measure on a longer history", strings.Join(of, ", "), fewMoments, help)
}

// In90 is the share of bins within the band of 90 %, for people, and how sure that is.
func (r evalRow) In90() string {
	if r.Coverage90 != nil && r.Bins < fewMoments {
		return fmt.Sprintf("%s of %d", percent(r.Coverage90), r.Bins)
	}
	if r.Coverage90 == nil || r.Coverage90SD == nil {
		return percent(r.Coverage90)
	}
	return fmt.Sprintf("%s ±%.1f", percent(r.Coverage90), 200**r.Coverage90SD)
}

func writeEvaluation(w io.Writer, e evaluation) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "AHEAD\tFORECASTER\tWAPE\tMASE\tMAE\tRMSE\tPINBALL\tIN 90 %\tMOMENTS")
	for _, r := range e.Rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s%s\t%s\t%d\n", horizonWords(r.HorizonMin), r.Model, percent(r.WAPE), fixedTo(3, r.MASE), short(r.MAE), short(r.RMSE), short(r.Pinball), r.mark(), r.In90(), r.Bins)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := writeHolidays(t, e); err != nil {
		return err
	}
	width, _ := terminal(w)
	fmt.Fprint(w, folded("* is the least pinball loss, and ≈ one that is greater by no more than chance: within two standard deviations of the differences at the same moments. WAPE is Σ|actual − forecast| / Σ actual; MASE is beside the naive error of the first 70 %. ± is two standard deviations, by block bootstrap over seasons.\n", width))
	if e.Warning != "" {
		fmt.Fprint(w, folded("WARNING: "+e.Warning+"\n", width))
	}
	if e.Holidays != "" {
		fmt.Fprintf(w, "holidays measured: %s. The forecaster without them reads and forecasts each day as any.\n", e.Holidays)
	}
	if e.Events != "" {
		fmt.Fprintf(w, "forecast.events of the job: %s\n", e.Events)
	}
	switch {
	case e.Partial && e.Moments == e.Planned:
		fmt.Fprintf(w, "PARTIAL: it was interrupted before every forecaster was measured\n")
	case e.Partial:
		fmt.Fprintf(w, "PARTIAL: it was interrupted when %d of %d moments were measured\n", e.Moments, e.Planned)
	case e.Moments < e.Planned:
		fmt.Fprintf(w, "measured at %d of %d moments: those at which every one of them has an answer\n", e.Moments, e.Planned)
	}
	for _, n := range e.Notes {
		fmt.Fprintf(w, "%s: %s\n", n.Model, strings.ReplaceAll(n.Note, "\n", "; "))
	}
	return nil
}

const unknownFigure = "unknown"

func percent(v *float64) string {
	if v == nil {
		return unknownFigure
	}
	return fmt.Sprintf("%.1f %%", 100**v)
}

func fixedTo(digits int, v *float64) string {
	if v == nil {
		return unknownFigure
	}
	return fmt.Sprintf("%.*f", digits, *v)
}

// short has four digits that count.
func short(v *float64) string {
	if v == nil {
		return unknownFigure
	}
	if *v >= 1000 {
		return fmt.Sprintf("%.0f", *v)
	}
	return fmt.Sprintf("%.4g", *v)
}

// figure is null for scripts where there is no number.
func figure(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
