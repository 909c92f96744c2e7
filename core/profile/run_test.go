package profile

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// contended is a curve whose workers hinder each other.
func contended(w, p int) float64 { return 1000 * float64(w) / (1 + 0.05*float64(w)/float64(p)) }

func TestEachPointIsMeasuredWhenAllAreBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBench{rate: contended, records: 1e6, batch: 10, joinTime: 2 * time.Second}
		began := time.Now()
		points, err := Run(t.Context(), b, fakeOptions(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"start 1 workers, 2 servers", "scale to 2", "scale to 4", "end"}, b.calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		if len(points) != 3 {
			t.Fatalf("%d points: %+v", len(points), points)
		}
		for i, w := range []int{1, 2, 4} {
			p := points[i]
			if p.Workers != w || p.Servers != 2 || len(p.Rates) != 4 || p.Why != "" {
				t.Errorf("point %d: %+v", i, p)
			}
			if want := contended(w, 2); math.Abs(p.Mean()/want-1) > 0.005 {
				t.Errorf("%d workers: measured %.1f, they train %.1f", w, p.Mean(), want)
			}
			if p.Joined < 2 || p.Joined > 3 {
				t.Errorf("%d workers had joined after %v s, and it takes 2", w, p.Joined)
			}
		}
		// The estimate is what it took, but for the time that was assumed for the start and the joins.
		if took, told := time.Since(began), fakeOptions().Estimate(); took > told || told-took > 20*time.Second {
			t.Errorf("it took %v, and %v was foretold", took, told)
		}
	})
}

// A rate that was measured while somebody waited for records is no capacity: such intervals do not count, and the next one does not either.
func TestIntervalsInWhichSomebodyWaitedDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := fakeOptions()
		o.Workers = []int{2}
		began := time.Now()
		b := &fakeBench{rate: contended, records: 1e6, batch: 10}
		b.hungry = func(at time.Time) bool { s := at.Sub(began).Seconds(); return s > 12 && s < 30 }
		points, err := Run(t.Context(), b, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if p := points[0]; p.Hungry == 0 || len(p.Rates) != o.Intervals {
			t.Errorf("%+v", p)
		}
		if took := time.Since(began); took < 45*time.Second { // 30 s, then a first interval and at least two that count
			t.Errorf("measured within %v, though somebody waited until 30 s", took)
		}
	})
}

func TestWorkersThatAreNeverBusyAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBench{rate: contended, records: 1e9, batch: 10, hungry: func(time.Time) bool { return true }}
		o := fakeOptions()
		o.Workers = []int{1}
		began := time.Now()
		points, err := Run(t.Context(), b, o, nil)
		if err != nil || len(points) != 1 || !points[0].Unfed ||
			!strings.HasPrefix(points[0].Why, "the worker was busy only 0 % of the time, and never for a whole interval of 5s, though records were waiting: the brokers or the machine's cores, "+
				"busy with other work or too few, cannot feed it (at ") ||
			!strings.HasSuffix(points[0].Why, " looks somebody waited); measure when they are idle, or in shorter intervals (-interval 1s); more records do not help") {
			t.Errorf("%+v, %v", points, err)
		}
		if took := time.Since(began); took > o.Estimate()+time.Second {
			t.Errorf("given up after %v, and %v were announced", took, o.Estimate())
		}
		if points[0].Mean() != 0 {
			t.Errorf("a point that was given up has a rate: %v", points[0].Mean())
		}
		if b.calls[len(b.calls)-1] != "end" {
			t.Errorf("calls %q", b.calls)
		}
	})
}

// Workers whose steps are so long that an interval takes longer than was announced are measured, though they waited for records at first.
func TestWorkersOfLongStepsAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := fakeOptions()
		o.Workers = []int{1}
		b := &fakeBench{rate: func(w, _ int) float64 { return 10. / 3 * float64(w) }, records: 1e9, batch: o.Batch} // a step of 10 records takes 3 s
		began := time.Now()
		b.hungry = func(at time.Time) bool { return at.Sub(began) < 10*time.Second }
		points, err := Run(t.Context(), b, o, nil)
		if err != nil || len(points) != 1 || points[0].Why != "" || len(points[0].Rates) != o.Intervals || points[0].Hungry <= o.Intervals {
			t.Errorf("%+v, %v", points, err)
		}
	})
}

