package stream

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
)

// online is logistic regression on the records' names and two numbers, trained by Adagrad one record at a time.
type online struct {
	user, item, category, slot, rest []param
}

type param struct{ w, g2 float64 }

func newOnline() *online {
	return &online{make([]param, ClickUsers), make([]param, ClickItems), make([]param, ClickCategories), make([]param, ClickSlots), make([]param, 3)}
}

func (m *online) terms(k Click) ([7]*param, [7]float64) {
	return [7]*param{&m.user[k.User], &m.item[k.Item], &m.category[k.Category], &m.slot[k.Slot], &m.rest[0], &m.rest[1], &m.rest[2]},
		[7]float64{1, 1, 1, 1, 1, k.Price - 0.5, k.Age - 0.5}
}

func (m *online) score(k Click) float64 {
	params, x := m.terms(k)
	logit := 0.0
	for i, p := range params {
		logit += p.w * x[i]
	}
	return 1 / (1 + math.Exp(-logit))
}

func (m *online) learn(k Click) {
	y := 0.0
	if k.Clicked {
		y = 1
	}
	residual := m.score(k) - y
	params, x := m.terms(k)
	for i, p := range params {
		g := residual * x[i]
		p.g2 += g * g
		p.w -= 0.15 * g / math.Sqrt(p.g2+1)
	}
}

func (m *online) copy() *online {
	return &online{slices.Clone(m.user), slices.Clone(m.item), slices.Clone(m.category), slices.Clone(m.slot), slices.Clone(m.rest)}
}

// auc is the area under the ROC curve: the chance that a clicked record scores above one that is not.
func auc(scores []float64, clicked []bool) float64 {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if scores[a] < scores[b] {
			return -1
		}
		return 1
	})
	ranks, pos := 0.0, 0.0
	for rank, i := range order {
		if clicked[i] {
			ranks += float64(rank + 1)
			pos++
		}
	}
	return (ranks - pos*(pos+1)/2) / (pos * (float64(len(scores)) - pos))
}

// The day of the demo: 120 s at 2,500 records/s and a day of the curve. A model that stopped learning when it began has
// lost at least 0.02 of AUC by its end, against one that goes on.
func TestStaleModelsLose(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3} {
		c := NewClicks(seed, DefaultDrift)
		const day = 300_000
		at := func(i int) time.Duration { return time.Duration(i) * (24 * time.Hour / day) }
		m := newOnline()
		for i := range day { // the day before
			m.learn(c.Draw(uint64(i), at(i-day)))
		}
		stale := m.copy()
		var fresh, old, best []float64
		var clicked []bool
		for i := range day {
			k := c.Draw(uint64(day+i), at(i))
			fresh, old, best = append(fresh, m.score(k)), append(old, stale.score(k)), append(best, k.P)
			clicked = append(clicked, k.Clicked)
			m.learn(k)
		}
		last := day * 4 / 5
		whole, end := auc(fresh, clicked), auc(fresh[last:], clicked[last:])
		staleWhole, staleEnd := auc(old, clicked), auc(old[last:], clicked[last:])
		ctr := 0.0
		for _, y := range clicked {
			if y {
				ctr++
			}
		}
		t.Logf("seed %d: AUC of the day %.4f fresh, %.4f stale, %.4f at best; of its last fifth %.4f, %.4f, %.4f; %.3f clicked",
			seed, whole, staleWhole, auc(best, clicked), end, staleEnd, auc(best[last:], clicked[last:]), ctr/day)
		if whole < 0.75 || whole > 0.85 {
			t.Errorf("seed %d: a learning model has AUC %.4f, want 0.75 to 0.85", seed, whole)
		}
		if end-staleEnd < 0.02 {
			t.Errorf("seed %d: in the last fifth of the day the stale model has %.4f, the fresh one %.4f; want 0.02 between them", seed, staleEnd, end)
		}
		if whole-staleWhole < 0.015 {
			t.Errorf("seed %d: over the day the stale model has %.4f, the fresh one %.4f; want 0.015 between them", seed, staleWhole, whole)
		}
	}
}

// Without drift nothing is lost: it is the drift that makes the difference, not the learning.
func TestNoDriftNoLoss(t *testing.T) {
	c := NewClicks(1, 0)
	m := newOnline()
	for i := range 300_000 {
		m.learn(c.Draw(uint64(i), 0))
	}
	stale := m.copy()
	var fresh, old []float64
	var clicked []bool
	for i := range 100_000 {
		k := c.Draw(uint64(300_000+i), time.Duration(i)*time.Second)
		fresh, old, clicked = append(fresh, m.score(k)), append(old, stale.score(k)), append(clicked, k.Clicked)
		m.learn(k)
	}
	if d := auc(fresh, clicked) - auc(old, clicked); math.Abs(d) > 0.005 {
		t.Errorf("without drift a model gains %.4f by learning on, want about nothing", d)
	}
}

