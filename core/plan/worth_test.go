package plan

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// With a load of 100,000 samples/s and 16,000 a worker, 6.25 workers carry it. From the first to the sixth each prevents lag; the seventh ends it; more have
// nothing to prevent.
func TestWorthOfAFlatLoad(t *testing.T) {
	o := reference()
	o.BacklogRecords, o.Lag = 0, 0
	worth := Worth(o, 10)
	for w := 1; w <= 7; w++ {
		if !(worth[w-1] > 0) {
			t.Errorf("worker %d is worth %v, though fewer than 7 fall behind", w, worth[w-1])
		}
	}
	for w := 8; w <= 10; w++ {
		if worth[w-1] != 0 {
			t.Errorf("worker %d is worth %v, though 7 carry the load", w, worth[w-1])
		}
	}
	// By hand: with F = 6·16,000 the backlog grows by 4,000/s, its age as a share of 20 min by 4,000/100,000/1,200 a second, to 0.12 in the hour of the
	// forecast: 18 GPUs for an age of 1 make 1.08 on the mean. So much the 7th prevents.
	if got := worth[6]; math.Abs(got-1.08) > 1e-6 {
		t.Errorf("the 7th worker is worth %v GPUs, by hand 1.08", got)
	}
}

// What matters is how near the objective is: the same shortfall is worth more with a backlog.
func TestWorthRisesWithTheBacklog(t *testing.T) {
	o := reference()
	o.BacklogRecords = 0
	calm := Worth(o, 7)
	o.BacklogRecords = 100_000 * 18 * 60 // 18 of 20 minutes
	late := Worth(o, 7)
	if late[6] < 5*calm[6] {
		t.Errorf("the 7th worker is worth %v with 18 minutes of lag, %v without", late[6], calm[6])
	}
}

// What a backlog costs is its age. As many records that came at night wait for hours longer than those of a peak, and a worker makes them so much younger: of two
// jobs that need as many workers from now on, and have as many records to train, it is worth more where these came slowly.
func TestWorthGoesByWhenTheBacklogArrived(t *testing.T) {
	with := func(past float64, lag time.Duration) Observation {
		o := reference()
		o.setRates(past)
		o.setForecast(flat(40_000, 120))
		o.BacklogRecords, o.Lag = 100_000*60*60, lag
		return o
	}
	peak, night := with(200_000, 30*time.Minute), with(10_000, 10*time.Hour)
	few, many := Worth(peak, 8), Worth(night, 8)
	for w := range few {
		if many[w] < 2*few[w] {
			t.Errorf("worker %d is worth %.3f where the backlog came at night, %.3f where it came at a peak", w+1, many[w], few[w])
		}
	}
	// Of what is older than the measured rates the lag says when it came.
	older := with(100_000, time.Hour)
	older.Lag = 20 * time.Hour
	if all, hour := Worth(older, 8)[7], Worth(with(100_000, time.Hour), 8)[7]; all < 4*hour {
		t.Errorf("the 8th worker is worth %.3f where half an hour's records are 20 hours old, %.3f where they are one", all, hour)
	}
}

// The loss is that of a queue which is followed record by record, first come, first served.
func TestWorthIsThatOfAQueue(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 18))
	price := costRate{lag: costDefault("lag"), over: costDefault("over")}
	const past, ahead = 180, 120 // min
	for range 40 {
		rates := make([]float64, past+ahead)
		level := 20_000 + 60_000*rng.Float64()
		phase := 2 * math.Pi * rng.Float64()
		for i := range rates {
			rates[i] = level * (1.2 + math.Sin(phase+float64(i)/50))
		}
		o := reference()
		o.Rates = Series{Start: o.Now.Add(-past * time.Minute), Step: time.Minute, Values: rates[:past]}
		o.setForecast(rates[past:])
		from := past * rng.Float64() // since when all waits, min
		before, all := upToBy(rates, 60, 60*from), upToBy(rates, 60, 60*past)
		o.BacklogRecords, o.Lag = int64(all-before), time.Duration((past-from)*float64(time.Minute))
		loss := func(f float64) (sum float64) {
			trained, head, arrived := before, 60*from, all
			for t := 60.0 * past; t < 60*(past+60); t++ {
				arrived += rates[int(t/60)]
				trained = min(trained+f, arrived)
				for upTo := upToBy(rates, 60, head); upTo < trained && head <= t; upTo += rates[int(head/60)] {
					head++
				}
				sum += price.at((t+1-head)/o.MaxLag.Seconds()) / 3600
			}
			return sum
		}
		got := Worth(o, 12)
		for _, w := range []int{2, 5, 8, 12} {
			sum := 0.0
			for _, v := range got[:w] {
				sum += v
			}
			none, some := loss(0), loss(linear.Throughput(w, o.Servers))
			if want := none - some; math.Abs(sum-want) > 0.03*none {
				t.Errorf("%d workers are worth %.3f, record by record %.3f, of %.3f without any", w, sum, want, none)
			}
		}
	}
}

