package forecast

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kale-sched/kale/core/onnx"
)

// The contract of a model file, version 1. Any tool may write one.
//
// Inputs, all float32; further ones are an error:
//
//	history [1,L]   the last L bins, oldest first, normalised as the metadata say.
//	                A bin that was not measured holds the value one season before
//	                it (the first of season_bins), or, where that is unknown, the
//	                straight line between its neighbours.
//	known   [1,L]   optional: 1 where the bin was measured, 0 where it was filled.
//	history_time  [1,L,F]   optional: the time features of these bins,
//	forecast_time [1,H,F]   and of the H bins that follow.
//
// A time feature says where in a cycle of the calendar a bin begins, in UTC: 0 at
// the cycle's first unit and 1 at its last, less 0.5. They are second_of_minute,
// minute_of_hour, hour_of_day, day_of_week (from Monday), day_of_month (of 31) and
// day_of_year (of 366); the metadata name those that the model asks for.
//
// Output, float32:
//
//	forecast [1,H]  the point forecast of the H bins that follow, normalised alike;
//	         [Q,H]  or one row per quantile of the metadata.
//
// A dimension of 1 or L or H may be left open in the file. Values below zero are
// read as zero, and quantiles that cross are put in order. NaN, infinities
// and more than 1e12 records/s are an error.
//
// Metadata (metadata_props); those marked * may be absent:
//
//	kale.forecast.version        1
//	kale.forecast.name           short name of the kind of model: linear, fedformer,
//	                             nlinear, dlinear, sparsetsf, or a name of your own,
//	                             of printable characters
//	kale.forecast.input          L
//	kale.forecast.horizon        H
//	kale.forecast.step_seconds   length of a bin
//	kale.forecast.season_bins  * comma-separated, shortest first: 1440,10080
//	kale.forecast.normalise      none, or mean: history is divided by the mean of
//	                             the measured bins of the window, forecast multiplied
//	kale.forecast.quantiles    * comma-separated, one per row of forecast; 0.1, 0.5
//	                             and 0.9 must be among them, and 0.5 is the point
//	                             forecast. Absent: one row, the point forecast
//	kale.forecast.time_features * comma-separated, in their order in the inputs, such
//	                             as hour_of_day,day_of_week; F is how many they are
//	kale.forecast.trained_at     RFC 3339: the moment that the model is of. Kale writes the
//	                             end of the history and not the time of day, so that the
//	                             same history gives the same file
//	kale.forecast.trained_until* RFC 3339: the end of the history it was trained on.
//	                             What it says of earlier bins is not taken for proof
//	                             of how sure it is
//	kale.forecast.trained_bins   how many bins that was
//	kale.forecast.outcomes     * of how many outcomes, at every horizon, of forecasts of what
//	                             the model that made them was not trained on the quantiles
//	                             were made. With 19 or more the band is calibrated before
//	                             any have come since the training
//	kale.forecast.source       * where the history came from
//
// The quantiles that a file lists are not believed, but calibrated: the model is
// replayed over the history, and the quantiles 0.01 to 0.99 of a forecast are those
// of what came then, in units of the file's own band or, where it has none, of the
// forecast. The point forecast stays as it is. See calibrate.go.
const (
	contractVersion = "1"

	metaPrefix       = "kale.forecast."
	metaVersion      = metaPrefix + "version"
	metaName         = metaPrefix + "name"
	metaInput        = metaPrefix + "input"
	metaHorizon      = metaPrefix + "horizon"
	metaStep         = metaPrefix + "step_seconds"
	metaSeasons      = metaPrefix + "season_bins"
	metaNormalise    = metaPrefix + "normalise"
	metaQuantiles    = metaPrefix + "quantiles"
	metaTimeFeatures = metaPrefix + "time_features"
	metaTrainedAt    = metaPrefix + "trained_at"
	metaTrainedUntil = metaPrefix + "trained_until"
	metaTrainedBins  = metaPrefix + "trained_bins"
	metaOutcomes     = metaPrefix + "outcomes"
	metaSource       = metaPrefix + "source"

	inputHistory      = "history"
	inputKnown        = "known"
	inputHistoryTime  = "history_time"
	inputForecastTime = "forecast_time"
	outputForecast    = "forecast"
)

// Normalisations of a model's input and output.
const (
	NormaliseNone = "none"
	NormaliseMean = "mean"
)

// maxModelBins bounds input and horizon: two years of minutes.
const maxModelBins = 1 << 20

// ModelInfo is what a model file says about itself, in the terms of the contract
// above.
type ModelInfo struct {
	Name         string
	Input        int           // L, bins of history it needs
	Horizon      int           // H, bins it forecasts at most
	Step         time.Duration // length of a bin
	SeasonBins   []int
	Normalise    string
	Quantiles    []float64 // one per row of the output; nil: one row, the point forecast
	TimeFeatures []string  // of the contract, in the order of the inputs; nil: it asks for none
	TrainedAt    time.Time // the moment that the model is of: in Kale's own files that is TrainedUntil
	TrainedUntil time.Time // the end of the history; zero when the file does not say
	TrainedBins  int
	Outcomes     int // out of sample, that the quantiles were made of, at every horizon; 0: the file does not say
	Source       string
	// ID is a digest of the file: two models with the same ID are the same.
	ID string
}

