// Package fedformer is the forecaster of Kale §3.2: FEDformer-f (Zhou et al., ICML 2022), univariate, as a graph of plain ONNX operators that
// core/onnx can differentiate.
//
// Input is a batch of windows of history, scaled, and the time features of their bins and of those to forecast; output is the bins that follow, so
// scaled. A test compares it with a second implementation, in float64 and by FFT, at the same weights.
//
// It follows the code that its authors published. What differs, and why:
//
//   - Fourier transforms and the moving average are products with constant matrices, of the chosen modes only: the same values, and
//     core/onnx has no FFT to differentiate.
//   - The attention's tanh is of the real and of the imaginary part, each by itself. That of complex numbers grows without bound at its
//     poles, and plain ONNX has no complex numbers.
//   - A Fourier block puts each mode back at its own frequency, as the paper's equations do. The published block puts the chosen modes
//     at the lowest frequencies, whatever they were.
//   - Modes are drawn from the seed by Go's PCG and not by NumPy's generator: as random, and other ones.
//   - The value and the key projections that the published layers compute and never use are left out.
//   - One moving average stands for the published mixture of averages: by its default there is one, whose share is 1.
//   - There is no dropout: 5 % as published, for models trained on far more series than one.
package fedformer
