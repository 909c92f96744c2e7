package traffic

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var t0 = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)

func sec(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }

// observed builds a history from rows of (seconds, end of partition 0, end of partition 1, …).
func observed(t *testing.T, o ArrivalsOptions, rows ...[]float64) *Arrivals {
	t.Helper()
	a := NewArrivals(o)
	for _, row := range rows {
		ends := map[int32]int64{}
		for p, end := range row[1:] {
			ends[int32(p)] = int64(end)
		}
		if err := a.Observe(sec(row[0]), ends); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func TestSeries(t *testing.T) {
	nan := math.NaN()
	for name, tt := range map[string]struct {
		o        ArrivalsOptions
		rows     [][]float64
		step     time.Duration
		from, to float64
		want     []float64
	}{
		"nothing observed":      {step: time.Second, from: 0, to: 2, want: []float64{nan, nan}},
		"before and after":      {rows: [][]float64{{0, 0}, {10, 100}}, step: 5 * time.Second, from: -5, to: 15, want: []float64{nan, 10, 10, nan}},
		"two partitions":        {rows: [][]float64{{0, 10, 5}, {10, 110, 5}, {20, 110, 205}}, step: 10 * time.Second, from: 0, to: 20, want: []float64{10, 20}},
		"interpolated":          {rows: [][]float64{{0, 0}, {8, 80}, {16, 240}}, step: 4 * time.Second, from: 4, to: 12, want: []float64{10, 20}},
		"across a gap":          {o: ArrivalsOptions{MaxGap: 10 * time.Second}, rows: [][]float64{{0, 0}, {5, 50}, {25, 250}, {30, 300}}, step: 5 * time.Second, from: 0, to: 30, want: []float64{10, nan, nan, nan, nan, 10}},
		"one bin holds a gap":   {o: ArrivalsOptions{MaxGap: 10 * time.Second}, rows: [][]float64{{0, 0}, {5, 50}, {25, 250}, {30, 300}}, step: 30 * time.Second, from: 0, to: 30, want: []float64{10}},
		"a partition was added": {rows: [][]float64{{0, 100}, {10, 200}, {20, 300, 50}, {30, 400, 150}}, step: 10 * time.Second, from: 0, to: 30, want: []float64{10, 15, 20}},
		"the last is not whole": {rows: [][]float64{{0, 0}, {10, 100}}, step: 4 * time.Second, from: 0, to: 10, want: []float64{10, 10}},
		"no time":               {rows: [][]float64{{0, 0}, {10, 100}}, step: time.Second, from: 5, to: 5},
	} {
		t.Run(name, func(t *testing.T) {
			got := observed(t, tt.o, tt.rows...).Series(tt.step, sec(tt.from), sec(tt.to))
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateNaNs(), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRate(t *testing.T) {
	a := observed(t, ArrivalsOptions{MaxGap: 20 * time.Second}, []float64{0, 0}, []float64{10, 100}, []float64{20, 400})
	for name, tt := range map[string]struct {
		now    float64
		window time.Duration
		want   float64
		known  bool
	}{
		"the last observation's window":  {20, 10 * time.Second, 30, true},
		"the same a little later":        {25, 10 * time.Second, 30, true},
		"longer":                         {20, 20 * time.Second, 20, true},
		"longer than the history":        {20, 21 * time.Second, math.NaN(), false},
		"the last observation is stale":  {41, 10 * time.Second, math.NaN(), false},
		"no window":                      {20, 0, math.NaN(), false},
		"part of the way between others": {20, 15 * time.Second, (400 - 50) / 15., true},
	} {
		t.Run(name, func(t *testing.T) {
			got, known := a.Rate(sec(tt.now), tt.window)
			if known != tt.known || !cmp.Equal(got, tt.want, cmpopts.EquateNaNs(), cmpopts.EquateApprox(1e-9, 0)) {
				t.Errorf("%v, %v; want %v, %v", got, known, tt.want, tt.known)
			}
		})
	}
	if r, known := NewArrivals(ArrivalsOptions{}).Rate(t0, time.Second); known || !math.IsNaN(r) {
		t.Errorf("an empty history has the rate %v, known %v", r, known)
	}
}

func TestPartitionRate(t *testing.T) {
	a := observed(t, ArrivalsOptions{MaxGap: 20 * time.Second}, []float64{0, 0, 0}, []float64{10, 100, 50}, []float64{20, 400, 60})
	for _, tt := range []struct {
		partition int32
		now       float64
		window    time.Duration
		want      float64
		known     bool
	}{
		{0, 20, 10 * time.Second, 30, true},
		{1, 20, 10 * time.Second, 1, true},
		{1, 25, 15 * time.Second, (60 - 25) / 15., true},
		{1, 20, 21 * time.Second, math.NaN(), false},
		{-1, 20, 10 * time.Second, math.NaN(), false},
	} {
		got, known := a.PartitionRate(sec(tt.now), tt.partition, tt.window)
		if known != tt.known || !cmp.Equal(got, tt.want, cmpopts.EquateNaNs(), cmpopts.EquateApprox(1e-9, 0)) {
			t.Errorf("%+v: %v, %v", tt, got, known)
		}
	}
}

func TestObserveRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		at   float64
		ends map[int32]int64
		want error
		text string
	}{
		"a shrunk end":        {20, map[int32]int64{0: 150, 1: 199}, ErrShrunk, "observe end offsets: partition 1 ends at 199, after 200: end offsets went down"},
		"a missing partition": {20, map[int32]int64{0: 150}, ErrShrunk, "observe end offsets: 1 partitions, where there were 2: end offsets went down"},
		"a negative end":      {20, map[int32]int64{0: 150, 1: -1}, nil, "observe end offsets: partition 1 ends at -1, which no partition does"},
		"a hole in numbers":   {20, map[int32]int64{0: 150, 2: 300}, nil, "observe end offsets: partition 1 is missing among 2"},
		"the same time":       {10, map[int32]int64{0: 150, 1: 300}, nil, "observe end offsets: 2024-05-01T12:00:10Z does not come after 2024-05-01T12:00:10Z"},
	} {
		t.Run(name, func(t *testing.T) {
			a := observed(t, ArrivalsOptions{}, []float64{0, 0, 0}, []float64{10, 100, 200})
			err := a.Observe(sec(tt.at), tt.ends)
			if err == nil {
				t.Fatal("no error")
			}
			if tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("%v is not %v", err, tt.want)
			}
			if diff := cmp.Diff(tt.text, err.Error()); diff != "" {
				t.Error(diff)
			}
			if r, known := a.Rate(sec(10), 10*time.Second); !known || r != 30 {
				t.Errorf("the refused observation changed the rate to %v, %v", r, known)
			}
			if err := a.Observe(sec(20), map[int32]int64{0: 200, 1: 400}); err != nil {
				t.Errorf("after a refused observation a good one is refused: %v", err)
			}
		})
	}
}

// A clock that is set back takes with it what was observed by it, and the time of an observation is the wall clock's: the monotonic one does not count the time
// that a machine sleeps.
func TestClockSetBack(t *testing.T) {
	a := observed(t, ArrivalsOptions{}, []float64{0, 0}, []float64{10, 100}, []float64{20, 200}, []float64{30, 300}, []float64{15, 310}, []float64{25, 410})
	if diff := cmp.Diff([]float64{10, math.NaN(), 10}, a.Series(5*time.Second, sec(5), sec(20)), cmpopts.EquateNaNs()); diff != "" {
		t.Error(diff)
	}
	if first, last, _ := a.Span(); !first.Equal(sec(0)) || !last.Equal(sec(25)) {
		t.Errorf("the history is from %v to %v", first, last)
	}
	if err := a.Observe(sec(12), map[int32]int64{0: 399}); !errors.Is(err, ErrShrunk) {
		t.Errorf("an end that went down with the clock: %v", err)
	}
	now := time.Now()
	if err := a.Observe(now, map[int32]int64{0: 500}); err != nil {
		t.Fatal(err)
	}
	if _, last, _ := a.Span(); last != now.Round(0) {
		t.Errorf("%v was observed at %v: with the monotonic clock", now, last)
	}
}

// Ten records arrive each second, and a look every five seconds tells. Whatever happens to clock, topic or scheduler, a minute of which the rate is known has that rate:
// what is not known is no traffic, and none is no peak.
func TestWhatHappensIsNoTraffic(t *testing.T) {
	const rate, look, begin, event, end = 10, 5, 0, 7200, 5 * 3600 // seconds
	for name, tt := range map[string]struct {
		clock   func(s int) int           // what it shows after so many seconds
		end     func(s int) (int64, bool) // of the partition; false: nobody looks
		unknown int                       // minutes after the first observation, at most
	}{
		"nothing":                            {unknown: 0},
		"the clock is set back by an hour":   {clock: func(s int) int { return s - 3600*min(s/event, 1) }, unknown: 1},
		"and by ten seconds":                 {clock: func(s int) int { return s - 10*min(s/event, 1) }, unknown: 2},
		"it is set ahead by an hour":         {clock: func(s int) int { return s + 3600*min(s/event, 1) }, unknown: 61},
		"for a minute":                       {clock: func(s int) int { return s + 3600*(min(s/event, 1)-min(s/(event+60), 1)) }, unknown: 3},
		"for ten minutes":                    {clock: func(s int) int { return s + 3600*(min(s/event, 1)-min(s/(event+600), 1)) }, unknown: 12},
		"for more than an hour":              {clock: func(s int) int { return s + 3600*(min(s/event, 1)-min(s/(event+5000-5000%look), 1)) }, unknown: 62},
		"the scheduler sleeps ten minutes":   {end: func(s int) (int64, bool) { return rate * int64(s), s < event || s >= event+600 }, unknown: 11},
		"the log loses its last ten seconds": {end: func(s int) (int64, bool) { return rate * int64(s-10*min(s/event, 1)), true }, unknown: 2},
		"the log loses its last minutes":     {end: func(s int) (int64, bool) { return rate * int64(s-150*min(s/event, 1)), true }, unknown: 5},
		"the topic is created again":         {end: func(s int) (int64, bool) { return rate * int64(s-event*min(s/event, 1)), true }, unknown: 121},
	} {
		t.Run(name, func(t *testing.T) {
			a := NewArrivals(ArrivalsOptions{Fine: time.Minute})
			now := 0
			for s := begin; s < end; s += look {
				now = s
				if tt.clock != nil {
					now = tt.clock(s)
				}
				ends, looks := int64(rate*s), true
				if tt.end != nil {
					ends, looks = tt.end(s)
				}
				if looks {
					_ = a.Observe(sec(float64(now)), map[int32]int64{0: ends}) // what is refused is no observation
				}
			}
			unknown := 0
			for i, r := range a.Series(time.Minute, sec(begin), sec(float64(now-look))) {
				if math.IsNaN(r) {
					unknown++
				} else if math.Abs(r-rate) > 1e-9 {
					t.Errorf("minute %d: %v/s", i, r)
				}
			}
			if unknown > tt.unknown {
				t.Errorf("%d minutes are unknown, want %d at most", unknown, tt.unknown)
			}
		})
	}
}

// What is looked up of a time by the dates of records contradicts what was observed where the clock has jumped: it is not taken for silence.
func TestMergeAfterAJump(t *testing.T) {
	for name, tt := range map[string]struct {
		rows [][]float64
		past []float64 // ends at the minutes 2, 3, …
		want []float64
	}{
		"asleep":                       {[][]float64{{0, 0}, {60, 600}, {360, 3600}}, []float64{1200, 1800, 2400, 3000}, []float64{10, 10, 10, 10, 10, 10}},
		"asleep in a lull":             {[][]float64{{0, 0}, {60, 600}, {360, 1200}}, []float64{1200, 1200, 1200, 1200}, []float64{10, 10, 0, 0, 0, 0}},
		"the clock jumped ahead":       {[][]float64{{0, 0}, {60, 600}, {360, 605}}, []float64{120, 240, 360, 480}, []float64{10, math.NaN(), math.NaN(), math.NaN(), math.NaN(), math.NaN()}},
		"the topic was created again":  {[][]float64{{0, 0}, {60, 600}, {90, 10}, {360, 3600}}, []float64{1200, 1800, 2400, 3000}, []float64{10, math.NaN(), math.NaN(), math.NaN(), math.NaN(), math.NaN()}},
		"dates a little ahead of time": {[][]float64{{0, 0}, {60, 600}, {360, 3600}}, []float64{1000, 1600, 2200, 2800}, []float64{10, 400. / 60, 10, 10, 10, 800. / 60}},
	} {
		t.Run(name, func(t *testing.T) {
			a := NewArrivals(ArrivalsOptions{})
			for _, row := range tt.rows {
				_ = a.Observe(sec(row[0]), map[int32]int64{0: int64(row[1])})
			}
			var past []sample
			for i, end := range tt.past {
				past = append(past, sample{at: sec(float64(60 * (i + 2))), ends: []int64{int64(end)}})
			}
			a.merge(past)
			if diff := cmp.Diff(tt.want, a.Series(time.Minute, sec(0), sec(360)), cmpopts.EquateNaNs(), cmpopts.EquateApprox(1e-9, 0)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMissed(t *testing.T) {
	o := ArrivalsOptions{MaxGap: 10 * time.Second, Keep: time.Minute}
	for name, tt := range map[string]struct {
		rows  [][]float64
		since float64
		want  bool
	}{
		"nothing observed":  {},
		"one observation":   {rows: [][]float64{{0, 0}}},
		"no gap":            {rows: [][]float64{{0, 0}, {10, 5}}},
		"a gap":             {rows: [][]float64{{0, 0}, {10, 5}, {21, 8}}, since: 10, want: true},
		"a gap before":      {rows: [][]float64{{0, 0}, {21, 8}, {30, 9}}},
		"more than is kept": {rows: [][]float64{{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}, {6, 0}, {7, 0}, {8, 0}, {100, 9}}, since: 8, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			since, missed := observed(t, o, tt.rows...).Missed()
			if missed != tt.want || missed && !since.Equal(sec(tt.since)) {
				t.Errorf("missed %v since %v", missed, since)
			}
		})
	}
}

func TestEnteredAt(t *testing.T) {
	a := observed(t, ArrivalsOptions{MaxGap: 10 * time.Second}, []float64{0, 50}, []float64{10, 60}, []float64{20, 60}, []float64{30, 70, 4}, []float64{50, 90, 4})
	for name, tt := range map[string]struct {
		partition int32
		offset    int64
		want      float64
		ok        bool
	}{
		"before the history":           {0, 49, 0, false},
		"the first of ten":             {0, 50, 0.5, true},
		"the last of ten":              {0, 59, 9.5, true},
		"after a lull":                 {0, 60, 20.5, true},
		"in a gap":                     {0, 75, 0, false},
		"not yet":                      {0, 90, 0, false},
		"first of a partition added":   {1, 0, 21.25, true},
		"a partition that is not here": {7, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := a.EnteredAt(tt.partition, tt.offset)
			if ok != tt.ok || ok && !got.Equal(sec(tt.want)) {
				t.Errorf("%v, %v; want %v, %v", got.Sub(t0), ok, sec(tt.want).Sub(t0), tt.ok)
			}
		})
	}
}

func TestLag(t *testing.T) {
	rows := [][]float64{{0, 1000, 0}, {10, 1100, 100}, {20, 1200, 100}, {30, 1300, 200}}
	for name, tt := range map[string]struct {
		now     float64
		applied map[int32]int64
		records int64
		oldest  float64 // seconds
		known   bool
	}{
		"nothing behind":             {30, map[int32]int64{0: 1300, 1: 200}, 0, 0, true},
		"ahead of what was observed": {30, map[int32]int64{0: 1310, 1: 200}, 0, 0, true},
		"one behind":                 {30, map[int32]int64{0: 1300, 1: 100}, 100, 9.95, true},
		"the worst counts":           {30, map[int32]int64{0: 1150, 1: 199}, 151, 14.95, true},
		"time goes on":               {40, map[int32]int64{0: 1150, 1: 199}, 151, 24.95, true},
		"older than the history":     {30, map[int32]int64{0: 900, 1: 200}, 400, 30, false},
		"a partition is not known":   {30, map[int32]int64{0: 1250}, 50, 4.95, false},
		"stale":                      {300, map[int32]int64{0: 1300, 1: 200}, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			records, oldest, known := observed(t, ArrivalsOptions{}, rows...).Lag(sec(tt.now), tt.applied)
			if records != tt.records || math.Abs(oldest.Seconds()-tt.oldest) > 1e-6 || known != tt.known {
				t.Errorf("%d records, %v, known %v; want %d, %v s, %v", records, oldest, known, tt.records, tt.oldest, tt.known)
			}
		})
	}
	if _, _, known := NewArrivals(ArrivalsOptions{}).Lag(t0, map[int32]int64{0: 1}); known {
		t.Error("lag is known where nothing was observed")
	}
}

// A history stays small, and thinning changes neither rates nor lags by more than a step's interpolation.
func TestThinning(t *testing.T) {
	a := NewArrivals(ArrivalsOptions{Keep: time.Hour, Step: time.Minute, Fine: 5 * time.Minute})
	end := int64(0)
	for i := range 3 * 3600 {
		if err := a.Observe(sec(float64(i)), map[int32]int64{0: end}); err != nil {
			t.Fatal(err)
		}
		end += 100
	}
	now := sec(3*3600 - 1)
	if n, most := len(a.samples), 60+300+64+60/7; n > most+8 {
		t.Errorf("%d observations are kept, want about %d", n, most)
	}
	first, last, ok := a.Span()
	if !ok || !last.Equal(now) || now.Sub(first) < time.Hour-time.Minute || now.Sub(first) > 70*time.Minute {
		t.Errorf("the history spans %v to %v, want the last hour", first.Sub(t0), last.Sub(t0))
	}
	for i, r := range a.Series(time.Minute, now.Add(-50*time.Minute), now) {
		if math.Abs(r-100) > 1e-6 {
			t.Errorf("bin %d: %v/s, want 100", i, r)
		}
	}
	_, oldest, known := a.Lag(now, map[int32]int64{0: end - 100 - 100*1800})
	if !known || math.Abs(oldest.Seconds()-1800) > 1 {
		t.Errorf("lag %v, known %v; want half an hour", oldest, known)
	}
}

// Rates and entry times against a simple second implementation: every record's own time.
func TestAgainstEveryRecord(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		a := NewArrivals(ArrivalsOptions{Fine: time.Hour})
		var at [3][]float64 // entry times by partition and offset
		for s := range 300 {
			ends := map[int32]int64{}
			for p := range at {
				for range rng.IntN(20) {
					at[p] = append(at[p], float64(s)+rng.Float64())
				}
				ends[int32(p)] = int64(len(at[p]))
			}
			if err := a.Observe(sec(float64(s+1)), ends); err != nil {
				t.Fatal(err)
			}
		}
		for i, got := range a.Series(7*time.Second, sec(1), sec(300)) {
			n := 0
			for p := range at {
				for _, s := range at[p] {
					if s >= float64(1+7*i) && s < float64(8+7*i) {
						n++
					}
				}
			}
			if math.Abs(got-float64(n)/7) > 1e-9 {
				t.Fatalf("bin %d: %v/s, want %d records in 7 s", i, got, n)
			}
		}
		for range 100 {
			p := rng.IntN(3)
			offset := rng.IntN(len(at[p]))
			got, ok := a.EnteredAt(int32(p), int64(offset))
			want := at[p][offset]
			if !ok && want >= 1 || ok && math.Abs(got.Sub(t0).Seconds()-want) > 1 {
				t.Fatalf("partition %d offset %d: %v, %v; want %v s", p, offset, got.Sub(t0), ok, want)
			}
		}
	}
}

func TestMerge(t *testing.T) {
	o := ArrivalsOptions{MaxGap: 10 * time.Second}
	past := func(rows ...[]float64) (out []sample) {
		for _, row := range rows {
			s := sample{at: sec(row[0])}
			for _, end := range row[1:] {
				s.ends = append(s.ends, int64(end))
			}
			out = append(out, s)
		}
		return out
	}
	for name, tt := range map[string]struct {
		live [][]float64
		past []sample
		want []sample
	}{
		"into nothing":            {nil, past([]float64{0, 1}, []float64{5, 2}), past([]float64{0, 1}, []float64{5, 2})},
		"before the first":        {[][]float64{{20, 10}}, past([]float64{0, 1}, []float64{5, 2}), past([]float64{0, 1}, []float64{5, 2}, []float64{20, 10})},
		"later than live":         {[][]float64{{20, 10}}, past([]float64{10, 1}, []float64{20, 9}, []float64{30, 99}), past([]float64{10, 1}, []float64{20, 10})},
		"where there is enough":   {[][]float64{{0, 0}, {10, 10}}, past([]float64{5, 2}), past([]float64{0, 0}, []float64{10, 10})},
		"into a gap":              {[][]float64{{0, 0}, {20, 10}}, past([]float64{10, 7}), past([]float64{0, 0}, []float64{10, 7}, []float64{20, 10})},
		"held within neighbours":  {[][]float64{{0, 5}, {20, 10}}, past([]float64{5, 3}, []float64{10, 12}), past([]float64{0, 5}, []float64{5, 5}, []float64{10, 10}, []float64{20, 10})},
		"unknown into a gap":      {[][]float64{{0, 5}, {20, 10}}, past([]float64{10, -1}), past([]float64{0, 5}, []float64{20, 10})},
		"unknown at the start":    {[][]float64{{20, 10}}, past([]float64{0, -1}, []float64{10, 4}), past([]float64{0, -1}, []float64{10, 4}, []float64{20, 10})},
		"more partitions by then": {[][]float64{{0, 5}, {20, 10}, {40, 20, 3}}, past([]float64{10, 7, 0}, []float64{30, 12, 1}), past([]float64{0, 5}, []float64{10, 7}, []float64{20, 10}, []float64{30, 12, 1}, []float64{40, 20, 3})},
	} {
		t.Run(name, func(t *testing.T) {
			a := observed(t, o, tt.live...)
			n := a.merge(tt.past)
			if n != len(tt.want)-len(tt.live) {
				t.Errorf("merge says that it added %d, want %d", n, len(tt.want)-len(tt.live))
			}
			if diff := cmp.Diff(tt.want, a.samples, cmp.AllowUnexported(sample{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func BenchmarkObserve(b *testing.B) {
	a := NewArrivals(ArrivalsOptions{})
	ends := map[int32]int64{}
	for i := range b.N {
		for p := range int32(64) {
			ends[p] = int64(i)
		}
		if err := a.Observe(sec(5*float64(i)), ends); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSeriesOfAWeek(b *testing.B) {
	a := NewArrivals(ArrivalsOptions{})
	ends := map[int32]int64{}
	for i := range 7 * 24 * 60 {
		for p := range int32(64) {
			ends[p] = int64(i)
		}
		if err := a.Observe(sec(60*float64(i)), ends); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for range b.N {
		a.Series(time.Minute, t0, sec(7*24*3600))
	}
}
