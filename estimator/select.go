package estimator

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/gonum/stat"
)

// Trial is how well a form tells what it was not shown.
type Trial struct {
	Form Form `json:"form"`
	// Error is the mean absolute error, in percent, at a configuration that the fit was
	// not shown, over all of them in turn (leave-one-out).
	Error float64 `json:"loo_error_percent"`
	// Spread is the standard error of Error, from place to place.
	Spread float64 `json:"standard_error_percent"`
	// Places is how many configurations that were.
	Places int `json:"places"`
	// Model is the fit to all samples.
	Model Model `json:"model,omitzero"`
	// Why says why the form could not be tried; "" where it was.
	Why string `json:"why,omitempty"`
}

// Select fits each form to the samples and takes the one that best tells the rate of a
// configuration that it was not shown. Of those whose error is no more than certainly above
// the least, by two of its standard errors, it is the one with the fewest terms (the rule of
// Breiman et al., 1984, who take one: with two, a form of many terms that noise
// favours is taken less often), of these the one with the least error. All intervals of a
// configuration are left out together: a repeat would give the others away. batch is M
// for the forms that need it; with 0 they are not tried. The trials are in the order of
// the forms; an error means that none could be tried, which takes one configuration
// more than the smallest form has terms.
func Select(forms []Form, batch float64, samples []Sample) (best Model, trials []Trial, err error) {
	least := Trial{Error: math.Inf(1)}
	for _, form := range forms {
		t := try(form, batch, samples)
		trials = append(trials, t)
		if t.Why == "" && t.Error < least.Error {
			least = t
		}
	}
	at := -1
	for i, t := range trials {
		if t.Why == "" && t.Error <= least.Error+certainly*least.Spread && (at < 0 || t.simpler(trials[at])) {
			at = i
		}
	}
	if at < 0 {
		why := make([]string, len(trials))
		for i, t := range trials {
			why[i] = fmt.Sprintf("%s: %s", t.Form, t.Why)
		}
		return Model{}, trials, fmt.Errorf("choose a throughput form: none could be tried (%s): %w", strings.Join(why, "; "), ErrTooFewPoints)
	}
	return trials[at].Model, trials, nil
}

// certainly is by how many standard errors a form must be worse before it is left for one of more terms.
const certainly = 2

// simpler tells whether t is to be preferred among trials that are alike.
func (t Trial) simpler(o Trial) bool {
	return cmp.Or(cmp.Compare(t.Form.Terms(), o.Form.Terms()), cmp.Compare(t.Error, o.Error)) < 0
}

// try leaves out one configuration after the other.
func try(form Form, batch float64, samples []Sample) Trial {
	t := Trial{Form: form}
	if form.NeedsBatch() && !(batch > 0) {
		t.Why = "it needs the global batch, which is not given"
		return t
	}
	var err error
	if t.Model, err = Fit(form, batch, samples); err != nil {
		t.Why = short(err)
		return t
	}
	groups := byPlace(true, samples)
	var errs []float64
	for i := range groups {
		var others []Sample
		for k, g := range groups {
			if k != i {
				others = append(others, g...)
			}
		}
		m, err := Fit(form, batch, others)
		if err != nil {
			t.Why = short(err)
			return t
		}
		left := groups[i][0]
		mean := meanRate(groups[i])
		errs = append(errs, 100*math.Abs(m.Throughput(left.Workers, left.Servers)/mean-1))
	}
	t.Places = len(groups)
	mean, sd := stat.MeanStdDev(errs, nil)
	t.Error, t.Spread = mean, stat.StdErr(sd, float64(len(errs)))
	return t
}

// short is an error of Fit without what a table of forms says already.
func short(err error) string {
	if errors.Is(err, ErrTooFewPoints) {
		return ErrTooFewPoints.Error() + " to leave one out"
	}
	return err.Error()
}
