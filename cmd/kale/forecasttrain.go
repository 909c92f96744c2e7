package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/forecast"
)

type trainFlags struct {
	historyFlags
	out string
}

func forecastTrainCommand(a *app) *cobra.Command {
	var f trainFlags
	c := &cobra.Command{
		Use: "train JOB.hcl|-trace FILE -o MODEL.onnx", Short: "Train a small forecast model from history",
		Long: `Trains a linear forecast model from the arrival history of a job's topic, or from a trace, and writes it as an ONNX file for the
job's forecast block: forecast { model = "MODEL.onnx" }. It is measured, beside the seasonal forecaster, on the last part of
the history before that is learnt too; where it is worse there, that is said, and what kale run's gate will make of it.`,
		Example: "  kale forecast train ctr.hcl -o ctr.onnx\n  kale forecast train -trace rates.csv.gz -interval 5m -horizon 1h -o rates.onnx",
		Args:    upTo(1), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.out == "" {
				return usagef("-o is missing: say where to write the model")
			}
			return a.forecastTrain(cmd.Context(), args, f)
		},
	}
	f.register(c)
	c.Flags().StringVarP(&f.out, "out", "o", "", "`FILE` to write, .onnx")
	a.jsonFlag(c, "print the measurement as JSON")
	return c
}

// measured are errors for scripts; null where there is nothing to measure.
type measured struct {
	Forecaster string   `json:"forecaster"`
	Bins       int      `json:"bins"`
	WAPE       *float64 `json:"wape"`
	MAPE       *float64 `json:"mape"`
	MAE        *float64 `json:"mae"`
	Bias       *float64 `json:"bias"`
	Coverage   *float64 `json:"coverage_80"`
	Origins    int      `json:"origins"`
	Failed     int      `json:"failed,omitempty"`
	Why        string   `json:"first_failure,omitempty"`
	// TrainedUntil is the end of what a model file had learnt from: on bins before that its error flatters it.
	TrainedUntil *time.Time `json:"trained_until,omitempty"`
}

func measure(name string, origins int, e forecast.Errors) measured {
	num := func(v float64) *float64 {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
		return &v
	}
	return measured{Forecaster: name, Bins: e.Bins, WAPE: num(e.WAPE), MAPE: num(e.MAPE), MAE: num(e.MAE), Bias: num(e.Bias), Coverage: num(e.Coverage), Origins: origins}
}

func writeMeasured(w io.Writer, rows []measured) error {
	percent := func(v *float64) string {
		if v == nil {
			return "unknown"
		}
		return fmt.Sprintf("%.1f %%", 100**v)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FORECASTER\tERROR\tMAPE\tBIAS\tIN BAND\tFORECASTS")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\n", r.Forecaster, percent(r.WAPE), percent(r.MAPE), percent(r.Bias), percent(r.Coverage), r.Origins)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "ERROR is Σ|actual − forecast| / Σ actual; IN BAND should be 80 %.")
	for _, r := range rows {
		if r.Failed > 0 {
			fmt.Fprintf(w, "%s failed at %d origins, the first time with: %s\n", r.Forecaster, r.Failed, r.Why)
		}
	}
	return nil
}