// Where not all of several workers are ever busy it is not for want of records, whether these last or are used up meanwhile: the point is not tried again, and
// the run ends within what was announced.
func TestWorkersThatCannotBeFedAreNotTakenForTooFewRecords(t *testing.T) {
	for name, records := range map[string]float64{"they last": 1e9, "they are used up": 135_000} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &fakeBench{rate: contended, records: records, batch: 10}
				b.hungry = func(time.Time) bool { return b.workers == 3 && b.at.UnixMilli()%3000 < 500 } // never for 5 s, but for less
				o := fakeOptions()
				o.Workers, o.Most, o.Records = []int{1, 3}, 3, int64(records)
				began := time.Now()
				points, err := Run(t.Context(), b, o, nil)
				if err != nil || len(points) != 2 || points[0].Why != "" {
					t.Fatalf("%+v, %v", points, err)
				}
				if p := points[1]; p.Few || !p.Unfed || p.Hungry < 5 || !strings.HasPrefix(p.Why, "all 3 workers were busy only 83 % of the time, and never for a whole interval of 5s, though") ||
					!strings.HasSuffix(p.Why, "fewer workers (-workers), or in shorter intervals (-interval 1s); more records do not help") {
					t.Errorf("%+v", p)
				}
				if n := strings.Count(strings.Join(b.calls, ","), "start"); n != 1 {
					t.Errorf("calls %q", b.calls)
				}
				if took := time.Since(began); took > o.Estimate()+time.Second {
					t.Errorf("it took %v, and %v were announced", took, o.Estimate())
				}
			})
		})
	}
}

func TestWorkersThatDoNotJoinAreGivenUpAfterThePatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBench{rate: contended, records: 1e9, batch: 10, joinTime: time.Hour}
		o := fakeOptions()
		o.Workers = []int{1}
		began := time.Now()
		points, err := Run(t.Context(), b, o, nil)
		if err != nil || len(points) != 1 || !strings.Contains(points[0].Why, "0 of 1 workers had joined after 1m0s") {
			t.Errorf("%+v, %v", points, err)
		}
		if took := time.Since(began); took < o.Patience || took > o.Patience+time.Second {
			t.Errorf("given up after %v", took)
		}
	})
}

// Records that are used up are read from their beginning again, once; a point that needs more than all of them says so.
func TestRecordsThatAreUsedUpAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBench{rate: contended, records: 110_000, batch: 10, joinTime: time.Second}
		o := fakeOptions()
		o.Workers, o.Records = []int{1, 2, 4, 8, 16}, 110_000
		points, err := Run(t.Context(), b, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		why := make([]string, len(points))
		for i, p := range points {
			why[i] = p.Why
		}
		if why[0] != "" || why[1] != "" || why[2] != "" || why[3] != "" || !strings.Contains(why[4], "the topic has too few records: 110000, and 16 workers train about") {
			t.Errorf("%q", why)
		}
		if p := points[3]; len(p.Rates) != 2 || !strings.Contains(p.Fewer, "all 110000 were trained before 4 intervals were measured") {
			t.Errorf("8 workers: %+v", p)
		}
		if !slices.Contains(b.calls, "start 4 workers, 2 servers") {
			t.Errorf("calls %q", b.calls)
		}
	})
}

