package core

import (
	"slices"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/rpc"
)

// A made-up clock: milliseconds after its beginning.
func msAt(ms int64) time.Time { return time.UnixMilli(1_800_000_000_000 + ms) }

// progressOf is a log of one chief; points are partition, ms, watermark.
func progressOf(points ...[3]int64) *progressLog {
	l := newProgressLog(10 * time.Minute)
	r := &rpc.AdvancesResponse{Chief: 1}
	for i, p := range points {
		r.Advances = append(r.Advances, &rpc.Advance{Seq: uint64(i + 1), Partition: int32(p[0]), UnixMs: msAt(p[1]).UnixMilli(), Watermark: p[2]})
	}
	last := int64(0)
	if len(points) > 0 {
		last = points[len(points)-1][1]
	}
	l.add(msAt(last), r)
	return l
}

// always says that every record was there from the beginning, so that every wait is the scheduler's.
func always(int32, int64) (time.Time, bool) { return msAt(-1_000_000), true }

// never says that no further record has come.
func never(int32, int64) (time.Time, bool) { return time.Time{}, false }

func TestGap(t *testing.T) {
	// Partition 0 advances every 100 ms; at 1000 a rescale is decided, and the next advance comes at 1350.
	steady := [][3]int64{{0, 0, 0}, {0, 100, 10}, {0, 200, 20}, {0, 300, 30}, {0, 400, 40}, {0, 500, 50}, {0, 600, 60}, {0, 700, 70}, {0, 800, 80}, {0, 900, 90}}
	with := func(more ...[3]int64) *progressLog { return progressOf(append(slices.Clone(steady), more...)...) }
	for name, c := range map[string]struct {
		log   *progressLog
		when  entered
		gap   time.Duration
		known bool
	}{
		"the longest wait less the usual one": {with([3]int64{0, 1250, 100}, [3]int64{0, 1350, 110}, [3]int64{0, 1500, 120}), always, 250 * time.Millisecond, true},
		"as steady as before":                 {with([3]int64{0, 1000, 100}, [3]int64{0, 1100, 110}, [3]int64{0, 1200, 120}, [3]int64{0, 1300, 120}, [3]int64{0, 1400, 120}, [3]int64{0, 1500, 120}), always, 0, true},
		"the worst partition counts": {with([3]int64{0, 1000, 100}, [3]int64{1, 1000, 5}, [3]int64{0, 1100, 110}, [3]int64{0, 1200, 110}, [3]int64{0, 1300, 120},
			[3]int64{0, 1400, 130}, [3]int64{1, 1450, 6}, [3]int64{0, 1500, 140}, [3]int64{1, 1500, 7}), always, 350 * time.Millisecond, true},
		"a record that came later waited from then on": {with([3]int64{0, 1400, 100}), func(_ int32, offset int64) (time.Time, bool) {
			return msAt(map[int64]int64{90: 1250}[offset]), true // the one after 100 came long ago, and waits from 1400 to 1500
		}, 50 * time.Millisecond, true},
		"a wait that has not ended counts":   {with(), always, 500 * time.Millisecond, true},
		"without records nothing waits":      {with(), never, 0, false},
		"a wait that ended before is no gap": {progressOf([3]int64{0, 0, 0}, [3]int64{0, 900, 1}), never, 0, false},
		"nothing was seen":                   {progressOf(), always, 0, false},
		"a stall from before the decision is not the rescale's": {progressOf([3]int64{0, -9000, 0}, [3]int64{0, 0, 1}, [3]int64{0, 100, 2}, [3]int64{0, 200, 3}, [3]int64{1, -8000, 0}, [3]int64{0, 300, 4},
			[3]int64{0, 400, 5}, [3]int64{0, 500, 6}, [3]int64{0, 600, 7}, [3]int64{0, 700, 8}, [3]int64{0, 800, 9}, [3]int64{0, 900, 10}, [3]int64{0, 1000, 11}, [3]int64{1, 1060, 7},
			[3]int64{0, 1100, 12}, [3]int64{0, 1200, 13}, [3]int64{0, 1300, 14}, [3]int64{0, 1400, 15}, [3]int64{0, 1500, 16}, [3]int64{1, 1500, 8}), always, 340 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			gap, known := c.log.gap(msAt(1000), msAt(1500), msAt(0), c.when)
			if gap != c.gap || known != c.known {
				t.Errorf("gap %v, known %v; want %v, %v", gap, known, c.gap, c.known)
			}
		})
	}
}

// Where progress could not be followed, a gap is unknown and not small.
func TestGapIsUnknownAcrossAHole(t *testing.T) {
	for name, next := range map[string]*rpc.AdvancesResponse{
		"another chief": {Chief: 2, Advances: []*rpc.Advance{{Seq: 1, UnixMs: msAt(1200).UnixMilli(), Watermark: 30}}},
		"truncated":     {Chief: 1, Truncated: true, Advances: []*rpc.Advance{{Seq: 900, UnixMs: msAt(1200).UnixMilli(), Watermark: 30}}},
	} {
		t.Run(name, func(t *testing.T) {
			l := progressOf([3]int64{0, 0, 0}, [3]int64{0, 100, 10}, [3]int64{0, 1100, 20})
			l.add(msAt(1250), next)
			if gap, known := l.gap(msAt(1000), msAt(1500), msAt(0), always); known {
				t.Errorf("gap %v is said to be known", gap)
			}
			if _, known := l.gap(msAt(1300), msAt(1500), msAt(1260), always); !known {
				t.Error("a gap after the hole is not known")
			}
			if l.last != next.Advances[0].Seq || l.chief != next.Chief {
				t.Errorf("asks on from %d of chief %d", l.last, l.chief)
			}
		})
	}
}