func (a *app) forecastTrain(ctx context.Context, args []string, f trainFlags) error {
	if err := checkOut(f.out); err != nil {
		return err
	}
	p, err := a.past(ctx, args, f.historyFlags)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.err, "training on %d bins of %s, %d of them known, from %s\n", len(p.series.Values), job.FormatDuration(p.series.Step), p.series.Known(), p.source)
	model, r, err := forecast.TrainLinear(p.series, forecast.LinearOptions{Horizon: p.steps, Seasons: p.seasons, Source: p.source})
	if err != nil {
		return err // it says what was attempted
	}
	if ctx.Err() != nil {
		return fmt.Errorf("train a forecast model: interrupted; %s is as it was", f.out)
	}
	if err := backend.WriteFileMode(f.out, model, 0o644); err != nil {
		return fmt.Errorf("write the forecast model: %w", err)
	}
	rows := []measured{measure(r.Info.Name, r.Holdout, r.Model), measure("seasonal", r.Holdout, r.Seasonal), measure("naive", r.Holdout, r.Naive)}
	v, err := compareTrained(r.Model.WAPE, r.Seasonal.WAPE, p.gate())
	if err != nil {
		return err
	}
	if a.asJSON {
		return json.NewEncoder(a.out).Encode(map[string]any{
			"worse_than_seasonal": v.worse, "gate_falls_back": v.fallsBack,
			"model": f.out, "id": r.Info.ID, "step_s": r.Info.Step.Seconds(), "horizon": r.Info.Horizon, "input": r.Info.Input,
			"trained_until": r.Info.TrainedUntil.Format(time.RFC3339), "holdout_from": r.From.Format(time.RFC3339), "errors": rows,
		})
	}
	fmt.Fprintf(a.out, "%s: forecasts %s in bins of %s from the last %s\n\n", f.out, job.FormatDuration(time.Duration(r.Info.Horizon)*r.Info.Step),
		job.FormatDuration(r.Info.Step), job.FormatDuration(time.Duration(r.Info.Input)*r.Info.Step))
	if err := writeMeasured(a.out, rows); err != nil {
		return err
	}
	width, _ := terminal(a.out)
	fmt.Fprintf(a.out, "\n%s", folded(v.says+"\n", width))
	use := "to use it"
	if v.worse != nil && *v.worse {
		use = "to use it all the same"
	}
	fmt.Fprintf(a.err, "%s: forecast { model = %q } in the job file\n", use, fromFile(args, f.out))
	return nil
}

// comparison is a trained model beside the seasonal forecaster, both on bins that neither had seen. nil: it is not known.
type comparison struct {
	worse     *bool // by any amount
	fallsBack *bool // by so much that the gate would not use it
	says      string
}

// compareTrained holds the errors of a trained model and of the seasonal forecaster against each other as a job's gate does.
func compareTrained(model, seasonal float64, o forecast.GateOptions) (comparison, error) {
	if math.IsNaN(model+seasonal) || math.IsInf(model+seasonal, 0) {
		return comparison{says: "The model could not be compared with seasonal: too little is known of the last part of the history."}, nil
	}
	fallsBack, err := forecast.Worse(model, seasonal, o)
	if err != nil {
		return comparison{}, err
	}
	worse := model > seasonal
	v := comparison{worse: &worse, fallsBack: &fallsBack}
	errs := fmt.Sprintf("%.1f %% against %.1f %%, on the last part of the history, which neither had seen", 100*model, 100*seasonal)
	switch {
	case fallsBack:
		v.says = "The model is worse than seasonal: " + errs + ". As soon as live traffic shows the same, kale run forecasts with seasonal instead. Keep model = \"seasonal\" and train again on a longer history."
	case worse:
		v.says = "The model is no better than seasonal: " + errs + ". That is within forecast.gate_tolerance, so kale run would use it."
	default:
		v.says = "The model is better than seasonal: " + errs + ". kale run uses it while live traffic shows the same."
	}
	return v, nil
}

// fromFile is a path as the job file that was named, if one was, has to say it: relative paths start at its folder.
func fromFile(args []string, path string) string {
	abs, err := filepath.Abs(path)
	if len(args) == 0 || filepath.IsAbs(path) || err != nil {
		return path
	}
	folder, err := filepath.Abs(filepath.Dir(args[0]))
	if err != nil {
		return abs
	}
	rel, err := filepath.Rel(folder, abs)
	if err != nil {
		return abs
	}
	return rel
}

type backtestFlags struct {
	historyFlags
	models []string
}