// ReadModelInfo reads and checks a model file against the contract, without
// ONNX Runtime. The error names everything that is missing or wrong in the
// metadata, or in the inputs and outputs.
func ReadModelInfo(model []byte) (ModelInfo, error) {
	m, err := onnx.Load(model)
	if err != nil {
		return ModelInfo{}, err
	}
	info, err := readMetadata(m.Metadata)
	if err != nil {
		return ModelInfo{}, err
	}
	sum := sha256.Sum256(model)
	info.ID = hex.EncodeToString(sum[:6])
	if asks := wants(m, inputHistoryTime) || wants(m, inputForecastTime); asks && len(info.TimeFeatures) == 0 {
		return ModelInfo{}, fmt.Errorf("its inputs ask for time features, and %s, which says for which, is missing from its metadata", metaTimeFeatures)
	} else if !asks && len(info.TimeFeatures) > 0 {
		return ModelInfo{}, fmt.Errorf("its %s is %q, and it has neither an input %s nor %s that takes them", metaTimeFeatures, strings.Join(info.TimeFeatures, ","), inputHistoryTime, inputForecastTime)
	}
	inputs := info.inputs(m)
	outputs := []onnx.TensorInfo{{Name: outputForecast, Type: onnx.Float32, Shape: []int{info.rows(), info.Horizon}}}
	if err := m.Expect(inputs, outputs); err != nil {
		return ModelInfo{}, fmt.Errorf("by its metadata the input is %d bins, the horizon %d and the forecast has %d rows: %w",
			info.Input, info.Horizon, info.rows(), err)
	}
	return info, nil
}

// inputs are those of the contract: history, and of the others those that m has.
func (i ModelInfo) inputs(m *onnx.Model) []onnx.TensorInfo {
	inputs := []onnx.TensorInfo{{Name: inputHistory, Type: onnx.Float32, Shape: []int{1, i.Input}}}
	for _, t := range []onnx.TensorInfo{
		{Name: inputKnown, Type: onnx.Float32, Shape: []int{1, i.Input}},
		{Name: inputHistoryTime, Type: onnx.Float32, Shape: []int{1, i.Input, len(i.TimeFeatures)}},
		{Name: inputForecastTime, Type: onnx.Float32, Shape: []int{1, i.Horizon, len(i.TimeFeatures)}},
	} {
		if wants(m, t.Name) {
			inputs = append(inputs, t)
		}
	}
	return inputs
}

func wants(m *onnx.Model, input string) bool {
	return slices.ContainsFunc(m.Inputs, func(t onnx.TensorInfo) bool { return t.Name == input })
}

// season is the shortest one, in bins; 0: there is none.
func (i ModelInfo) season() int {
	if len(i.SeasonBins) == 0 {
		return 0
	}
	return i.SeasonBins[0]
}

// rows is how many rows the output has.
func (i ModelInfo) rows() int { return max(1, len(i.Quantiles)) }

// metadata is the inverse of readMetadata.
func (i ModelInfo) metadata() map[string]string {
	m := map[string]string{
		metaVersion:     contractVersion,
		metaName:        i.Name,
		metaInput:       strconv.Itoa(i.Input),
		metaHorizon:     strconv.Itoa(i.Horizon),
		metaStep:        strconv.FormatFloat(i.Step.Seconds(), 'g', -1, 64),
		metaNormalise:   i.Normalise,
		metaTrainedAt:   i.TrainedAt.UTC().Format(time.RFC3339Nano),
		metaTrainedBins: strconv.Itoa(i.TrainedBins),
	}
	if len(i.SeasonBins) > 0 {
		m[metaSeasons] = joinWith(i.SeasonBins, strconv.Itoa)
	}
	if len(i.Quantiles) > 0 {
		m[metaQuantiles] = joinWith(i.Quantiles, func(q float64) string { return strconv.FormatFloat(q, 'g', -1, 64) })
	}
	if len(i.TimeFeatures) > 0 {
		m[metaTimeFeatures] = strings.Join(i.TimeFeatures, ",")
	}
	if !i.TrainedUntil.IsZero() {
		m[metaTrainedUntil] = i.TrainedUntil.UTC().Format(time.RFC3339Nano)
	}
	if i.Outcomes > 0 {
		m[metaOutcomes] = strconv.Itoa(i.Outcomes)
	}
	if i.Source != "" {
		m[metaSource] = i.Source
	}
	return m
}

func joinWith[T any](v []T, text func(T) string) string {
	s := make([]string, len(v))
	for i, x := range v {
		s[i] = text(x)
	}
	return strings.Join(s, ",")
}

// metaReader reads metadata and gathers what is wrong with them.
type metaReader struct {
	meta  map[string]string
	wrong []string
}

