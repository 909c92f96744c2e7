package report

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/plan"
)

// randomTable has columns of every temper: constant, stepped, noisy, spiky, and full of holes.
func randomTable(r *rand.Rand, n int) *table {
	t := &table{}
	at := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	level := make([]float64, len(t.values()))
	for range n {
		at = at.Add(time.Duration(1+r.IntN(3000)) * time.Millisecond)
		k := t.row(at)
		for c, column := range t.values() {
			switch c % 5 {
			case 0:
				(*column)[k] = 7
			case 1:
				if r.IntN(200) == 0 {
					level[c] += float64(r.IntN(5) - 2)
				}
				(*column)[k] = level[c]
			case 2:
				(*column)[k] = r.NormFloat64()
			case 3:
				if (*column)[k] = 1; r.IntN(1000) == 0 {
					(*column)[k] = r.NormFloat64() * 1e6
				}
			case 4:
				if (*column)[k] = r.Float64(); r.IntN(50) == 0 {
					(*column)[k] = math.NaN()
				}
			}
		}
	}
	return t
}

// Thinning keeps rows of the table as they are and in order, the first and the last, the extremes of every column, whether a value is ever
// missing, and, seen from afar, the shape: within each of 100 parts of the time, the lowest and highest values of every column are there.
func TestThinningKeepsExtremes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	for range 15 {
		limit, n := 50+r.IntN(2000), 1+r.IntN(6000)
		full := randomTable(r, n)
		thin := full.thin(limit)
		if len(thin.T) > limit && n > limit || len(thin.T) == 0 {
			t.Fatalf("%d rows of %d at a limit of %d", len(thin.T), n, limit)
		}
		rows := rowsOf(t, full, thin)
		if rows[0] != 0 || rows[len(rows)-1] != n-1 {
			t.Errorf("from row %d to %d of %d", rows[0], rows[len(rows)-1], n)
		}
		for c := range full.values() {
			a, b := *full.values()[c], *thin.values()[c]
			if extent(a) != extent(b) {
				t.Errorf("column %d: extremes and holes %v, thinned %v (n %d, limit %d)", c, extent(a), extent(b), n, limit)
			}
		}
		again := full.thin(limit)
		if diff := cmp.Diff(thin, again, cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("thinned twice: %s", diff)
		}
	}
}

// At the page's own limit, within each of many parts of a day of samples every five seconds, every column keeps its extremes and its holes.
func TestThinningKeepsTheShape(t *testing.T) {
	const n = 17280
	full := randomTable(rand.New(rand.NewPCG(1, 2)), n)
	rows, parts := full.choose(maxRows)
	if parts < maxRows/46 || len(rows) > maxRows {
		t.Errorf("%d parts, %d rows", parts, len(rows))
	}
	if diff := cmp.Diff(rows, rowsOf(t, full, full.thin(maxRows))); diff != "" {
		t.Errorf("chosen and kept rows: %s", diff)
	}
	for p := range parts {
		from, to := p*n/parts, (p+1)*n/parts
		for c, values := range full.values() {
			var kept column
			for _, row := range rows {
				if row >= from && row < to {
					kept = append(kept, (*values)[row])
				}
			}
			if all := (*values)[from:to]; extent(all) != extent(kept) {
				t.Errorf("part %d of %d, column %d: %v, thinned %v", p, parts, c, extent(all), extent(kept))
			}
		}
	}
}

