package forecast

// SparseTSF, the part of it that [TrainWindow] does not share with NLinear and DLinear.
//
// The window is n whole seasons of w bins. Less its mean, and each point taken as the mean of the bins around it, it is cut into its w phases of
// n points each, one a season. One linear map, the same for all phases, takes the n points of a phase to the ⌈horizon/w⌉ that follow: n times as
// many coefficients, and no more. The phases together, and the mean, are the forecast. A horizon shorter than a season is one point of each of its phases.
//
// It departs from the paper (Lin et al., ICML 2024) in this:
//
//   - the map is the closed form of ridge regression, where the paper descends a gradient;
//   - the points are plain means over 2k+1 bins, of those k = 0, 1, 2, 4, … up to a quarter of the season that errs least on the origins held out, and not
//     a convolution of w+1 learnt weights that is added to the window: with that, no closed form is left;
//   - beyond the window's ends such a mean takes the bins that there are, where the paper takes zeros;
//   - everything is in units of the window's mean, as with the other kinds, so that a stream that grows is one problem;
//   - the window is seven seasons unless it is said, fewer (no fewer than two) where the history does not hold twice as many: the paper's 720 bins are
//     30 seasons of its hourly data, more than the minutes of a job's history have.
//
// It knows of now only what the mean and the points around the last bins tell: at short horizons others see more.
const (
	sparseSeasons = 7 // the input: a week of days
	sparseLeast   = 2 // and so many at least
)

// surroundings are the numbers of bins on either side of a point that are tried.
func (w *window) surroundings() []int {
	out := []int{0}
	if w.kind != SparseTSF {
		return out
	}
	for k := 1; k <= w.season/4; k *= 2 {
		out = append(out, k)
	}
	return out
}

// fillPhases writes the points of window x of the mean given, row by row those of a phase, oldest first.
func (w *window) fillPhases(x, features []float64, mean float64) {
	n := w.features()
	sums := make([]float64, len(x)+1)
	for i, v := range x {
		sums[i+1] = sums[i] + (v - mean)
	}
	for phase := range w.rows() {
		for j := range n {
			at := j*w.season + phase
			from, to := max(at-w.around, 0), min(at+w.around+1, len(x))
			features[phase*n+j] = (sums[to] - sums[from]) / float64(to-from) / mean
		}
	}
}