// Where another chief came, what is missing in between counts as waiting, once all that waits goes on.
func TestGapAcrossAnotherChief(t *testing.T) {
	type answer struct {
		chief  uint64
		points [][3]int64
	}
	before := answer{1, [][3]int64{{0, 900, 90}, {1, 950, 5}}}
	for name, c := range map[string]struct {
		next       answer
		when       entered
		atMost     time.Duration
		known, yet bool
	}{
		"all go on":                  {answer{2, [][3]int64{{0, 1400, 95}, {1, 1450, 6}}}, always, 450 * time.Millisecond, true, true},
		"one does not go on yet":     {answer{2, [][3]int64{{0, 1400, 95}}}, always, 0, false, false},
		"one has nothing to train":   {answer{2, [][3]int64{{0, 1400, 95}}}, func(p int32, n int64) (time.Time, bool) { return msAt(0), p == 0 }, 400 * time.Millisecond, true, true},
		"nothing waits":              {answer{2, nil}, never, 0, false, true},
		"nothing goes on":            {answer{2, nil}, always, 0, false, false},
		"it is the same chief still": {answer{1, [][3]int64{{0, 1400, 95}, {1, 1450, 6}}}, always, 0, false, true},
	} {
		l := newProgressLog(time.Minute)
		for i, a := range []answer{before, c.next} {
			r := &rpc.AdvancesResponse{Chief: a.chief}
			for k, p := range a.points {
				r.Advances = append(r.Advances, &rpc.Advance{Seq: uint64(10*i + k + 1), Partition: int32(p[0]), UnixMs: msAt(p[1]).UnixMilli(), Watermark: p[2]})
			}
			l.add(msAt(1000+500*int64(i)), r)
		}
		if atMost, known, yet := l.bridged(msAt(1000), msAt(1500), c.when); atMost != c.atMost || known != c.known || yet != c.yet {
			t.Errorf("%s: at most %v, %v, %v; want %v, %v, %v", name, atMost, known, yet, c.atMost, c.known, c.yet)
		}
	}
}

// The log is bounded, and forgets no partition that waits.
func TestProgressLogForgets(t *testing.T) {
	l := newProgressLog(time.Minute)
	for i := range int64(1000) {
		l.add(msAt(1000*i), &rpc.AdvancesResponse{Chief: 1, Advances: []*rpc.Advance{
			{Seq: uint64(2*i + 1), Partition: 0, UnixMs: msAt(1000 * i).UnixMilli(), Watermark: i},
			{Seq: 1, Partition: 1, UnixMs: msAt(0).UnixMilli(), Watermark: 7}, // one that it has already, but for the first time
		}})
	}
	if n := len(l.byPart[0]); n > 62 {
		t.Errorf("%d points of a minute of seconds", n)
	}
	if len(l.byPart[1]) > 1 {
		t.Errorf("an entry was taken twice: %v", l.byPart[1])
	}
	l.add(msAt(0), &rpc.AdvancesResponse{Chief: 2, Advances: []*rpc.Advance{{Seq: 1, Partition: 2, UnixMs: msAt(0).UnixMilli(), Watermark: 3}}})
	l.add(msAt(5_000_000), &rpc.AdvancesResponse{Chief: 2})
	if p := l.byPart[2]; len(p) != 1 || p[0].watermark != 3 {
		t.Errorf("the last advance of a partition that waits was forgotten: %v", p)
	}
	if len(l.holes) != 0 {
		t.Errorf("holes of long ago are kept: %v", l.holes)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []time.Duration
		want time.Duration
	}{{nil, 0}, {[]time.Duration{5}, 5}, {[]time.Duration{9, 1, 5}, 5}, {[]time.Duration{4, 1, 3, 2}, 3}} {
		given := slices.Clone(c.in)
		if got := median(c.in); got != c.want || !slices.Equal(given, c.in) {
			t.Errorf("median(%v) = %v, want %v; left %v", given, got, c.want, c.in)
		}
	}
}

// How fast a partition goes forward is known where it was followed all that time: from the last advance at or before the beginning to the newest.
func TestProgressRate(t *testing.T) {
	l := progressOf([3]int64{0, 0, 100}, [3]int64{0, 900, 200}, [3]int64{0, 3000, 500}, [3]int64{1, 2000, 7}, [3]int64{0, 5000, 600})
	for name, c := range map[string]struct {
		partition int32
		from, to  int64
		rate      float64
		known     bool
	}{
		"from an advance":         {0, 900, 4900, 100, true},
		"from between two":        {0, 1000, 5000, 100, true},
		"nothing since":           {0, 5000, 6000, 0, true},
		"from before the first":   {1, 1000, 5000, 0, false},
		"a partition of no worth": {2, 1000, 5000, 0, false},
		"no time":                 {0, 5000, 5000, 0, false},
	} {
		if rate, known := l.rate(c.partition, msAt(c.from), msAt(c.to)); rate != c.rate || known != c.known {
			t.Errorf("%s: %v, %v; want %v, %v", name, rate, known, c.rate, c.known)
		}
	}
	l.add(msAt(6000), &rpc.AdvancesResponse{Chief: 2})
	if _, known := l.rate(0, msAt(2000), msAt(6000)); known {
		t.Error("across a change of chiefs it is known")
	}
}