func forecastBacktestCommand(a *app) *cobra.Command {
	var f backtestFlags
	c := &cobra.Command{
		Use: "backtest JOB.hcl|-trace FILE", Short: "Measure forecasters on history",
		Long: `Lets forecasters forecast at past moments of a history, each time from what lay before, and compares with what came. "seasonal" is
always among them, and so is the job's own model.`,
		Example: "  kale forecast backtest ctr.hcl -model ctr.onnx\n  kale forecast backtest -trace rates.csv.gz -interval 5m -horizon 1h",
		Args:    upTo(1), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error { return a.backtest(cmd.Context(), args, f) },
	}
	f.register(c)
	c.Flags().StringArrayVar(&f.models, "model", nil, "`FILE`.onnx to measure too; may be repeated")
	a.jsonFlag(c, "print the measurement as JSON")
	return c
}

func (a *app) backtest(ctx context.Context, args []string, f backtestFlags) error {
	p, err := a.past(ctx, args, f.historyFlags)
	if err != nil {
		return err
	}
	if p.job != nil && p.job.Forecast.Model != job.ForecastSeasonal {
		f.models = append([]string{p.job.Forecast.Model}, f.models...)
	}
	forecasters := []forecast.Forecaster{forecast.NewSeasonal(p.seasons)}
	for _, path := range f.models {
		m, err := forecast.OpenONNX(path, forecast.ONNXOptions{})
		if err != nil {
			return err
		}
		defer func() { _ = m.Close() }() // it was only read
		forecasters = append(forecasters, m)
	}
	fmt.Fprintf(a.err, "measuring on %d bins of %s, %d of them known, from %s\n", len(p.series.Values), job.FormatDuration(p.series.Step), p.series.Known(), p.source)
	var rows []measured
	var taught []string
	for _, fc := range forecasters {
		if m, ok := fc.(*forecast.ONNXModel); ok && m.TrainedUntil().After(p.series.Start) {
			taught = append(taught, fmt.Sprintf("%s was trained on what came before %s: what it says of that flatters it.", m.Name(), m.TrainedUntil().Local().Format(time.DateTime)))
		}
		r, err := a.backtestOne(ctx, fc, p)
		if err != nil {
			return err
		}
		row := measure(r.Source, r.Origins, r.Errors)
		if m, ok := fc.(*forecast.ONNXModel); ok && !m.TrainedUntil().IsZero() {
			row.TrainedUntil = new(m.TrainedUntil())
		}
		if r.Failed > 0 {
			row.Failed, row.Why = r.Failed, r.FirstError.Error()
		}
		rows = append(rows, row)
	}
	if a.asJSON {
		return json.NewEncoder(a.out).Encode(map[string]any{"step_s": p.series.Step.Seconds(), "horizon": p.steps, "errors": rows})
	}
	if err := writeMeasured(a.out, rows); err != nil {
		return err
	}
	for _, text := range taught {
		fmt.Fprintln(a.out, text)
	}
	return nil
}

// breakable is a forecaster that gives up as soon as broken says why.
type breakable struct {
	forecast.Forecaster
	broken func() error
}

func (b breakable) Forecast(history forecast.Series, steps int) (forecast.Forecast, error) {
	if err := b.broken(); err != nil {
		return forecast.Forecast{}, err
	}
	return b.Forecaster.Forecast(history, steps)
}

func (a *app) backtestOne(ctx context.Context, fc forecast.Forecaster, p past) (forecast.Report, error) {
	bar := a.progress()
	defer bar.done()
	r, err := forecast.Backtest(breakable{fc, ctx.Err}, p.series, forecast.BacktestOptions{Steps: p.steps, Visit: func(origin int, _ forecast.Forecast) {
		bar.show("backtest of %s: bin %d of %d", fc.Name(), origin, len(p.series.Values))
	}})
	if ctx.Err() != nil {
		return r, fmt.Errorf("backtest of %s: interrupted", fc.Name())
	}
	if err != nil {
		return r, fmt.Errorf("backtest of %s: %w", fc.Name(), err)
	}
	return r, nil
}