func TestClicksAreDeterministic(t *testing.T) {
	a, b, other := NewClicks(7, 0.25), NewClicks(7, 0.25), NewClicks(8, 0.25)
	same := 0
	for i := range uint64(1000) {
		at := time.Duration(i) * time.Minute
		if diff := cmp.Diff(a.Draw(i, at), b.Draw(i, at)); diff != "" {
			t.Fatalf("record %d: %s", i, diff)
		}
		if a.Draw(i, at) == other.Draw(i, at) {
			same++
		}
	}
	if same > 10 {
		t.Errorf("%d of 1000 records are the same with another seed", same)
	}
}

func TestClickPopularity(t *testing.T) {
	c := NewClicks(1, 0)
	users, items := map[int]int{}, map[int]int{}
	const n = 200_000
	for i := range uint64(n) {
		k := c.Draw(i, 0)
		users[k.User]++
		items[k.Item]++
	}
	if len(users) != ClickUsers || len(items) != ClickItems {
		t.Errorf("%d users and %d items appear, want all %d and %d", len(users), len(items), ClickUsers, ClickItems)
	}
	for name, share := range map[string]float64{"user": float64(users[0]) / n, "item": float64(items[0]) / n} {
		if share > 0.05 {
			t.Errorf("the most popular %s has %.3f of the records, want at most 0.05", name, share)
		}
	}
	if items[0] < 5*items[ClickItems-1] {
		t.Errorf("the first item has %d records, the last %d; want that popularity falls", items[0], items[ClickItems-1])
	}
}

func TestJSONForm(t *testing.T) {
	c := NewClicks(1, 0.25)
	for i := range uint64(2000) {
		k := c.Draw(i, time.Hour)
		var got map[string]any
		raw := c.Append(nil, FormatJSON, k)
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		want := map[string]any{
			"click": 0.0, "user": fmt.Sprintf("u%d", k.User), "item": fmt.Sprintf("i%d", k.Item),
			"category": fmt.Sprintf("c%d", k.Category), "slot": fmt.Sprintf("s%d", k.Slot), "price": k.Price, "age": k.Age,
		}
		if k.Clicked {
			want["click"] = 1.0
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s: %s", raw, diff)
		}
	}
}

// The bytes are read back by a reader of the protobuf wire format that knows tf.train.Example's field numbers only.
func TestExampleForm(t *testing.T) {
	c := NewClicks(1, 0.25)
	for i := range uint64(200) {
		k := c.Draw(i, time.Hour)
		got := map[string]any{}
		for _, features := range fields(t, c.Append(nil, FormatExample, k))[1] {
			for _, entry := range fields(t, features)[1] {
				kv := fields(t, entry)
				got[string(kv[1][0])] = exampleValue(t, kv[2][0])
			}
		}
		click := uint64(0)
		if k.Clicked {
			click = 1
		}
		want := map[string]any{
			"click": click, "user": fmt.Sprintf("u%d", k.User), "item": fmt.Sprintf("i%d", k.Item),
			"category": fmt.Sprintf("c%d", k.Category), "slot": fmt.Sprintf("s%d", k.Slot),
			"price": float32(k.Price), "age": float32(k.Age),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	}
}

// fields splits a message whose fields are all length-delimited.
func fields(t *testing.T, b []byte) map[protowire.Number][][]byte {
	t.Helper()
	out := map[protowire.Number][][]byte{}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || typ != protowire.BytesType {
			t.Fatalf("field %d of type %d: want length-delimited", num, typ)
		}
		v, m := protowire.ConsumeBytes(b[n:])
		if m < 0 {
			t.Fatal(protowire.ParseError(m))
		}
		out[num] = append(out[num], v)
		b = b[n+m:]
	}
	return out
}

func exampleValue(t *testing.T, feature []byte) any {
	t.Helper()
	for kind, lists := range fields(t, feature) {
		value := fields(t, lists[0])[1][0]
		switch kind {
		case 1:
			return string(value)
		case 2:
			v, n := protowire.ConsumeFixed32(value)
			if n != len(value) {
				t.Fatalf("a float list of %d bytes, want one float", len(value))
			}
			return math.Float32frombits(v)
		case 3:
			v, n := protowire.ConsumeVarint(value)
			if n != len(value) {
				t.Fatalf("an int list of %d bytes, want one number", len(value))
			}
			return v
		}
	}
	t.Fatalf("feature %x has no list", feature)
	return nil
}

func BenchmarkDraw(b *testing.B) {
	c := NewClicks(1, 0.25)
	buf := make([]byte, 0, 256)
	for i := range b.N {
		buf = c.Append(buf[:0], FormatJSON, c.Draw(uint64(i), time.Duration(i)*time.Microsecond))
	}
	b.SetBytes(int64(len(buf)))
}
