package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/plan"
)

type inner struct {
	A int `json:"a,omitempty"`
}

type everything struct {
	inner
	*core.Band
	Plain                    string
	Text                     string `json:"text"`
	Hidden                   string `json:"-"`
	Empty                    string `json:"empty,omitempty"`
	List                     []int  `json:"list"`
	None                     []int
	Raw                      json.RawMessage   `json:"raw"`
	Bytes                    []byte            `json:"bytes"`
	Map                      map[string]int    `json:"map"`
	Ranks                    map[int]uint64    `json:"ranks"`
	When                     time.Time         `json:"when"`
	Never                    time.Time         `json:"never,omitzero"`
	Number                   plan.Number       `json:"number"`
	Values                   plan.Values       `json:"values"`
	Pointer                  *float64          `json:"pointer"`
	Nil                      *float64          `json:"nil"`
	Any                      any               `json:"any"`
	Nested                   []inner           `json:"nested"`
	Objects                  map[string]*inner `json:"objects,omitempty"`
	unexported, alsoNotShown int
}

// What has no duration in it is printed as encoding/json prints it.
func TestPrintsWhatJSONPrints(t *testing.T) {
	half := 0.5
	v := everything{
		inner: inner{3}, Band: &core.Band{Mean: 1}, Plain: "<a&b>", Text: "\"ü\n", Hidden: "x", List: []int{1, 2}, Raw: json.RawMessage(`{"z":1}`), Bytes: []byte("kale"),
		Map: map[string]int{"b": 1, "a": 2}, Ranks: map[int]uint64{10: 1, 2: 2}, When: time.Unix(1_800_000_000, 7).UTC(), Number: 1e-9,
		Values: plan.Values{1, 2.5}, Pointer: &half, Any: map[string]any{"k": []any{true, nil, "s"}}, Nested: []inner{{1}, {}}, Objects: map[string]*inner{"o": {2}, "n": nil},
		unexported: 1, alsoNotShown: 2,
	}
	for name, x := range map[string]any{"values": v, "a pointer": &v, "zeroes": everything{}, "a list": []any{1, "a", nil}, "a record": core.Record{}.Decision.Reason} {
		want, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := printJSON(&got, x); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want)+"\n", got.String()); diff != "" {
			t.Errorf("%s (-encoding/json +ours):\n%s", name, diff)
		}
	}
}

func TestDurationsAreSeconds(t *testing.T) {
	second := time.Second
	var got bytes.Buffer
	err := printJSON(&got, struct {
		Lag   time.Duration            `json:"lag"`
		None  time.Duration            `json:"none,omitempty"`
		Few   []time.Duration          `json:"few"`
		By    map[string]time.Duration `json:"by"`
		There *time.Duration           `json:"there"`
		Not   *time.Duration           `json:"not"`
	}{1500 * time.Millisecond, 0, []time.Duration{1, time.Minute}, map[string]time.Duration{"a": 1e6}, &second, nil})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`{"lag_s":1.5,"few_s":[1e-9,60],"by_s":{"a":0.001},"there_s":1,"not_s":null}`+"\n", got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A zero that is not known is left out, and one that is known is printed.
func TestUnknownZeroesAreLeftOut(t *testing.T) {
	for want, o := range map[string]plan.Observation{
		`"lag_known":false "util_known":false`:                                                                  {},
		`"backlog_records":7 "lag_known":false "util_known":false`:                                              {BacklogRecords: 7},
		`"backlog_records":0 "lag_s":0 "lag_known":true "utilisation":0 "util_known":true "trained":0 "busy":0`: {LagKnown: true, UtilKnown: true, Flow: plan.Flow{Known: true}},
	} {
		var b bytes.Buffer
		if err := printJSON(&b, o); err != nil {
			t.Fatal(err)
		}
		var got []string
		for part := range strings.SplitSeq(strings.ReplaceAll(b.String(), "}", ","), ",") {
			for _, name := range []string{"backlog_records", "lag_s", "lag_known", "utilisation", "util_known", "trained", "busy"} {
				if strings.HasPrefix(part, `"`+name+`":`) {
					got = append(got, part)
				}
			}
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for want, r := range map[string]core.Rescale{`"gap_known":false`: {}, `"gap_s":0,"gap_known":true`: {GapKnown: true}} {
		var b bytes.Buffer
		if err := printJSON(&b, r); err != nil || !strings.Contains(b.String(), `"reason":"",`+want) {
			t.Errorf("%v %s", err, b.String())
		}
	}
	for want, d := range map[string]plan.Decision{`"load_known":false`: {}, `"load":0,"load_known":true`: {LoadKnown: true}} {
		var b bytes.Buffer
		if err := printJSON(&b, d); err != nil || !strings.Contains(b.String(), `"reason":"",`+want) {
			t.Errorf("%v %s", err, b.String())
		}
	}
	for _, o := range []reflect.Type{reflect.TypeFor[plan.Observation](), reflect.TypeFor[plan.Decision](), reflect.TypeFor[core.Rescale]()} {
		for i := range o.NumField() {
			if flag := o.Field(i).Tag.Get("known"); flag != "" {
				if f, found := o.FieldByName(flag); !found || f.Type.Kind() != reflect.Bool {
					t.Errorf("%v: %s is said to be known by %q", o, o.Field(i).Name, flag)
				}
			}
		}
	}
}

// In what is printed for scripts no object has two fields of one name, and no duration is without its unit.
func TestNamesOfPrintedFields(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var visit func(reflect.Type)
	var names func(reflect.Type) []string
	names = func(rt reflect.Type) (out []string) {
		for i := range rt.NumField() {
			f := rt.Field(i)
			switch name, shown := jsonName(f); {
			case !shown:
			case name == "":
				ft := f.Type
				if ft.Kind() == reflect.Pointer {
					ft = ft.Elem()
				}
				out = append(out, names(ft)...)
			default:
				out = append(out, name)
				visit(f.Type)
			}
		}
		return out
	}
	visit = func(rt reflect.Type) {
		for rt.Kind() == reflect.Pointer || rt.Kind() == reflect.Slice || rt.Kind() == reflect.Map {
			rt = rt.Elem()
		}
		if rt.Kind() != reflect.Struct || seen[rt] || rt.Implements(jsonType) || reflect.PointerTo(rt).Implements(jsonType) {
			return
		}
		seen[rt] = true
		all := names(rt)
		for i, name := range all {
			for _, other := range all[:i] {
				if strings.EqualFold(name, other) {
					t.Errorf("%v has two fields %q", rt, name)
				}
			}
		}
	}
	for _, v := range []any{core.View{}, core.Glance{}, core.Record{}, planned{}, jobState{}} {
		visit(reflect.TypeOf(v))
	}
	if len(seen) < 10 {
		t.Errorf("only %d types were looked at", len(seen))
	}
}
