package forecast

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kale-sched/kale/core/onnx"
)

// recentInput is how many of a window's last bins must be half known: a model
// that cannot see the present level is no forecaster.
const recentInput = 16

// mostSaid is more records/s than anybody has: a model that says more is broken.
const mostSaid = 1e12

// maxModelBytes bounds a model file.
const maxModelBytes = 1 << 30

// ONNXOptions say how to run a model. The zero value is one thread and the
// library that core/onnx finds.
type ONNXOptions struct {
	Runtime onnx.Options
	Threads int
	// Limit is how long one answer may take, 0: a minute. A Forecast that needs many of them may take longer.
	Limit time.Duration
	// Once has a model that took longer than Limit never asked again: each later Forecast is that error at once. It is for who asks at many moments and waits for each.
	Once bool
	// Progress, where set, is told, by the goroutine of a Forecast, at how many of so many moments of the past the model has been tried: the first forecast of a
	// large file takes seconds for it, those that follow add a moment now and then.
	Progress func(done, total int)
	// Later has ONNX Runtime take in the model when it is first asked for a forecast, by the goroutine that asks: a file of tens of megabytes takes seconds. What can be known of the
	// file before is an error at once, and that ONNX Runtime refuses it one of each Forecast.
	Later bool
}

// ONNXModel is a [Forecaster] that runs a model file. It holds memory outside
// Go: Close it.
type ONNXModel struct {
	path string
	info ModelInfo

	calibration *calibration
	limit       time.Duration
	asksOnce    bool
	closing     atomic.Bool

	begun atomic.Pointer[onnx.Session] // session, for who does not hold mu

	mu      sync.Mutex   // guards what follows
	unread  func() error // makes the session; nil: it is made
	gaveUp  error        // asksOnce: why it is not asked again; nil: it is
	session *onnx.Session
	history []float32
	output  []float32
	// nil when the model does not ask for it
	known, historyTime, forecastTime []float32
}

// OpenONNX opens the model file at path. The errors tell apart that the file
// cannot be read, that it is not an ONNX model, that it does not keep the contract
// (version, metadata, shapes), and that there is no ONNX Runtime
// (onnx.ErrNoLibrary, onnx.ErrNoCgo) or that it refuses the model.
func OpenONNX(path string, o ONNXOptions) (*ONNXModel, error) {
	if st, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("open forecast model: %w", err)
	} else if st.Size() > maxModelBytes {
		return nil, fmt.Errorf("open forecast model %s: it is %d bytes long; at most %d are read", path, st.Size(), maxModelBytes)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("open forecast model: %w", err)
	}
	return NewONNX(path, b, o)
}

