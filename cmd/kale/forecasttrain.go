package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/spf13/cobra"
	"github.com/zclconf/go-cty/cty"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/forecast"
)

type trainFlags struct {
	historyFlags
	fedformerFlags
	out, model, against string
	input               int
	resume              bool
}

func forecastTrainCommand(a *app) *cobra.Command {
	var f trainFlags
	c := &cobra.Command{
		Use: "train JOB.hcl|-trace FILE -o MODEL.onnx", Short: "Train a small forecast model from history",
		Long: `Trains a linear forecast model from the arrival history of a job's topic, or from a trace, and writes it as an ONNX file for the
job's forecast block: forecast { model = "MODEL.onnx" }. It is measured, beside the seasonal forecaster, on the last part of
the history before that is learnt too; where it is worse there, that is said, and what kale run's gate will make of it.

-model nlinear, dlinear and sparsetsf are the linear maps that kale forecast eval measures: of the last bins onto each that follows (of no fewer than 336 bins and
more than a season), of a moving average and of what it leaves, and of each phase of the shortest season in the last seven of them. -input says otherwise of how many bins; of
sparsetsf they are whole seasons; that a map sees less than a season is said. ensemble, the mean of seasonal and an nlinear, is no file: forecast { model = "ensemble" } is all that it takes.

With -model fedformer it trains the paper's FEDformer-f instead, which takes minutes and needs ONNX Runtime. Its input cannot be shorter than one
season: with bins of a minute that is a day of 1440 bins; bins of a quarter of an hour make it 96, and faster. Its loss is 1 where it does no
better than each window's mean. It is measured on the last tenth of the history, which it does not learn. After each
epoch it is kept in MODEL.onnx.part, from which -resume goes on when it was ended.

A job file is checked as a whole, as kale run checks it: one whose autoscale.tau is longer than its forecast.horizon, for instance, is refused here too. -trace needs none.

A scheduler does this by itself where the job file says how often (forecast.retrain), and takes the new model where it is better by more than chance. That is measured on the last fifth
of the history (of fedformer the last tenth) with what was learnt from the part before: just after traffic has changed for good a new model cannot win until the change is older than that. As it does, -against
measures another model, such as the one in use, beside the new one: on what neither has seen.`,
		Example: "  kale forecast train ctr.hcl -o ctr.onnx\n  kale forecast train -trace rates.csv.gz -interval 5m -horizon 1h -o rates.onnx\n  kale forecast train -trace rates.csv.gz -interval 15m -model fedformer -o rates.onnx",
		Args:    upTo(1), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.out == "" {
				return usagef("-o is missing: say where to write the model")
			}
			if f.resume {
				if err := f.checkResume(cmd, args); err != nil {
					return err
				}
				return a.forecastTrain(cmd.Context(), nil, f)
			}
			kinds := forecast.ModelKinds()
			if f.model == job.ForecastSeasonal || f.model == job.ForecastEnsemble {
				return usagef("-model %s needs no file and no training: write forecast { model = %[1]q } into the job file", f.model)
			}
			if !slices.Contains(kinds, f.model) {
				return usagef("-model %q: %swant %s", f.model, job.DidYouMean(f.model, kinds), oneOf(kinds))
			}
			if err := f.check(cmd, f.model == forecast.FEDformer, "-model fedformer"); err != nil {
				return err
			}
			if cmd.Flags().Changed("input") && (f.input < 1 || f.model == forecast.Linear) {
				return usagef("-input %d: want 1 bin or more, and a -model other than linear", f.input)
			}
			return a.forecastTrain(cmd.Context(), args, f)
		},
	}
	f.historyFlags.register(c)
	c.Flags().Var(positive{&f.horizon}, "horizon", "how far to forecast (default: the job's; for a trace 30m)")
	c.Flags().StringVar(&f.model, "model", forecast.Linear, "`KIND` of model: "+oneOf(forecast.ModelKinds()))
	c.Flags().IntVar(&f.input, "input", 0, "`BINS` that the model sees; not of linear (default: of fedformer 96, or the shortest season where that is longer)")
	c.Flags().StringVar(&f.against, "against", "", "`FILE` of a model that is measured on the same part of the history, such as the one in use, or \"ensemble\"")
	c.Flags().BoolVar(&f.resume, "resume", false, "go on with a training of FEDformer that was ended: -o says which")
	f.fedformerFlags.register(c)
	c.Flags().StringVarP(&f.out, "out", "o", "", "`FILE` to write, .onnx")
	a.jsonFlag(c, "print the measurement as JSON")
	return c
}

