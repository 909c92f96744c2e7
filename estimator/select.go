package estimator

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// Trial is how well a form tells what it was not shown.
type Trial struct {
	Form Form `json:"form"`
	// Error is the mean absolute error, in percent, at a configuration that the fit was
	// not shown, over all of them in turn (leave-one-out).
	Error float64 `json:"loo_error_percent"`
	// Places is how many configurations that were.
	Places int `json:"places"`
	// Model is the fit to all samples.
	Model Model `json:"model,omitzero"`
	// Why says why the form could not be tried; "" where it was.
	Why string `json:"why,omitempty"`
}

// alike is by how much, as a share and in points of a percent, errors may differ that
// say nothing: of two forms within it, the one with fewer terms is taken. [ours]
const alike, alikePoints = 0.05, 0.05

// Select fits each form to the samples and takes the one that best tells the rate of a
// configuration that it was not shown. All intervals of a configuration are left out
// together: a repeat would give the others away. batch is M for the forms that need it;
// with 0 they are not tried. The trials are in the order of the forms; an error means
// that none could be tried, which takes one configuration more than the smallest form
// has terms.
func Select(forms []Form, batch float64, samples []Sample) (best Model, trials []Trial, err error) {
	at := -1
	for i, form := range forms {
		t := try(form, batch, samples)
		trials = append(trials, t)
		if t.Why == "" && (at < 0 || t.better(trials[at])) {
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

// better tells whether t is to be preferred to the best so far.
func (t Trial) better(best Trial) bool {
	margin := alike*math.Max(t.Error, best.Error) + alikePoints
	if d := t.Error - best.Error; math.Abs(d) > margin || t.Form.Terms() == best.Form.Terms() {
		return d < 0
	}
	return t.Form.Terms() < best.Form.Terms()
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
	groups := byPlace(form, samples)
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
		t.Error += 100 / float64(len(groups)) * math.Abs(m.Throughput(left.Workers, left.Servers)/mean-1)
	}
	t.Places = len(groups)
	return t
}

// short is an error of Fit without what a table of forms says already.
func short(err error) string {
	if errors.Is(err, ErrTooFewPoints) {
		return ErrTooFewPoints.Error() + " to leave one out"
	}
	return err.Error()
}
