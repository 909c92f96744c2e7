// Package fedformer is the forecaster of Kale §3.2: FEDformer-f (Zhou et al., ICML 2022), univariate, as a graph of plain ONNX operators that
// core/onnx can differentiate.
//
// Input is a batch of windows of history and the time features of their bins and of those to forecast; output is the bins that follow. [Train] learns
// its weights by Adam on ONNX Runtime; [Inference] is the same model multiplied out, for what is written to a file and run. A test compares both with a second
// implementation, in float64 and by FFT, at the same weights.
//
// It follows the code that its authors published. What differs, and why:
//
//   - Fourier transforms are products with constant matrices, of the chosen modes only, and so is the moving average of a short window: the same
//     values, and core/onnx has no FFT and no pooling to differentiate.
//   - The attention's tanh is of the real and of the imaginary part, each by itself. That of complex numbers grows without bound at its
//     poles, and plain ONNX has no complex numbers.
//   - A Fourier block puts each mode back at its own frequency, as the paper's equations do. The published block puts the chosen modes
//     at the lowest frequencies, whatever they were.
//   - The trend that the decoder goes on with begins at the mean of as many bins as it forecasts, and not of the whole input where that is longer: half an hour
//     after a day of minutes has the level of the minutes before, which 1,000 steps of training do not find from that of the day.
//   - Modes are drawn from the seed by Go's PCG and not by NumPy's generator: as random, and other ones.
//   - The value and the key projections that the published layers compute and never use are left out.
//   - One moving average stands for the published mixture of averages: by its default there is one, whose share is 1.
//   - There is no dropout, which is 5 % as published: the early stop does its work, and core/onnx has no random operator.
//   - Each window is scaled to mean 0 and deviation 1 by itself, inside the graph, and its forecast back: traffic outgrows the scale of the
//     months that a model has seen. The published code scales the whole series once.
//   - Of the time features those are left out that come round less than twice in what is learnt from, such as the day of the year: what they say of the
//     days ahead was never seen. forecast.TrainFEDformer chooses them.
//   - [Train] begins with biases of 0 and halves the rate of Adam after each epoch that was no better on the validation windows, and not after every
//     epoch: what is best for one series differs from another's.
package fedformer
