package forecast

// Calibrator makes honest quantiles of forecasts that were made elsewhere, of which it is only known what each said when it was made, as those of model files are made honest: what came of
// the past ones, in half-widths of their own bands, is what is expected of the next. It belongs to one goroutine.
type Calibrator struct{ calibration calibration }

// NewCalibrator has seen nothing.
func NewCalibrator() *Calibrator { return &Calibrator{calibration{replays: replaysMost}} }

// Calibrate replaces the quantiles, band and scenarios of f, which was made at the end of history; its mean, lower and upper rates are its shape. said tells what was forecast, for as
// many bins, at the end of an earlier history, which begins as history does; an error where nothing was. As long as f is not [Forecast.Calibrated] after it, its quantiles are a guess.
func (c *Calibrator) Calibrate(f Forecast, history Series, said func(past Series) (Forecast, error)) Forecast {
	if len(f.Mean) == 0 {
		return f
	}
	_ = c.calibration.spread(&f, history, shapeOf(f), nil, func(past Series) (shape, error) {
		earlier, err := said(past)
		if err != nil {
			return shape{}, err
		}
		return shapeOf(earlier), nil
	}) // which nobody gives up
	return f
}