// An interval in which all were busy is good, whatever comes later: those that were measured before the records were used up count, and only what is lacking is
// measured from their beginning.
func TestIntervalsBeforeTheRecordsWereUsedUpCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBench{rate: contended, records: 60_000, batch: 10, joinTime: time.Second}
		o := fakeOptions()
		o.Workers, o.Records, o.Intervals = []int{2}, 60_000, 8
		points, err := Run(t.Context(), b, o, nil)
		if err != nil || len(points) != 1 {
			t.Fatalf("%+v, %v", points, err)
		}
		if p := points[0]; p.Why != "" || !p.Few || len(p.Rates) != 5 || !strings.Contains(p.Fewer, "all 60000 were trained before 8 intervals were measured; it takes about 8") {
			t.Errorf("%+v", p)
		}
		if want := contended(2, 2); math.Abs(points[0].Mean()/want-1) > 0.005 {
			t.Errorf("measured %.1f, they train %.1f", points[0].Mean(), want)
		}

		b = &fakeBench{rate: contended, records: 60_000, batch: 10, joinTime: time.Second}
		o.Workers, o.Intervals = []int{1, 2}, 4
		if points, err = Run(t.Context(), b, o, nil); err != nil || len(points) != 2 {
			t.Fatalf("%+v, %v", points, err)
		}
		if p := points[1]; p.Why != "" || p.Fewer != "" || len(p.Rates) != 4 {
			t.Errorf("%+v", p)
		}
		if p, ok := b.left, b.calls[len(b.calls)-2] == "start 2 workers, 2 servers"; !ok || p < 60_000-contended(2, 2)*20 {
			t.Errorf("calls %q, and %.0f of the records are left: more was measured again than was lacking", b.calls, p)
		}
	})
}

// What is said of a measurement that failed is which condition was not met.
func TestWhichConditionFailedIsSaid(t *testing.T) {
	for _, c := range []struct {
		m    meter
		want string
	}{
		{meter{workers: 2, interval: 5 * time.Second, looks: 100, fed: 61, dry: 30}, "all 2 workers were busy only 61 % of the time, and never for a whole interval of 5s: at 30 of 100 looks no records were " +
			"waiting in the topic; wait until it holds more"},
		{meter{workers: 2, interval: 5 * time.Second, looks: 100, fed: 61}, "all 2 workers were busy only 61 % of the time, and never for a whole interval of 5s, though records were waiting: the brokers or " +
			"the machine's cores, busy with other work or too few"},
		{meter{workers: 1, interval: 5 * time.Second, looks: 100, fed: 61, rates: []float64{1}}, "the worker was busy only 61 % of the time, and not often enough (1 counted) for a whole"},
		{meter{workers: 1, batch: 64, looks: 100, fed: 97, cut: 4}, "batches were not full in 4 of 4 intervals: records come in pieces that are smaller than model.batch (64)"},
		{meter{workers: 1, interval: time.Second, looks: 100, fed: 97, short: true}, "steps are long: in an interval each worker must make 10, and has made fewer in more than 1s"},
		{meter{workers: 1}, "no two looks in a row found all workers joined"},
	} {
		if got := c.m.lacks(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%q; want %q", got, c.want)
		}
	}
}

// How many points there are is how many will be measured; those that may be added are told apart until they are.
func TestPointsAreCountedAsTheyAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBench{rate: func(w, _ int) float64 { return 1000 * float64(w) }, records: 1e9, batch: 10}
		o := fakeOptions()
		o.Workers, o.Extra, o.Most = []int{1, 2, 4, 8}, 2, 8
		var last Progress
		points, err := Run(t.Context(), b, o, func(p Progress) {
			if p.Phase == Measuring && p.Done < 4 && (p.Points != 4 || p.Extra != 2) {
				t.Errorf("%+v", p)
			}
			last = p
		})
		if err != nil || last.Points != len(points) || last.Extra != 0 {
			t.Errorf("%d points, %+v, %v", len(points), last, err)
		}
	})
}