// NewONNX is OpenONNX for a model that is in memory; path is for messages.
func NewONNX(path string, model []byte, o ONNXOptions) (*ONNXModel, error) {
	info, err := ReadModelInfo(model)
	if err != nil {
		return nil, fmt.Errorf("open forecast model %s: %w", path, err)
	}
	m := &ONNXModel{path: path, info: info, calibration: &calibration{input: info.Input, trained: info.TrainedUntil, season: info.season(), lends: info.season(), replays: replaysOf(len(model)), progress: o.Progress}}
	m.limit, m.asksOnce = cmp.Or(o.Limit, defaultLimit), o.Once
	rt, err := onnx.Open(o.Runtime)
	if err == nil {
		m.unread = func() error { return m.start(rt, model, o) }
		if !o.Later {
			err = m.begin()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open forecast model %s: %w", path, err)
	}
	return m, nil
}

// begin makes the session, where there is none yet. The caller holds mu, or nobody else has the model.
func (m *ONNXModel) begin() error {
	switch {
	case m.unread == nil:
		return nil
	case m.closing.Load():
		return ErrClosed
	}
	if err := m.unread(); err != nil {
		return err
	}
	m.unread = nil
	m.begun.Store(m.session)
	return nil
}

// replaysOf is at how many past origins a model of so many bytes is run: what takes long to run is run less often.
func replaysOf(bytes int) int {
	const small, least = 4 << 20, replaysMost / 4
	most := replaysMost
	for ; bytes > small && most > least; bytes /= 2 {
		most /= 2
	}
	return most
}

// start makes the session and looks up its slices.
func (m *ONNXModel) start(rt *onnx.Runtime, model []byte, o ONNXOptions) error {
	described, err := onnx.Load(model)
	if err != nil {
		return err
	}
	shapes := map[string][]int{outputForecast: {m.info.rows(), m.info.Horizon}}
	bound := map[string]*[]float32{outputForecast: &m.output}
	all := map[string]*[]float32{inputHistory: &m.history, inputKnown: &m.known, inputHistoryTime: &m.historyTime, inputForecastTime: &m.forecastTime}
	for _, t := range m.info.inputs(described) {
		shapes[t.Name], bound[t.Name] = t.Shape, all[t.Name]
	}
	m.session, err = rt.NewSession(model, onnx.SessionOptions{Threads: o.Threads, Shapes: shapes})
	if err != nil {
		return err
	}
	for name, to := range bound {
		if *to, err = m.session.Float32(name); err != nil {
			return errors.Join(err, m.session.Close())
		}
	}
	return nil
}

// Name is "onnx:" and the name in the model's metadata.
func (m *ONNXModel) Name() string { return "onnx:" + m.info.Name }

// ID is a digest of the model file.
func (m *ONNXModel) ID() string { return m.info.ID }

// Info is what the model says about itself.
func (m *ONNXModel) Info() ModelInfo {
	i := m.info
	i.SeasonBins, i.Quantiles, i.TimeFeatures = slices.Clone(i.SeasonBins), slices.Clone(i.Quantiles), slices.Clone(i.TimeFeatures)
	return i
}

// TrainedUntil is the end of the history that the model has seen; zero when it
// does not say.
func (m *ONNXModel) TrainedUntil() time.Time { return m.info.TrainedUntil }

// Close frees the model. A Forecast after it is an error, and so is one under way, which ends at the next operator of the model. Closing again does
// nothing.
func (m *ONNXModel) Close() error {
	m.closing.Store(true)
	if s := m.begun.Load(); s != nil {
		s.Interrupt()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session == nil {
		return nil
	}
	return m.session.Close()
}

// Forecast implements [Forecaster]. Besides what that says it is an error to ask
// for more steps than the model's horizon, to bring a history of another step, and
// to bring one of whose last bins fewer than half were measured.
func (m *ONNXModel) Forecast(history Series, steps int) (Forecast, error) {
	who := m.Name()
	if err := checkRequest(who, history, steps); err != nil {
		return Forecast{}, err
	}
	switch {
	case history.Step != m.info.Step:
		return Forecast{}, fmt.Errorf("%s: model %s was trained on bins of %v, and the history has bins of %v: train a model on this history", who, m.path, length(m.info.Step), length(history.Step))
	case steps > m.info.Horizon:
		return Forecast{}, fmt.Errorf("%s: model %s forecasts %d bins (%v), and %d were asked for: train one with a longer horizon", who, m.path,
			m.info.Horizon, length(time.Duration(m.info.Horizon)*m.info.Step), steps)
	case len(history.Values) < m.info.Input:
		return Forecast{}, shortHistory(who, history, m.info.Input, "the model's input")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin(); err != nil {
		return Forecast{}, fmt.Errorf("%s: open forecast model %s: %w", who, m.path, err)
	}
	history = history.mended(m.info.season())
	rows, err := m.run(history, steps)
	if err != nil {
		return Forecast{}, fmt.Errorf("%s: model %s: %w", who, m.path, err)
	}
	now, own := m.shape(rows)
	f := Forecast{At: history.End(), Step: history.Step, Source: who, Mean: slices.Clone(now.mean)}
	err = m.calibration.spread(&f, history, now, own, func(past Series) (shape, error) {
		rows, err := m.run(past, steps)
		if err != nil {
			return shape{}, err
		}
		said, _ := m.shape(rows)
		return said, nil
	})
	if err != nil {
		return Forecast{}, fmt.Errorf("%s: model %s, held to the past: %w", who, m.path, err)
	}
	if !f.Calibrated() { // it is no narrower than the file's own quantiles then, which may rest on more
		f.Outcomes = max(f.Outcomes, m.info.Outcomes)
	}
	if !f.Calibrated() {
		f.Note = m.uncalibrated(f)
	}
	return f, nil
}

// Try runs the model once on plain traffic, of 1000 samples/s and a tenth more or less once a season, and says, as an error, why it gives no forecast of that.
func (m *ONNXModel) Try() error {
	n := m.info.Input
	season := max(m.info.season(), 2)
	s := Series{Start: time.Unix(0, 0).UTC(), Step: m.info.Step, Values: make([]float64, n)}
	for i := range s.Values {
		s.Values[i] = 1000 + 100*math.Sin(2*math.Pi*float64(i%season)/float64(season))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin(); err != nil {
		return err
	}
	_, err := m.run(s, m.info.Horizon)
	return err
}

// shape is what the rows of the output say, and the quantiles that they list; nil where there is but one row.
func (m *ONNXModel) shape(rows [][]float64) (s shape, own *Forecast) {
	if m.info.Quantiles == nil {
		return shape{mean: rows[0]}, nil
	}
	own = &Forecast{}
	own.Levels, own.Quantiles = inOrderOfLevel(m.info.Quantiles, rows)
	own.Mean, own.Lower, own.Upper = own.quantile(0.5), own.quantile(lowerQuantile), own.quantile(upperQuantile)
	return shapeOf(*own), own
}

// uncalibrated says for people what the band is then.
func (m *ONNXModel) uncalibrated(f Forecast) string {
	what := "it is no narrower than the file's own quantiles"
	if m.info.Quantiles == nil {
		what = "it reaches over all that the history has"
	}
	return fmt.Sprintf("the band is not calibrated: at each horizon %d past outcomes are known of %d that it takes, from after the model's training; until then %s", f.Outcomes, CalibratedOutcomes, what)
}

// run feeds the end of history and returns the first steps bins of each output row, in
// samples/s and no less than zero. The caller holds mu.
func (m *ONNXModel) run(history Series, steps int) ([][]float64, error) {
	y := history.Values
	window, known, err := inputWindow(y, m.info.Input, m.info.season())
	if err != nil {
		return nil, err
	}
	rows := make([][]float64, m.info.rows())
	for r := range rows {
		rows[r] = make([]float64, steps)
	}
	scale := 1.0
	if m.info.Normalise == NormaliseMean {
		if scale = meanKnown(y[len(y)-m.info.Input:]); scale == 0 {
			return rows, nil // A stream that was silent for the whole window.
		}
	}
	for i, v := range window {
		m.history[i] = float32(v / scale)
	}
	if m.known != nil {
		for i, k := range known {
			m.known[i] = 0
			if k {
				m.known[i] = 1
			}
		}
	}
	names, step := m.info.TimeFeatures, history.Step
	if m.historyTime != nil {
		copy(m.historyTime, marks(names, history.At(len(y)-m.info.Input), step, m.info.Input))
	}
	if m.forecastTime != nil {
		copy(m.forecastTime, marks(names, history.End(), step, m.info.Horizon))
	}
	if err := m.answer(); err != nil {
		return nil, err
	}
	for r := range rows {
		for h := range steps {
			v := float64(m.output[r*m.info.Horizon+h]) * scale
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, fmt.Errorf("its output for bin %d is %v", h, v)
			}
			if v > mostSaid {
				return nil, fmt.Errorf("its output for bin %d is %.3g records/s; more than %g cannot be", h, v, float64(mostSaid))
			}
			rows[r][h] = max(v, 0)
		}
	}
	return rows, nil
}

// inputWindow is a model's input, the last l bins of y in samples/s with the gaps
// filled, and which bins were measured. A season of 0 bins is none.
func inputWindow(y []float64, l, season int) (filled []float64, known []bool, err error) {
	start := len(y) - l
	known = make([]bool, l)
	n := 0
	for i, v := range y[start:] {
		if known[i] = v == v; known[i] {
			n++
		}
	}
	if 2*n < l {
		return nil, nil, fmt.Errorf("%w: only %d of the last %d bins; it needs half of them", ErrUnmeasured, n, l)
	}
	if err := seesLevel(y[start:]); err != nil {
		return nil, nil, err
	}
	filled = fillFromSeason(y[max(0, start-season):], season)
	return filled[len(filled)-l:], known, nil
}

// seesLevel says, as an error, that too few of a window's last bins were measured.
func seesLevel(window []float64) error {
	window = window[max(0, len(window)-recentInput):]
	if last := (Series{Values: window}).Known(); 2*last < len(window) {
		return fmt.Errorf("%w: only %d of the last %d bins; it needs half of them to see the level", ErrUnmeasured, last, len(window))
	}
	return nil
}

// fillFromSeason is y with each unknown bin replaced by the value season bins
// before it, filled or not, and what remains by straight lines. A season of 0
// means lines only. At least one bin must be known.
func fillFromSeason(y []float64, season int) []float64 {
	out := slices.Clone(y)
	for i, v := range out {
		if v != v && season > 0 && i >= season {
			out[i] = out[i-season]
		}
	}
	fillGaps(out)
	return out
}
