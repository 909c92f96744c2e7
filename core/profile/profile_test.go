package profile

import (
	"encoding/json"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/estimator"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// measured makes points of a curve with noise, as a run would.
func measured(rate func(w, p int) float64, workers, servers []int, noise float64) []Point {
	rng := rand.New(rand.NewPCG(5, 7))
	var out []Point
	for _, p := range servers {
		for _, w := range workers {
			pt := Point{Workers: w, Servers: p, Joined: 1}
			for range 5 {
				pt.Rates = append(pt.Rates, rate(w, p)*(1+noise*rng.NormFloat64()))
			}
			out = append(out, pt)
		}
	}
	return out
}

func TestLadder(t *testing.T) {
	for most, want := range map[int][]int{1: {1}, 2: {1, 2}, 3: {1, 2, 3}, 6: {1, 2, 4, 6}, 16: {1, 2, 4, 8, 16}} {
		if diff := cmp.Diff(want, Ladder(most)); diff != "" {
			t.Errorf("up to %d (-want +got):\n%s", most, diff)
		}
	}
}

// What is fitted tells the truth where nothing was measured, within what it says to be sure of.
func TestAProfileTellsWhatWasNotMeasured(t *testing.T) {
	p, err := New("ctr", time.Now(), measured(contended, Ladder(16), []int{2}, 0.01), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	rows := p.Rows(20)
	for _, r := range rows {
		truth := contended(r.Workers, 2)
		if off := math.Abs(r.Fitted/truth - 1); off > 4*r.Error {
			t.Errorf("%d workers: off by %.3f, and sure within %.3f", r.Workers, off, r.Error)
		}
		if r.Extrapolated != (r.Workers > 16) {
			t.Errorf("%d workers: extrapolated %v", r.Workers, r.Extrapolated)
		}
		if r.Measured > 0 && math.Abs(r.Ratio*r.Measured/r.Fitted-1) > 1e-3 {
			t.Errorf("%d workers: ratio %v of %v and %v", r.Workers, r.Ratio, r.Fitted, r.Measured)
		}
	}
	if len(p.ThetaErrors) != len(p.Model.Theta) {
		t.Errorf("%d errors of %d thetas", len(p.ThetaErrors), len(p.Model.Theta))
	}
}

func TestTooFewPointsToChooseByStillGiveAModel(t *testing.T) {
	for n, workers := range [][]int{{1}, {3}, {1, 2}, {1, 2, 4}} {
		p, err := New("ctr", time.Now(), measured(contended, workers, []int{1}, 0), 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Trials) > 0 && n < 3 {
			t.Errorf("%v workers: chosen among %+v", workers, p.Trials)
		}
		for _, w := range workers {
			if got, want := p.Model.Throughput(w, 1), contended(w, 1); math.Abs(got/want-1) > 0.02 {
				t.Errorf("%v workers: %.0f at %d, which was measured as %.0f", workers, got, w, want)
			}
		}
	}
	if _, err := New("ctr", time.Now(), []Point{{Workers: 1, Servers: 1, Why: "broken"}}, 0, nil); err == nil {
		t.Error("a profile of nothing")
	}
}

func TestAProfileIsStoredAndReadAgain(t *testing.T) {
	p, err := New("ctr", time.Now(), measured(contended, Ladder(8), []int{2}, 0.01), 0, map[string]string{"workers.cpu": "1", "model.batch": "96"})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var got Profile
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, &got); diff != "" {
		t.Error(diff)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
	got.Version++
	if err := got.Validate(); err == nil {
		t.Error("a version that is not known is used")
	}
	if diff := cmp.Diff([]string{"model.batch (96, now 128)"}, p.Changed(map[string]string{"workers.cpu": "1", "model.batch": "128", "new": "1"})); diff != "" {
		t.Error(diff)
	}
}

// Golden: the chart and the block of a job that contends, of which 16 workers were not measured.
func TestChartGolden(t *testing.T) {
	points := measured(contended, []int{1, 2, 4, 8}, []int{1}, 0.01)
	points = append(points, Point{Workers: 16, Servers: 1, Why: "no room"})
	p, err := New("ctr", time.Unix(1767225600, 0), points, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(p.Chart(1, 12, 60, 12), "\n") + "\n\n" + p.Block()
	const file = "testdata/chart.golden"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if lines := p.Chart(1, 12, 15, 12); lines != nil {
		t.Errorf("drawn without room: %q", lines)
	}
}

func TestFormsThatNeedWhatIsNotThereAreNotTried(t *testing.T) {
	one, two := samples(measured(contended, []int{1, 2}, []int{2}, 0)), samples(measured(contended, []int{1, 2}, []int{1, 2}, 0))
	for _, f := range forms(one, 0) {
		if f.UsesServers() || f.NeedsBatch() {
			t.Errorf("%s is tried with one number of servers and without a global batch", f)
		}
	}
	if got := len(forms(two, 1024)); got != len(estimator.Forms()) {
		t.Errorf("%d forms are tried of %d", got, len(estimator.Forms()))
	}
}

// A profile of one number of workers is not called one of a range.
func TestSourceOfOnePoint(t *testing.T) {
	for w, want := range map[int]string{1: "UTC, 1 worker", 9: "UTC, 9 workers"} {
		p := &Profile{Points: []Point{{Workers: w, Servers: 1, Rates: []float64{1}}}}
		if got := p.Source(); !strings.HasSuffix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestExtent(t *testing.T) {
	p := &Profile{Points: []Point{{Workers: 1, Servers: 1}, {Workers: 2, Servers: 1}, {Workers: 4, Servers: 1, Why: "it crashed"}, {Workers: 8, Servers: 1}}}
	if got := p.Extent(4); got != (Extent{2, 1, 2}) || got.String() != "2 points, of 1 to 2 workers" {
		t.Errorf("%v", got)
	}
	for _, c := range []struct {
		e, o Extent
		less bool
	}{
		{Extent{3, 1, 4}, Extent{}, false}, {Extent{3, 1, 4}, Extent{3, 1, 4}, false}, {Extent{4, 1, 4}, Extent{3, 1, 4}, false},
		{Extent{2, 1, 4}, Extent{3, 1, 4}, true}, {Extent{3, 2, 4}, Extent{3, 1, 4}, true}, {Extent{3, 1, 3}, Extent{3, 1, 4}, true},
	} {
		if c.e.Less(c.o) != c.less {
			t.Errorf("%v, beside %v: less is %v", c.e, c.o, !c.less)
		}
	}
}