func TestWorthWithoutAForecast(t *testing.T) {
	o := reference()
	o.Forecast = Forecast{}
	o.BacklogRecords = 0
	worth := Worth(o, 9)
	if !(worth[5] > 0) || worth[7] != 0 {
		t.Errorf("the 6th and the 8th worker of 7 that are needed are worth %v and %v", worth[5], worth[7])
	}
}

// Who falls behind by as much has as much to lose, whether the forecast reaches far, is short, or is not there: a pool compares what all their workers are worth.
func TestWorthIsOfTheSameTime(t *testing.T) {
	o := reference()
	o.BacklogRecords = 0
	far := Worth(o, 8)
	for name, f := range map[string]Values{"ten minutes": flat(100_000, 10), "six hours": flat(100_000, 360), "none": nil} {
		if o.Forecast = (Forecast{}); f != nil {
			o.setForecast(f)
		}
		for w, got := range Worth(o, 8) {
			if math.Abs(got-far[w]) > 0.1*far[w] {
				t.Errorf("a forecast of %s: worker %d is worth %v, with one of an hour %v", name, w+1, got, far[w])
			}
		}
	}
}

// The second worker of a job that falls behind, without a forecast, is worth more than twice what the fourth of one is that needs three: though that one is behind too.
func TestWorthOfWhoFallsBehind(t *testing.T) {
	behind := reference()
	behind.Forecast, behind.BacklogRecords = Forecast{}, 0
	behind.setRates(24_000)
	late := reference()
	late.setForecast(flat(45_000, 60))
	late.setRates(45_000)
	late.BacklogRecords = 45_000 * 10 * 60 // of 20 minutes
	if second, fourth := Worth(behind, 2)[1], Worth(late, 4)[3]; second < 2*fourth {
		t.Errorf("the second worker of one that falls behind is worth %v, the fourth of one that catches up with three %v", second, fourth)
	}
}

func TestWorthOfNonsense(t *testing.T) {
	for name, change := range map[string]func(*Observation){
		"no limits":        func(o *Observation) { o.Limits = Limits{} },
		"no model":         func(o *Observation) { o.Model.Theta = nil },
		"no objective":     func(o *Observation) { o.MaxLag = 0 },
		"negative backlog": func(o *Observation) { o.BacklogRecords = -5 },
		"vast backlog":     func(o *Observation) { o.BacklogRecords = math.MaxInt64 },
		"vast load":        func(o *Observation) { o.setForecast(flat(math.MaxFloat64, 60)) },
		"no load":          func(o *Observation) { o.setForecast(flat(0, 60)); o.setRates(0) },
		"no rates":         func(o *Observation) { o.Forecast = Forecast{}; o.Rates = Series{} },
		"a long tick":      func(o *Observation) { o.Interval = math.MaxInt64 },
		"a short tick":     func(o *Observation) { o.Interval = time.Nanosecond },
	} {
		o := reference()
		change(&o)
		for w, v := range Worth(o, 12) {
			if !(v >= 0) || math.IsInf(v, 0) {
				t.Errorf("%s: worker %d is worth %v", name, w+1, v)
			}
		}
	}
	if got := Worth(reference(), -1); len(got) != 0 {
		t.Errorf("of no workers: %v", got)
	}
}

func TestWants(t *testing.T) {
	o := reference()
	o.setForecast(flat(200_000, 60))
	o.Limits.Max = 9
	if d := policy(t, "kale").Decide(o); d.Wants() != 9 {
		t.Errorf("wants %d of at most 9, and needs 13", d.Wants())
	}
	o.Limits.Max = 28
	o.Action = Action{Kind: KindIn, Target: 7, Since: noon.Add(-time.Minute)} // what is under way keeps it from growing, not from wanting to
	if d := policy(t, "kale").Decide(o); d.Target != 7 || d.Wants() != 13 {
		t.Errorf("target %d, wants %d; want 7, 13", d.Target, d.Wants())
	}
	o = reference()
	o.setForecast(flat(20_000, 60))
	o.LagKnown = false // it may not shrink, and holds what it has
	if d := policy(t, "kale").Decide(o); d.Wants() != 7 {
		t.Errorf("wants %d, and holds 7", d.Wants())
	}
	o.Manual = Manual{Pinned: true, Target: 3}
	if d := policy(t, "kale").Decide(o); d.Wants() != 3 {
		t.Errorf("wants %d, and is pinned to 3", d.Wants())
	}
	o.Model.Theta = nil
	if d := policy(t, "kale").Decide(o); d.Wants() != 7 {
		t.Errorf("cannot decide, and wants %d", d.Wants())
	}
}

func TestWorthOfAnyObservation(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		o := randomObservation(rng)
		for w, v := range Worth(o, 12) {
			if !(v >= 0) || math.IsInf(v, 0) {
				t.Fatalf("worker %d is worth %v: %s", w+1, v, encode(t, o))
			}
		}
		if d := policy(t, "kale").Decide(o); d.Wants() < d.Target {
			t.Fatalf("wants %d, and its target is %d", d.Wants(), d.Target)
		}
	}
}
