package plan

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Reference: Kale §3.4, Algorithm 1.
func TestStabilise_Kale_3_4(t *testing.T) {
	const step = 10 * time.Minute
	for _, c := range []struct {
		name string
		plan []int
		rho  int
		tau  time.Duration
		want []int
	}{
		{"the paper's example", []int{4, 4, 5, 6, 6, 6}, 1, 15 * time.Minute, []int{4, 4, 6, 6, 6, 6}},
		{"a run of exactly τ stays", []int{4, 5, 5, 6, 6}, 1, 20 * time.Minute, []int{4, 5, 5, 6, 6}},
		{"a dip is filled to the larger neighbour", []int{6, 6, 4, 5, 5, 5}, 1, 15 * time.Minute, []int{6, 6, 6, 5, 5, 5}},
		{"a spike is cut: the published flaw", []int{4, 4, 9, 4, 4, 4}, 1, 15 * time.Minute, []int{4, 4, 4, 4, 4, 4}},
		{"a short tail takes the value before it", []int{4, 4, 4, 6}, 1, 15 * time.Minute, []int{4, 4, 4, 4}},
		{"a short tail down too", []int{4, 4, 4, 2}, 1, 15 * time.Minute, []int{4, 4, 4, 4}},
		{"the first value never changes", []int{9, 4, 4, 4}, 1, 15 * time.Minute, []int{9, 4, 4, 4}},
		{"changes below ρ are let through", []int{4, 5, 4, 4, 7, 4, 4}, 2, 15 * time.Minute, []int{4, 5, 4, 4, 4, 4, 4}},
		{"ρ below 1 is 1", []int{4, 4, 5, 6, 6, 6}, 0, 15 * time.Minute, []int{4, 4, 6, 6, 6, 6}},
		{"τ up to one step changes nothing", []int{4, 9, 1, 7}, 1, step, []int{4, 9, 1, 7}},
		{"a staircase steps twice as far", []int{1, 2, 3, 4, 5, 5}, 1, 15 * time.Minute, []int{1, 3, 3, 5, 5, 5}},
		{"one pass only: the raised run may be short itself", []int{4, 5, 6, 4, 4, 4}, 1, 25 * time.Minute, []int{4, 6, 6, 4, 4, 4}},
		{"one step", []int{3}, 1, time.Hour, []int{3}},
		{"none", nil, 1, time.Hour, nil},
	} {
		in := slices.Clone(c.plan)
		if d := cmp.Diff(c.want, Stabilise(c.plan, c.rho, step, c.tau)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
		if !slices.Equal(in, c.plan) {
			t.Errorf("%s: the plan given was changed", c.name)
		}
	}
}

// kaleDay is what Kale executed in the paper's 24 h run, per minute: hour → workers.
func kaleDay() []int {
	day := make([]int, 24*60)
	for _, c := range []struct {
		hour float64
		w    int
	}{
		{0, 10}, {2.3, 16}, {3.5, 18}, {7.1, 10}, {9.1, 6}, {9.8, 4}, {13.6, 6}, {14.3, 8}, {15, 10}, {15.9, 8},
		{17.7, 10}, {19.4, 12}, {20.5, 16}, {21.5, 12},
	} {
		for i := int(c.hour*60 + 0.5); i < len(day); i++ {
			day[i] = c.w
		}
	}
	return day
}

// Reference: Kale §4.4 (the plotted run: 257 GPU-hours) and §3.4. The executed
// plan is already stable: Algorithm 1 at τ = 10 and 30 min leaves it alone; and
// it takes short swings that are laid over it out again.
func TestStabilisedDay_Kale_4_4(t *testing.T) {
	day := kaleDay()
	sum := 0
	for _, w := range day {
		sum += w
	}
	if h := float64(sum) / 60; h < 254 || h > 258 {
		t.Errorf("the day has %.1f GPU-hours, the paper's plotted run 257", h)
	}
	for _, tau := range []time.Duration{10 * time.Minute, 30 * time.Minute} {
		if got := Stabilise(day, 1, time.Minute, tau); !slices.Equal(got, day) {
			t.Errorf("τ = %v changed the published plan", tau)
		}
	}
	noisy := slices.Clone(day)
	for i := 60; i+200 < len(noisy); i += 170 {
		for k := range 7 {
			noisy[i+k] += 1 - 2*(i/170%2) // up and down in turn, 7 min each
		}
	}
	if slices.Equal(noisy, day) {
		t.Fatal("no swing was laid over the plan")
	}
	if got := Stabilise(noisy, 1, time.Minute, 10*time.Minute); !slices.Equal(got, day) {
		t.Error("τ = 10 min left 7-minute swings in the plan")
	}
}

// spell is one plateau of a plan.
type spell struct{ value, length int }

// stabiliseByRuns is a deliberately simple second implementation: it works on
// plateaus instead of indices. After each one, the next is judged; what becomes
// equal to a neighbour joins it.
func stabiliseByRuns(plan []int, rho int, step, tau time.Duration) []int {
	var done []int
	rest := slices.Clone(plan)
	if len(rest) == 0 {
		return nil
	}
	done = append(done, rest[0])
	rest = rest[1:]
	for len(rest) > 0 {
		// The plateau at the head of what is left.
		s := spell{value: rest[0]}
		for s.length < len(rest) && rest[s.length] == s.value {
			s.length++
		}
		prev := done[len(done)-1]
		jump := s.value - prev
		if jump < 0 {
			jump = -jump
		}
		if jump >= max(rho, 1) && time.Duration(s.length)*step < tau {
			v := prev
			if s.length < len(rest) {
				v = max(v, rest[s.length])
			}
			for k := range s.length {
				rest[k] = v
			}
		}
		done = append(done, rest[0])
		rest = rest[1:]
	}
	return done
}

func checkStabilised(t *testing.T, plan []int, rho int, step, tau time.Duration) {
	t.Helper()
	got := Stabilise(plan, rho, step, tau)
	if want := stabiliseByRuns(plan, rho, step, tau); !slices.Equal(got, want) {
		t.Fatalf("Stabilise(%v, ρ %d, τ %v of %v) = %v; the second implementation says %v", plan, rho, tau, step, got, want)
	}
	if len(got) != len(plan) {
		t.Fatalf("%v became %v: another length", plan, got)
	}
	if len(plan) == 0 {
		return
	}
	if got[0] != plan[0] || slices.Max(got) > slices.Max(plan) || slices.Min(got) < slices.Min(plan) {
		t.Fatalf("%v became %v: the first value or the range changed", plan, got)
	}
	if changes(got) > changes(plan) {
		t.Fatalf("%v became %v: more rescales than before", plan, got)
	}
	// One pass need not be a fixed point, but every pass that changes something
	// removes a rescale, so as many passes as there are rescales reach one; in it
	// every plateau reached by a jump of ρ or more lasts τ.
	for range changes(plan) + 1 {
		got = Stabilise(got, rho, step, tau)
	}
	if again := Stabilise(got, rho, step, tau); !slices.Equal(again, got) {
		t.Fatalf("%v: no fixed point after %d passes: %v, then %v", plan, changes(plan)+1, got, again)
	}
	for i := 1; i < len(got); i++ {
		end := i
		for end < len(got) && got[end] == got[i] {
			end++
		}
		if abs(got[i]-got[i-1]) >= max(rho, 1) && time.Duration(end-i)*step < tau {
			t.Fatalf("%v: the fixed point %v has a plateau of %d steps at %d, shorter than %v", plan, got, end-i, i, tau)
		}
	}
}

func changes(plan []int) int {
	n := 0
	for i := 1; i < len(plan); i++ {
		if plan[i] != plan[i-1] {
			n++
		}
	}
	return n
}

func TestStabiliseProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 34))
	for range 5000 {
		plan := make([]int, rng.IntN(40))
		w := rng.IntN(8)
		for i := range plan {
			if rng.IntN(3) == 0 {
				w = rng.IntN(8)
			}
			plan[i] = w
		}
		checkStabilised(t, plan, rng.IntN(4), time.Second, time.Duration(rng.IntN(6000))*time.Millisecond)
	}
}

func FuzzStabilise(f *testing.F) {
	f.Add([]byte{4, 4, 5, 6, 6, 6}, 1, int64(10), int64(15))
	f.Add([]byte{9, 1, 9, 1, 9}, 2, int64(1), int64(3))
	f.Fuzz(func(t *testing.T, b []byte, rho int, step, tau int64) {
		if len(b) > 200 || step < 1 || step > 1e6 || tau < 0 || tau > 1e9 || rho > 1000 {
			t.Skip()
		}
		plan := make([]int, len(b))
		for i, v := range b {
			plan[i] = int(v)
		}
		checkStabilised(t, plan, rho, time.Duration(step), time.Duration(tau))
	})
}

func BenchmarkStabilise(b *testing.B) {
	day := kaleDay()
	for i := range day {
		day[i] += i / 3 % 2
	}
	b.ReportAllocs()
	for b.Loop() {
		Stabilise(day, 1, time.Minute, 10*time.Minute)
	}
}
