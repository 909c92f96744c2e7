package forecast

// Quick are the options of a training of which a test looks at no figure that needs more than a few moments of the holdout, where the seasonal forecaster learns
// anew at each.
func (o LinearOptions) Quick() LinearOptions {
	o.holdout = leastUnseen
	return o
}

// Quick is likewise, and goes once over the windows in an epoch, however few they are.
func (o FEDformerOptions) Quick() FEDformerOptions {
	o.holdout, o.least = leastUnseen, 1
	return o
}