func TestRecordsThatDoNotLastForOnePointAreSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBench{rate: contended, records: 8000, batch: 10}
		o := fakeOptions()
		o.Workers, o.Records = []int{1}, 8000
		points, err := Run(t.Context(), b, o, nil)
		if err != nil || len(points) != 1 || !strings.Contains(points[0].Why, "all 8000 were trained before 4 intervals were measured") {
			t.Errorf("%+v, %v", points, err)
		}
		if n := strings.Count(strings.Join(b.calls, ","), "start"); n != 1 { // it had begun at the beginning: again would be the same
			t.Errorf("calls %q", b.calls)
		}
		if !points[0].Few || !strings.Contains(points[0].Why, "it takes about 2") { // 950/s over five intervals of 5 s
			t.Errorf("%+v", points[0])
		}
	})
}

// What lasts for too short a time with one worker does not last for more: nothing more is started.
func TestRecordsThatDoNotLastForTheFewestWorkersEndTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBench{rate: contended, records: 8000, batch: 10}
		o := fakeOptions()
		o.Servers, o.Extra, o.Most, o.Records = []int{1, 2}, 2, 8, 8000
		points, err := Run(t.Context(), b, o, nil)
		if err != nil || len(points) != 6 {
			t.Fatalf("%+v, %v", points, err)
		}
		for _, p := range points[1:] {
			if !p.Few || p.Why != "the topic has too few records: as many workers or fewer used up all 8000 too soon" {
				t.Errorf("%+v", p)
			}
		}
		if diff := cmp.Diff([]string{"start 1 workers, 1 servers", "end"}, b.calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

func TestWhateverEndsARunEndsTheBench(t *testing.T) {
	broken := errors.New("broken")
	for name, b := range map[string]*fakeBench{
		"interrupt": {}, "start": {startErr: broken}, "look": {lookErr: broken},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b.rate, b.records, b.batch = contended, 1e9, 10
				ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
				defer cancel()
				points, err := Run(ctx, b, fakeOptions(), nil)
				if name == "interrupt" && !errors.Is(err, context.DeadlineExceeded) || name != "interrupt" && !errors.Is(err, broken) {
					t.Errorf("%v", err)
				}
				if b.running || b.calls[len(b.calls)-1] != "end" || len(points) != 0 {
					t.Errorf("calls %q, points %+v", b.calls, points)
				}
			})
		})
	}
}

func TestSeveralNumbersOfServersAreMeasuredApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBench{rate: contended, records: 1e9, batch: 10}
		o := fakeOptions()
		o.Workers, o.Servers = []int{1, 2, 4, 8}, []int{1, 2}
		points, err := Run(t.Context(), b, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"start 1 workers, 1 servers", "scale to 2", "scale to 4", "scale to 8", "end", "start 1 workers, 2 servers", "scale to 2", "scale to 4", "scale to 8", "end"}
		if diff := cmp.Diff(want, b.calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		p, err := New("ctr", time.Now(), points, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !p.Model.Form.UsesServers() {
			t.Errorf("servers count, and %s was chosen", p.Model)
		}
		for _, r := range p.Rows(8) {
			if want := contended(r.Workers, r.Servers); math.Abs(r.Fitted/want-1) > 0.05 {
				t.Errorf("%d workers, %d servers: %.0f, and the truth is %.0f", r.Workers, r.Servers, r.Fitted, want)
			}
		}
	})
}

// Where the fit is not sure, further points are measured where they tell most, and no more than allowed.
func TestFurtherPointsAreThoseThatTellMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fakeBench{rate: contended, records: 1e9, batch: 10}
		o := fakeOptions()
		o.Workers, o.Extra, o.Most = []int{1, 2, 3, 4}, 2, 32
		points, err := Run(t.Context(), b, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(points) < 5 || len(points) > 6 || points[4].Workers <= 4 {
			t.Fatalf("points %+v; expected one or two more, beyond 4 workers, where nothing is known", points)
		}
		first, _ := New("ctr", time.Now(), points[:4], 0, nil)
		all, _ := New("ctr", time.Now(), points, 0, nil)
		at := func(p *Profile) float64 {
			rows := p.Rows(32)
			return rows[len(rows)-1].Error
		}
		if at(all) >= at(first) {
			t.Errorf("the error at 32 workers was %v, and is %v", at(first), at(all))
		}
	})
}