// rowsOf finds the rows of thin in full; it is an error when one is not there, or not in order.
func rowsOf(t *testing.T, full, thin *table) []int {
	t.Helper()
	var rows []int
	for k, at := range thin.T {
		row, found := slices.BinarySearch(full.T, at)
		if !found || k > 0 && row <= rows[k-1] {
			t.Fatalf("row %d of the thinned table is row %d of the table (found %v)", k, row, found)
		}
		for c := range full.values() {
			a, b := (*full.values()[c])[row], (*thin.values()[c])[k]
			if a != b && !(math.IsNaN(a) && math.IsNaN(b)) {
				t.Fatalf("row %d, column %d: %v became %v", row, c, a, b)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

type extents struct {
	low, high float64
	missing   bool
}

func extent(c column) extents {
	e := extents{low: math.Inf(1), high: math.Inf(-1)}
	for _, v := range c {
		if math.IsNaN(v) {
			e.missing = true
			continue
		}
		e.low, e.high = min(e.low, v), max(e.high, v)
	}
	return e
}

// What JSON carries is the same number, bit for bit, and null for what is none.
func TestColumnsSurviveJSON(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	c := column{0, 1, -1, 0.1, 1e-7, 5e-324, 1e21, 123456789.25, math.MaxFloat64, 1764000000.123, math.NaN(), math.Inf(1), math.Inf(-1)}
	for range 2000 {
		c = append(c, math.Float64frombits(r.Uint64()))
	}
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var got []*float64
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(c) {
		t.Fatalf("%d of %d", len(got), len(c))
	}
	for i, v := range c {
		none := math.IsNaN(v) || math.IsInf(v, 0)
		if none != (got[i] == nil) || !none && *got[i] != v {
			t.Errorf("%v became %v", v, got[i])
		}
	}
	if raw, err := json.Marshal(column{}); err != nil || string(raw) != "[]" {
		t.Errorf("no numbers: %s, %v", raw, err)
	}
}

var midnight = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

func at(s float64) time.Time { return midnight.Add(time.Duration(s * float64(time.Second))) }

func number(v float64) *float64 { return &v }

// every second a sample with the given lags; NaN: not known.
func lags(values ...float64) []core.Sample {
	out := make([]core.Sample, len(values))
	for i, v := range values {
		out[i].At = at(float64(i))
		if !math.IsNaN(v) {
			out[i].Lag = number(v)
		}
	}
	return out
}

func TestViolations(t *testing.T) {
	nan := math.NaN()
	zero := float64(midnight.Unix())
	repairing := lags(1, 9, 9, 1)
	repairing[1].Repairing = true
	away := lags(9, 9)
	away[1].At = at(3600)
	away = append(away, core.Sample{At: at(3601)}, core.Sample{At: at(3602)})
	bad := lags(1, 1)
	bad[0].Lag = number(nan)
	for name, c := range map[string]struct {
		samples []core.Sample
		want    [][2]float64
	}{
		"none":                           {lags(1, 2, 2, 1), [][2]float64{}},
		"one":                            {lags(1, 3, 3, 1), [][2]float64{{zero + 1, zero + 3}}},
		"two":                            {lags(3, 1, 3, 3, 2), [][2]float64{{zero, zero + 1}, {zero + 2, zero + 4}}},
		"at the end it has no length":    {lags(1, 3), [][2]float64{{zero + 1, zero + 1}}},
		"unknown is not over":            {lags(3, nan, 3, 1), [][2]float64{{zero, zero + 1}, {zero + 2, zero + 3}}},
		"not a number is not over":       {bad, [][2]float64{}},
		"repairing is not over":          {repairing, [][2]float64{{zero + 2, zero + 3}}},
		"while nobody looked, not known": {away, [][2]float64{{zero, zero}, {zero + 3600, zero + 3601}}},
	} {
		if diff := cmp.Diff(c.want, violations(c.samples, 2*time.Second)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := violations(lags(9, 9), 0); len(got) != 0 {
		t.Errorf("without an objective: %v", got)
	}
}

// Where nobody looked there is an empty row; beyond the last sample there is only the forecast.
func TestTabulate(t *testing.T) {
	samples := lags(1, 1, 1)
	for i := range samples {
		samples[i].Running = new(i)
	}
	samples = append(samples, core.Sample{At: at(60)}, core.Sample{At: at(61), Running: new(int), Forecast: &core.Band{Mean: 5, Lower: 4, Upper: 6}})
	outlook := plan.Forecast{At: at(59), Step: 2 * time.Second, Mean: plan.Values{1, 2, 3, 4}, Lower: plan.Values{0, 1, 2}, Upper: plan.Values{2, 3, 4, 5}}
	got := tabulate(samples, outlook)
	zero, nan := float64(midnight.Unix()), math.NaN()
	want := map[string]column{
		"t":       {zero, zero + 1, zero + 2, zero + 2.001, zero + 60, zero + 61, zero + 63, zero + 65},
		"lag":     {1, 1, 1, nan, nan, nan, nan, nan},
		"running": {0, 1, 2, nan, nan, 0, nan, nan}, // what is not known is a gap, and a zero is none
		"mean":    {nan, nan, nan, nan, nan, 5, 3, 4},
		"lower":   {nan, nan, nan, nan, nan, 4, 2, 4},
		"upper":   {nan, nan, nan, nan, nan, 6, 4, 4},
	}
	have := map[string]column{"t": got.T, "lag": got.Lag, "running": got.Running, "mean": got.Mean, "lower": got.Lower, "upper": got.Upper}
	if diff := cmp.Diff(want, have, cmpopts.EquateNaNs(), cmpopts.EquateApprox(0, 1e-6)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func BenchmarkThin(b *testing.B) {
	full := randomTable(rand.New(rand.NewPCG(1, 2)), 14*17280)
	for b.Loop() {
		full.thin(maxRows)
	}
}