func readMetadata(meta map[string]string) (ModelInfo, error) {
	r := &metaReader{meta: meta}
	if v, ok := meta[metaVersion]; !ok {
		return ModelInfo{}, fmt.Errorf("it has no %s in its metadata, so it is not a forecast model of Kale's contract: train one with \"kale forecast train\", or add the metadata to your own", metaVersion)
	} else if v != contractVersion {
		return ModelInfo{}, fmt.Errorf("its %s is %q and this program reads version %s: train it again with this program, or use a program that reads %s", metaVersion, v, contractVersion, v)
	}
	info := ModelInfo{
		Name:         r.name(metaName),
		Input:        r.count(metaInput, maxModelBins),
		Horizon:      r.count(metaHorizon, maxModelBins),
		Step:         r.seconds(metaStep),
		SeasonBins:   r.seasons(metaSeasons),
		Normalise:    r.text(metaNormalise, true),
		Quantiles:    r.quantiles(metaQuantiles),
		TimeFeatures: r.timeFeatures(metaTimeFeatures),
		TrainedAt:    r.time(metaTrainedAt, true),
		TrainedBins:  r.count(metaTrainedBins, math.MaxInt32),
		Source:       r.text(metaSource, false),
	}
	info.TrainedUntil = r.time(metaTrainedUntil, false)
	if r.text(metaOutcomes, false) != "" {
		info.Outcomes = r.count(metaOutcomes, math.MaxInt32)
	}
	if n := info.Normalise; n != "" && n != NormaliseNone && n != NormaliseMean {
		r.fault(metaNormalise, "%q, want %s or %s", n, NormaliseNone, NormaliseMean)
	}
	if len(r.wrong) > 0 {
		return ModelInfo{}, fmt.Errorf("its metadata: %s", strings.Join(r.wrong, "; "))
	}
	return info, nil
}

func (r *metaReader) fault(key, format string, args ...any) {
	r.wrong = append(r.wrong, key+" is "+fmt.Sprintf(format, args...))
}

func (r *metaReader) text(key string, required bool) string {
	v := strings.TrimSpace(r.meta[key])
	if v == "" && required {
		r.fault(key, "missing")
	}
	return v
}

// nameMost is how many characters a model's name may have: it stands in tables and decisions.
const nameMost = 128

// name reads what is printed as it is.
func (r *metaReader) name(key string) string {
	v := r.text(key, true)
	if strings.ContainsFunc(v, func(c rune) bool { return c == utf8.RuneError || !unicode.IsPrint(c) }) {
		r.fault(key, "%q, want nothing but printable characters", v)
		return ""
	}
	if n := utf8.RuneCountInString(v); n > nameMost {
		r.fault(key, "%d characters, want no more than %d", n, nameMost)
		return ""
	}
	return v
}

// count reads a number of bins from 1 to limit.
func (r *metaReader) count(key string, limit int) int {
	v := r.text(key, true)
	if v == "" {
		return 0
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > limit {
		r.fault(key, "%q, want a whole number from 1 to %d", v, limit)
		return 0
	}
	return n
}

func (r *metaReader) seconds(key string) time.Duration {
	v := r.text(key, true)
	if v == "" {
		return 0
	}
	s, err := strconv.ParseFloat(v, 64)
	if err != nil || !(s >= 1e-3 && s <= 1e7) {
		r.fault(key, "%q, want a number of seconds from 0.001 to 10000000", v)
		return 0
	}
	return time.Duration(math.Round(s * 1e9))
}

func (r *metaReader) time(key string, required bool) time.Time {
	v := r.text(key, required)
	if v == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, v)
	if err != nil {
		r.fault(key, "%q, want a time such as 2026-03-01T12:00:00Z", v)
	}
	return t
}

func (r *metaReader) seasons(key string) []int {
	v := r.text(key, false)
	if v == "" {
		return nil
	}
	var out []int
	for _, s := range strings.Split(v, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 2 || n > maxModelBins || len(out) > 0 && n <= out[len(out)-1] {
			r.fault(key, "%q, want whole numbers of bins from 2 to %d, rising, such as 1440,10080", v, maxModelBins)
			return nil
		}
		out = append(out, n)
	}
	return out
}

func (r *metaReader) quantiles(key string) []float64 {
	v := r.text(key, false)
	if v == "" {
		return nil
	}
	var out []float64
	for _, s := range strings.Split(v, ",") {
		q, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		if err != nil || !(q > 0 && q < 1) {
			r.fault(key, "%q, want numbers between 0 and 1 such as 0.1,0.5,0.9", v)
			return nil
		}
		out = append(out, q)
	}
	for _, q := range []float64{lowerQuantile, 0.5, upperQuantile} {
		if !slices.Contains(out, q) {
			r.fault(key, "%q, want %g among them", v, q)
		}
	}
	return out
}

func (r *metaReader) timeFeatures(key string) []string {
	v := r.text(key, false)
	if v == "" {
		return nil
	}
	var out []string
	for _, name := range strings.Split(v, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(timeFeatureNames(), name) || slices.Contains(out, name) {
			r.fault(key, "%q, want some of %s, each once", v, strings.Join(timeFeatureNames(), ", "))
			return nil
		}
		out = append(out, name)
	}
	return out
}