// rival is the file of -against; "": it is not given, or none.
func (f trainFlags) rival() string {
	if f.against == job.ForecastEnsemble {
		return ""
	}
	return f.against
}

// measured are errors for scripts; null where there is nothing to measure.
type measured struct {
	Forecaster string   `json:"forecaster"`
	Bins       int      `json:"bins"`
	WAPE       *float64 `json:"wape"`
	MAPE       *float64 `json:"mape"`
	MAE        *float64 `json:"mae"`
	Bias       *float64 `json:"bias"`
	Coverage   *float64 `json:"coverage80"`
	Coverage90 *float64 `json:"coverage90"`
	Origins    int      `json:"origins"`
	// Lead is by how much the trained model's error is less over the same bins, and LeadSE the standard error of that.
	Lead   *float64 `json:"lead,omitempty"`
	LeadSE *float64 `json:"lead_se,omitempty"`
}

// led is a row with the trained model's lead over it.
func (m measured) led(l forecast.Lead) measured {
	m.Lead, m.LeadSE = figure(l.By), figure(l.SE)
	return m
}

func measure(name string, origins int, e forecast.Errors) measured {
	return measured{Forecaster: name, Bins: e.Bins, WAPE: figure(e.WAPE), MAPE: figure(e.MAPE), MAE: figure(e.MAE), Bias: figure(e.Bias), Coverage: figure(e.Coverage), Coverage90: figure(e.Coverage90), Origins: origins}
}

func writeMeasured(w io.Writer, rows []measured) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FORECASTER\tERROR\tMAPE\tBIAS\tIN 80 %\tIN 90 %\tFORECASTS")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", r.Forecaster, percent(r.WAPE), percent(r.MAPE), percent(r.Bias), percent(r.Coverage), percent(r.Coverage90), r.Origins)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	width, _ := terminal(w)
	fmt.Fprint(w, folded("ERROR is Σ|actual − forecast| / Σ actual; IN 80 % and IN 90 % are how much of what came the bands of these held.\n", width))
	return nil
}

