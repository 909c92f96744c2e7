package estimator

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// Leaving one out finds the form that the samples come from, or one that tells as much with no more terms.
func TestSelect(t *testing.T) {
	forms := []Form{FormAsync, FormSync, FormOptimusAsync, FormErnest, FormPollux}
	for _, truth := range []Model{
		asyncA10, {Form: FormAsync, Theta: []float64{0.0005, 0.0002, 2e-5}}, syncA10, examples[FormErnest], examples[FormPollux],
	} {
		rng := rand.New(rand.NewPCG(6, 6))
		counts := []int{1, 2, 3, 4, 6, 8, 12, 16, 20, 28}
		best, trials, err := Select(forms, 16384, measure(truth, counts, 5, 0.01, rng))
		if err != nil || len(trials) != len(forms) {
			t.Fatal(err)
		}
		exact := measure(truth, []int{5, 7, 10, 14, 24}, 1, 0, rng)
		if e, _ := best.MAPE(exact); e > 1 {
			t.Errorf("%v: %v is %.2f %% off at counts that were not measured; trials %+v", truth, best, e, trials)
		}
		if best.Form.Terms() > truth.Form.Terms() {
			t.Errorf("%v: chosen %v, of more terms", truth, best)
		}
	}
}

func TestSelectSaysWhyNot(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	samples := measure(asyncA10, []int{1, 2, 4, 8}, 2, 0.01, rng)
	best, trials, err := Select([]Form{FormSync, FormAsync, FormPollux, "asink"}, 0, samples)
	if err != nil || best.Form != FormAsync {
		t.Fatalf("%v, %v", best, err)
	}
	for i, want := range []string{"global batch", "", "global batch", "unknown form"} {
		if got := trials[i].Why; !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %q, want %q", trials[i].Form, got, want)
		}
	}
	if trials[1].Places != 4 || trials[1].Error <= 0 || trials[1].Error > 10 {
		t.Errorf("%+v", trials[1])
	}
	if _, trials, err := Select(Forms(), 16384, samples[:6]); !errors.Is(err, ErrTooFewPoints) || !strings.Contains(err.Error(), "async: too few") {
		t.Errorf("three places: %v; %+v", err, trials)
	}
	if _, _, err := Select(nil, 0, samples); err == nil {
		t.Error("no form at all was enough")
	}
}
