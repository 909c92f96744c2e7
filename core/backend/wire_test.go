package backend

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"

	"github.com/kale-sched/kale/core/backend/backendpb"
)

// fill sets every exported field of v to a value that is not zero and not its neighbour's, so that a field that the
// wire forgets or mixes up shows.
func fill(t *testing.T, v reflect.Value, next *int64) {
	t.Helper()
	*next++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(*next, 5).UTC()))
		return
	case State:
		v.Set(reflect.ValueOf(StateStopping))
		return
	case Severity:
		v.Set(reflect.ValueOf(SeverityWarning))
		return
	case Code:
		v.Set(reflect.ValueOf(Conflict))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(t, v.Field(i), next)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), next)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(t, v.Index(i), next)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key, next)
		fill(t, value, next)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("s" + time.Duration(*next).String())
	case reflect.Int, reflect.Int64:
		v.SetInt(*next)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(uint64(*next))
	case reflect.Float64:
		v.SetFloat(float64(*next))
	case reflect.Bool:
		v.SetBool(true)
	default:
		t.Fatalf("fill: no value for %v", v.Type())
	}
}

// crosses sends a filled value over the wire, through its bytes, and compares.
func crosses[T any, M proto.Message](t *testing.T, to func(T) M, from func(M) T) {
	t.Helper()
	var sent T
	var next int64
	fill(t, reflect.ValueOf(&sent).Elem(), &next)
	raw, err := proto.Marshal(to(sent))
	if err != nil {
		t.Fatal(err)
	}
	var zero T
	msg := to(zero)
	proto.Reset(msg)
	if err := proto.Unmarshal(raw, msg); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sent, from(msg), cmpopts.IgnoreUnexported(Error{})); diff != "" {
		t.Errorf("%T (-sent +received):\n%s", sent, diff)
	}
}

func TestValuesCrossTheWire(t *testing.T) {
	crosses(t, workloadToPB, workloadFromPB)
	crosses(t, statusToPB, statusFromPB)
	crosses(t, diagnosticToPB, diagnosticFromPB)
	crosses(t, configToPB, configFromPB)
	crosses(t, placementToPB, placementFromPB)
	crosses(t, reportToPB, reportFromPB)
	crosses(t, deviceToPB, deviceFromPB)
	crosses(t, inventoryToPB, inventoryFromPB)
	for _, row := range stateTable {
		if got := stateFromPB(stateToPB(row.state)); got != row.state {
			t.Errorf("state %q became %q", row.state, got)
		}
	}
	if got := stateFromPB(backendpb.State(99)); got != StateUnknown {
		t.Errorf("a state of a newer peer became %q, want unknown", got)
	}
	for _, how := range []How{Drained, Forced, 0} {
		if got := howFromPB(howToPB(how)); got != how {
			t.Errorf("%v became %v", how, got)
		}
	}
	if got := statusFromPB(statusToPB(Status{})); !got.Started.IsZero() || got.Err != nil {
		t.Errorf("an empty status became %+v", got)
	}
}