func (a *app) forecastTrain(ctx context.Context, args []string, f trainFlags) error {
	if err := checkOut(f.out, a.inputs(args, f.historyFlags, f.rival())...); err != nil {
		return err
	}
	if !strings.HasSuffix(f.out, ".onnx") {
		return usagef("-o %s: the name of a model ends in .onnx, by which a job file knows it", f.out)
	}
	var p past
	var err error
	if f.model == forecast.FEDformer || f.resume {
		free, err := a.claimTraining(f)
		if err != nil {
			return err
		}
		defer free()
	}
	if !f.resume {
		if p, err = a.past(ctx, args, f.historyFlags); err != nil {
			return err
		}
		p.series = p.calendar().Plain(p.series)
	}
	var against forecast.Forecaster
	switch path := f.rival(); {
	case path != "":
		bar := a.progress()
		defer bar.done()
		m, err := forecast.OpenONNX(path, forecast.ONNXOptions{Threads: 1, Once: true, Limit: a.answerWithin, Progress: bar.holding(path)})
		if err != nil {
			return fmt.Errorf("-against: %w", err)
		}
		defer m.CloseOn(ctx)()
		against = m
	case f.against != "":
		if f.resume {
			return usagef("-against ensemble is not of -resume: the seasons are not known here")
		}
		against = forecast.NewSeasonalEnsemble(p.seasons)
	}
	if !f.resume {
		fmt.Fprintf(a.err, "training on %d bins of %s, %d of them known, from %s\n", len(p.series.Values), job.FormatDuration(p.series.Step), p.known(), p.source)
	}
	var model []byte
	var r forecast.TrainReport
	switch {
	case f.resume:
		f.model = forecast.FEDformer
		model, r, err = a.resumeFEDformer(ctx, f, against)
	case f.model == forecast.FEDformer:
		o := forecast.FEDformerOptions{Horizon: p.steps, Input: f.input, Seasons: p.seasons, Source: p.source, Against: against, Save: keepPart(f.out)}
		model, r, err = a.trainFEDformer(ctx, p.series, o, f.fedformerFlags)
	default:
		model, r, err = trainMap(ctx, p, f, against)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("train a forecast model: interrupted; %s is as it was%s", f.out, goesOn(f))
	}
	if err != nil {
		return err // it says what was attempted
	}
	if err := backend.WriteFileMode(f.out, model, 0o644); err != nil {
		return fmt.Errorf("write the forecast model: %w", err)
	}
	if f.model == forecast.FEDformer {
		_ = os.Remove(f.out + partSuffix) // what it was for is done
	}
	rows := []measured{measure(r.Info.Name, r.Holdout, r.Model), measure("seasonal", r.Holdout, r.Seasonal).led(r.OverSeasonal), measure("naive", r.Holdout, r.Naive).led(r.OverNaive)}
	if f.against != "" {
		rows = append(rows, measure(filepath.Base(f.against), r.Holdout, r.Against).led(r.OverAgainst))
	}
	v, err := compareTrained(r.Model.WAPE, r.Seasonal.WAPE, r.Naive.WAPE, r.OverSeasonal, p.gate())
	if err != nil {
		return err
	}
	if r.NoAnswer != nil {
		a.advise("%s has no answer at %d of the %d moments at which it was to be measured: %v\n", filepath.Base(f.against), r.Unanswered, r.Holdout, r.NoAnswer)
	}
	note := unseenSeason(f.model, p, r.Info)
	if note != "" {
		a.advise("%s\n", note)
	}
	if a.asJSON {
		said := map[string]any{
			"better_than_seasonal": v.better, "worse_than_seasonal": v.worse, "gate_falls_back": v.fallsBack,
			"model": f.out, "id": r.Info.ID, "step_s": r.Info.Step.Seconds(), "horizon": r.Info.Horizon, "input": r.Info.Input,
			"trained_until": r.Info.TrainedUntil.Format(time.RFC3339), "holdout_from": r.From.Format(time.RFC3339), "errors": rows,
		}
		if note != "" {
			said["note"] = note
		}
		if err := r.Silent(); err != nil {
			said["against_failed"] = err.Error()
		}
		if f.model == forecast.FEDformer {
			said["epochs"], said["best_epoch"] = trainedEpochs(r.Epochs), r.Best
		}
		return json.NewEncoder(a.out).Encode(said)
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
	if p.job != nil {
		fmt.Fprintf(a.err, "%s: forecast { model = %q } in the job file\n", use, fromFile(args, f.out))
		return nil
	}
	fmt.Fprintf(a.err, "%s, in the job file:\n%s%s", use, forecastBlock(f, p, r.Info, fromFile(args, f.out)), tauBeside(r.Info))
	return nil
}

// forecastBlock is the block of a job file that uses a model as it was trained on a trace: with its bins and seasons, and the zone and the holidays that it knew.
func forecastBlock(f trainFlags, p past, info forecast.ModelInfo, path string) string {
	list := func(texts []string) hclwrite.Tokens {
		values := make([]cty.Value, len(texts))
		for i, text := range texts {
			values[i] = cty.StringVal(text)
		}
		return hclwrite.TokensForValue(cty.TupleVal(values))
	}
	text := func(t string) hclwrite.Tokens { return hclwrite.TokensForValue(cty.StringVal(t)) }
	span := func(bins int, comment string) hclwrite.Tokens {
		t := text(job.FormatDuration(time.Duration(bins) * info.Step))
		return append(t, &hclwrite.Token{Type: hclsyntax.TokenComment, Bytes: []byte(" # or " + comment)})
	}
	file := hclwrite.NewEmptyFile()
	b := file.Body().AppendNewBlock("forecast", nil).Body()
	b.SetAttributeRaw("model", text(path))
	b.SetAttributeRaw("interval", text(job.FormatDuration(info.Step)))
	b.SetAttributeRaw("horizon", span(info.Horizon, "less"))
	past := info.Input // and as much as the seasonal forecaster, which a model is held against, learns its seasons from
	if len(p.seasons) > 0 {
		past = max(past, int(2*slices.Max(p.seasons)/info.Step))
	}
	b.SetAttributeRaw("history", span(past, "more"))
	var seasons []string
	for _, s := range p.seasons {
		seasons = append(seasons, job.FormatDuration(s))
	}
	if len(seasons) > 0 {
		b.SetAttributeRaw("season", list(seasons))
	}
	if f.timezone != "" {
		b.SetAttributeRaw("timezone", text(f.timezone))
	}
	if len(f.holidays) > 0 {
		b.SetAttributeRaw("holidays", list(f.holidays))
	}
	if len(f.except) > 0 {
		b.SetAttributeRaw("holidays_except", list(f.except))
	}
	return "  " + strings.ReplaceAll(strings.TrimSpace(string(hclwrite.Format(file.Bytes()))), "\n", "\n  ") + "\n"
}

// tauBeside says what autoscale.tau has to be beside a model whose bins are longer than its default, or whose horizon is shorter; "": that will do.
func tauBeside(info forecast.ModelInfo) string {
	horizon := time.Duration(info.Horizon) * info.Step
	switch {
	case info.Step > job.DefaultTau:
		return fmt.Sprintf("  and autoscale { tau = %q }, or more: no less than a bin\n", job.FormatDuration(info.Step))
	case horizon < job.DefaultTau:
		return fmt.Sprintf("  and autoscale { tau = %q }, or less: no more than the horizon\n", job.FormatDuration(horizon))
	}
	return ""
}

// trainMap trains a linear model. Who interrupts it does not wait until its equations are solved.
func trainMap(ctx context.Context, p past, f trainFlags, against forecast.Forecaster) ([]byte, forecast.TrainReport, error) {
	var model []byte
	var r forecast.TrainReport
	var err error
	o := forecast.LinearOptions{Horizon: p.steps, Seasons: p.seasons, Input: f.input, Source: p.source, Against: against}
	if !during(ctx, func() {
		if f.model == forecast.Linear {
			model, r, err = forecast.TrainLinear(p.series, o)
		} else {
			model, r, err = forecast.TrainWindowModel(p.series, f.model, o)
		}
	}) {
		return nil, forecast.TrainReport{}, ctx.Err()
	}
	return model, r, err
}

// unseenSeason says of a linear map of less than a season what it cannot see; "": it sees one, or is none. fedformer and sparsetsf refuse such an input.
func unseenSeason(kind string, p past, info forecast.ModelInfo) string {
	if kind != forecast.NLinear && kind != forecast.DLinear {
		return ""
	}
	season := int(slices.Min(p.seasons) / p.series.Step)
	if info.Input >= season {
		return ""
	}
	return fmt.Sprintf("an input of %d bins is shorter than one season of %d: the model sees nothing of what came a season before, and cannot tell a low of every day from one of now; -input %[2]d or more sees one",
		info.Input, season)
}

// comparison is a trained model beside the seasonal forecaster, both on bins that neither had seen. nil: it is not known.
type comparison struct {
	better    *bool // by more than chance
	worse     *bool // by any amount
	fallsBack *bool // by so much that the gate would not use it
	says      string
}

// compareTrained holds the errors of a trained model and of the seasonal forecaster against each other as a job's gate does, and calls better only what a training by the scheduler would take for it.
func compareTrained(model, seasonal, naive float64, lead forecast.Lead, o forecast.GateOptions) (comparison, error) {
	if math.IsNaN(model+seasonal) || math.IsInf(model+seasonal, 0) {
		return comparison{says: "The model could not be compared with seasonal: too little is known of the last part of the history."}, nil
	}
	fallsBack, err := forecast.Worse(model, seasonal, o)
	if err != nil {
		return comparison{}, err
	}
	worse, better := model > seasonal, model < seasonal && lead.Sure()
	v := comparison{better: &better, worse: &worse, fallsBack: &fallsBack}
	ours, theirs := job.Percents(model, seasonal, 1, 4)
	const unseen, used = ", on the last part of the history, which neither had seen", " kale run uses the model while live traffic shows the same."
	errs := fmt.Sprintf("%s %% against %s %%", ours, theirs) + unseen
	switch {
	case ours == theirs:
		better, worse = false, false
		v.says = fmt.Sprintf("The model is as good as seasonal: the error of both is %.1f %%", 100*model) + unseen + "." + used
	case fallsBack:
		v.says = "The model is worse than seasonal: " + errs + ". As soon as live traffic shows the same, kale run forecasts with seasonal instead. Keep model = \"seasonal\" and train again on a longer history."
	case worse:
		v.says = "The model is no better than seasonal: " + errs + ". That is within forecast.gate_tolerance, so kale run would use it."
	case better:
		v.says = "The model is better than seasonal: " + errs + "." + used
	case math.IsNaN(lead.SE):
		v.says = "The model's error is less than that of seasonal: " + errs + ". These are too few forecasts to tell that from chance." + used
	default:
		v.says = fmt.Sprintf("The model is as good as seasonal, as far as can be told: %s. That may be chance, which a lead of more than %.2g points over these forecasts would not be.", errs, 100*lead.Margin()) + used
	}
	if naive < model && naive < seasonal {
		v.says += fmt.Sprintf(" naive, which expects what came a season before, was better than both here (%.1f %%): where it stays so, a longer history may tell the model more.", 100*naive)
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
