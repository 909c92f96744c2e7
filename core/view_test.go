package core

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
)

// pairwise is the definition of the AUC: over all pairs of a positive and a negative, the share in which the positive is ranked higher; ties half.
func pairwise(pos, neg []uint64) (float64, bool) {
	var wins, pairs float64
	for i, p := range pos {
		for j, n := range neg {
			pairs += float64(p) * float64(n)
			switch {
			case i > j:
				wins += float64(p) * float64(n)
			case i == j:
				wins += float64(p) * float64(n) / 2
			}
		}
	}
	return wins / pairs, pairs > 0
}

func TestAUCIsItsDefinition(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		v := &rpc.Validation{Positive: make([]uint64, chance.IntN(12)), Negative: make([]uint64, chance.IntN(12))}
		for _, counts := range [][]uint64{v.Positive, v.Negative} {
			for i := range counts {
				if chance.IntN(2) == 0 {
					counts[i] = chance.Uint64N(1000)
				}
			}
		}
		got, ok := AUC(v)
		want, known := pairwise(v.Positive, v.Negative)
		if ok != known || ok && math.Abs(got-want) > 1e-12 {
			t.Fatalf("AUC(%v) = %v, %v; by its definition %v, %v", v, got, ok, want, known)
		}
	}
	if auc, ok := AUC(&rpc.Validation{Positive: []uint64{0, 0, 5}, Negative: []uint64{7, 0}}); !ok || auc != 1 {
		t.Errorf("a perfect ranking: %v, %v", auc, ok)
	}
	if _, ok := AUC(nil); ok {
		t.Error("nothing has an AUC")
	}
}

// FuzzView: whatever the chief and the backend say, the view and what is recorded of it have a JSON form.
func FuzzView(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := newRig(t, rigOptions{})
		defer r.broker.Close()
		chance := rand.New(rand.NewPCG(seed, 1))
		for range 3 {
			r.now = r.now.Add(time.Second)
			n := r.s.look(t.Context())
			n.chief, n.chiefErr = &rpc.JobStatus{}, nil
			scramble(chance, n.chief.ProtoReflect(), 0)
			for range chance.IntN(4) {
				n.list = append(n.list, scrambledStatus(chance))
			}
			n.util, n.utilKnown = meanBusy("ctr", []backend.Device{{HeldBy: "ctr/worker-0-g1", Utilisation: pointer(weird(chance))}})
			r.s.seen = n
			r.s.want.Target = chance.IntN(4)
			r.s.want.Ranks = prefix(r.s.want.Target)
			r.s.foresee.last = plan.Forecast{At: r.now.Add(-time.Second), Step: time.Second, Mean: plan.Values{weird(chance), weird(chance), weird(chance)}, Lower: plan.Values{weird(chance)}}
			r.lost = r.s.step(t.Context(), r.now)
			if r.s.unsaved != nil {
				t.Fatal(r.s.unsaved)
			}
			raw, err := json.Marshal(r.s.View())
			if err != nil {
				t.Fatal(err)
			}
			var back View
			if err := json.Unmarshal(raw, &back); err != nil {
				t.Fatalf("the view cannot be read again: %v\n%s", err, raw)
			}
		}
	})
}

func pointer(x float64) *float64 { return &x }

func weird(chance *rand.Rand) float64 {
	return []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, 1, -1, math.MaxFloat64, 0.5}[chance.IntN(8)]
}

func weirdInt(chance *rand.Rand) int64 {
	return []int64{0, 1, -1, 3, math.MaxInt64, math.MinInt64, 1_800_000_000_000, chance.Int64()}[chance.IntN(8)]
}

func scrambledStatus(chance *rand.Rand) backend.Status {
	states := []backend.State{backend.StatePending, backend.StateStarting, backend.StateRunning, backend.StateStopping, backend.StateExited, backend.StateFailed, backend.StateUnknown, "odd"}
	return backend.Status{
		ID:    backend.ID{Role: []string{backend.RoleServer, backend.RoleWorker, "odd"}[chance.IntN(3)], Rank: chance.IntN(5), Generation: 1 + chance.Uint64N(3)},
		State: states[chance.IntN(len(states))], Restarts: int(weirdInt(chance)), ExitCode: int(weirdInt(chance)), PID: int(weirdInt(chance)),
		Reason: "\xff\x00\n", Started: time.Unix(weirdInt(chance), 0), Finished: time.Unix(weirdInt(chance), 0),
	}
}

// scramble fills a message with values that nobody expects.
func scramble(chance *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case depth > 4 || chance.IntN(4) == 0:
		case f.IsList():
			list := m.Mutable(f).List()
			for range chance.IntN(4) {
				if f.Message() != nil {
					scramble(chance, list.AppendMutable().Message(), depth+1)
				} else {
					list.Append(scrambled(chance, f))
				}
			}
		case f.Message() != nil:
			scramble(chance, m.Mutable(f).Message(), depth+1)
		default:
			m.Set(f, scrambled(chance, f))
		}
	}
}

func scrambled(chance *rand.Rand, f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(chance.IntN(2) == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(chance.IntN(8)))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(weirdInt(chance)))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(weirdInt(chance))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(weirdInt(chance)))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(weirdInt(chance)))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(weird(chance)))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(weird(chance))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0xff})
	}
	return protoreflect.ValueOfString("worker-" + string(rune('0'+chance.IntN(4))))
}

// A scheduler whose state folder was taken away under it says so, with what helps, until the folder is back.
func TestStateTakenAwayIsAProblem(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.beat()
	const says = "is not in %s any more, since it was moved or removed"
	if _, err := r.problem(fmt.Sprintf(says, r.state)); err == nil {
		t.Error("the folder is there, and missed")
	}
	if err := os.Rename(r.state, r.state+".away"); err != nil {
		t.Fatal(err)
	}
	r.beat()
	if text, err := r.problem(fmt.Sprintf(says, r.state)); err != nil || !strings.Contains(text, fmt.Sprintf("mv -T %[1]s.away %[1]s puts it back", r.state)) {
		t.Errorf("%v, %q", err, text)
	}
	if err := os.Rename(r.state+".away", r.state); err != nil {
		t.Fatal(err)
	}
	r.beat()
	if p := r.s.View().Problems; len(p) > 0 {
		t.Errorf("the folder is back: %q", p)
	}
}
