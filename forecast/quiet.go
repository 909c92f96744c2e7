package forecast

import "time"

// quietShare is the share of what usually arrives below which that is next to nothing: as the default of GateOptions.Margin, it moves no worker.
const quietShare = 0.01

// quiet says whether a mean rate is next to nothing beside the usual one, both in records per second. Beside silence anything is not, and silence always is. One that
// is not known, NaN, is not.
func quiet(mean, usual float64) bool { return mean == 0 || mean < quietShare*usual }

// Quiet says whether next to nothing arrived from a moment on: less than 1 % of what does on average over all that is known. Then no error tells one forecaster from
// another: a share of nothing is huge for whoever expects the usual, and small for whoever learnt to expect nothing. mean and usual are the means from then on and of
// all, in records per second; NaN where nothing is known, which is not quiet.
func (s Series) Quiet(from time.Time) (next bool, mean, usual float64) {
	begin := min(max(s.Bin(from), 0), len(s.Values))
	mean, usual = meanOrNaN(s.Values[begin:]), meanOrNaN(s.Values)
	return quiet(mean, usual), mean, usual
}
