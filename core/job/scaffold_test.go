package job

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func clicks(n int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = fmt.Appendf(nil, `{"click":%d,"user":"u%d","item":"i%d","category":"c%d","slot":"s%d","price":%g,"age":%g,"ts":%d,"hour":%d,"seller_id":%d}`,
			i%2, i, i%7, i%3, i%4, float64(i%100)/100+0.001, float64(i%50)/50+0.001, 1700000000+i, i%24, i*31)
	}
	return out
}

// delimited writes a length-delimited protobuf field by hand: an encoder of its own, so that the decoder is not held
// against itself.
func delimited(number int, content []byte) []byte {
	return append(append([]byte{byte(number<<3 | 2)}, binary.AppendUvarint(nil, uint64(len(content)))...), content...)
}

// example writes a tf.train.Example of text, float and integer features.
func example(fields map[string]any, packed bool) []byte {
	var features []byte
	for name, value := range fields {
		var feature []byte
		switch v := value.(type) {
		case string:
			feature = delimited(1, delimited(1, []byte(v)))
		case float64:
			bits := binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(v)))
			if packed {
				feature = delimited(2, delimited(1, bits))
			} else {
				feature = delimited(2, append([]byte{1<<3 | 5}, bits...))
			}
		case int:
			number := binary.AppendUvarint(nil, uint64(v))
			if packed {
				feature = delimited(3, delimited(1, number))
			} else {
				feature = delimited(3, append([]byte{1 << 3}, number...))
			}
		}
		entry := append(delimited(1, []byte(name)), delimited(2, feature)...)
		features = append(features, delimited(1, entry)...)
	}
	return delimited(1, features)
}

func examplesOfClicks(n int, packed bool) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = example(map[string]any{"click": i % 2, "user": fmt.Sprint("u", i), "price": float64(i) + 0.25, "hour": i % 24}, packed)
	}
	return out
}

// hashed are records with a hash, and one absurd value among quantities.
func hashed(n int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = fmt.Appendf(nil, `{"click":%d,"h":%d,"x":%d.5}`, i%2, uint64(i+1)*0x9e3779b97f4a7c15>>1, i)
	}
	out[7] = []byte(`{"click":1,"h":1,"x":1e38}`)
	return out
}

func TestScaffoldWritesAJobThatLoads(t *testing.T) {
	for _, c := range []struct {
		name string
		in   ScaffoldInput
		want Features
		max  int
		kind string
	}{
		{"json", ScaffoldInput{Topic: "Clicks_EU.v2", Partitions: 12, Samples: clicks(200)},
			Features{FormatJSON, "click", []string{"category", "hour", "item", "seller_id", "slot", "user"}, []string{"age", "price"}}, 8, ModelDeepFM},
		{"label given", ScaffoldInput{Topic: "t", Partitions: 3, Label: "hour", Samples: [][]byte{[]byte(`{"hour":1,"x":0.5}`)}},
			Features{FormatJSON, "hour", []string{}, []string{"x"}}, 3, ModelLR},
		{"only binary field", ScaffoldInput{Topic: "t", Partitions: 1, Samples: [][]byte{[]byte(`{"bought":true,"x":"${a}\n\"%{"}`), []byte(`{"bought":false,"x":"b"}`)}},
			Features{FormatJSON, "bought", []string{"x"}, []string{}}, 1, ModelDeepFM},
		{"numbers beyond what is a quantity", ScaffoldInput{Topic: "t", Partitions: 1, Samples: hashed(200)},
			Features{FormatJSON, "click", []string{"h"}, []string{"x"}}, 1, ModelDeepFM},
		{"odd names", ScaffoldInput{Topic: "t", Partitions: 0, Samples: [][]byte{[]byte(`{"y":1,"a\"${x}\n":"b"}`)}},
			Features{FormatJSON, "y", []string{"a\"${x}\n"}, []string{}}, 1, ModelDeepFM},
		{"tf.train.Example", ScaffoldInput{Topic: "t", Partitions: 4, Samples: examplesOfClicks(60, false)},
			Features{FormatTFExample, "click", []string{"hour", "user"}, []string{"price"}}, 4, ModelDeepFM},
		{"tf.train.Example, packed", ScaffoldInput{Topic: "t", Partitions: 4, Samples: examplesOfClicks(60, true)},
			Features{FormatTFExample, "click", []string{"hour", "user"}, []string{"price"}}, 4, ModelDeepFM},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.in.Brokers = []string{"kafka-1:9092", "kafka-2:9092"}
			src, err := Scaffold(c.in)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "job.hcl")
			if err := os.WriteFile(file, src, 0o600); err != nil {
				t.Fatal(err)
			}
			job, files, diags := Load(file, nil, nil)
			if len(diags) > 0 {
				t.Fatalf("%s\n%s", rendered(files, diags), src)
			}
			if diff := cmp.Diff(c.want, job.Features); diff != "" {
				t.Error(diff)
			}
			if job.Workers.Max != c.max || job.Model.Kind != c.kind || !cmp.Equal(job.Stream.Brokers, c.in.Brokers) || job.Stream.Topic != c.in.Topic {
				t.Errorf("max %d, kind %s, brokers %v, topic %s", job.Workers.Max, job.Model.Kind, job.Stream.Brokers, job.Stream.Topic)
			}
			if again, err := Scaffold(c.in); err != nil || !bytes.Equal(src, again) {
				t.Errorf("the same input gives another file (%v)", err)
			}
		})
	}
}

func TestScaffoldFile(t *testing.T) {
	src, err := Scaffold(ScaffoldInput{Brokers: []string{"localhost:9092"}, Topic: "clicks", Partitions: 8, GPUs: 1, Samples: clicks(100)})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join("testdata", "scaffold.golden"), string(src))
}

// The season is one that the topic's history and retention hold; where it is not a day, the file says why.
func TestScaffoldSeason(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		history, retention, season time.Duration
		says                       string
	}{
		{0, 0, day, ""},
		{25 * time.Hour, -1, day, ""},
		{25 * time.Hour, 7 * day, day, ""},
		{24 * time.Hour, 7 * day, time.Hour, "reach back 24h"},
		{3 * time.Hour, 7 * day, time.Hour, "Once they reach back 25h, a season of 24h"},
		{30 * day, day, time.Hour, "keeps records for 24h"},
		{10 * time.Minute, 0, 20 * time.Minute, "reach back 10m"},
		{time.Second, time.Hour, 20 * time.Minute, "keeps records for 1h"},
		{time.Second, time.Minute, 20 * time.Minute, "keeps records for 1m"},
	} {
		in := ScaffoldInput{Brokers: []string{"b:1"}, Topic: "t", Partitions: 2, Samples: clicks(30), History: c.history, Retention: c.retention}
		src, err := Scaffold(in)
		if err != nil {
			t.Fatal(err)
		}
		job, files, diags := Parse(src, "job.hcl", Options{})
		if len(diags) > 0 {
			t.Fatalf("%s\n%s", rendered(files, diags), src)
		}
		text := strings.Join(strings.Fields(strings.ReplaceAll(string(src), "#", "")), " ")
		if job.Forecast.Season[0] != c.season || !strings.Contains(text, c.says) || !strings.Contains(in.ShortSeason(), c.says) || (c.says == "") != (in.ShortSeason() == "") {
			t.Errorf("%v of history, %v kept: season %v, %q; want %v, %q", c.history, c.retention, job.Forecast.Season, in.ShortSeason(), c.season, c.says)
		}
	}
}

// A category that is another in nearly every record may be the record's own name; the file says so where enough records were looked at.
func TestScaffoldMarksWhatNamesTheRecord(t *testing.T) {
	records := func(n, users int) [][]byte {
		out := make([][]byte, n)
		for i := range out {
			out[i] = fmt.Appendf(nil, `{"click":%d,"request":"r%d","user":"u%d","hour":%d,"price":%g}`, i%2, i, i%users, i%24, float64(i)+0.5)
		}
		return out
	}
	const says = "has its own value of"
	for _, c := range []struct {
		n, users int
		want     string // "": nothing is said
	}{
		{50, 10, ""}, {200, 100, `value of "request":`}, {200, 195, `value of "request", "user":`}, {5000, 1100, `value of "request", "user":`}, {5000, 900, `value of "request":`},
	} {
		src, err := Scaffold(ScaffoldInput{Brokers: []string{"b:1"}, Topic: "t", Partitions: 2, Samples: records(c.n, c.users)})
		if err != nil {
			t.Fatal(err)
		}
		if text := string(src); c.want == "" && strings.Contains(text, says) || !strings.Contains(text, c.want) {
			t.Errorf("%d records of %d users:\n%s", c.n, c.users, text)
		}
	}
}

// A few records that cannot be used forbid no job file: it says what becomes of them. So it does of fields that are no single value.
func TestScaffoldOfATopicWithSomeBadRecords(t *testing.T) {
	records := func(n int, bad ...string) [][]byte {
		out := make([][]byte, n)
		for i := range out {
			out[i] = fmt.Appendf(nil, `{"click":%d,"user":"u%d","tags":["a"],"geo":{"city":"x"}}`, i%2, i%7)
		}
		for i, r := range bad {
			out[n-1-i] = []byte(r)
		}
		return out
	}
	text := func(samples [][]byte) (string, error) {
		src, err := Scaffold(ScaffoldInput{Brokers: []string{"b:1"}, Topic: "t", Partitions: 2, Samples: samples})
		return strings.Join(strings.Fields(strings.ReplaceAll(string(src), "#", "")), " "), err
	}
	for _, c := range []struct {
		name    string
		samples [][]byte
		says    []string
	}{
		{"good", records(100), []string{`from 100 records of`, `Left out, because they hold lists or objects: "geo", "tags".`}},
		{"one that is no JSON", records(100, "not json"), []string{"from 99 records of", "1 record looked at could not be read (record 100 of 100: ", `on_undecodable = "skip"`}},
		{"some without a label", records(100, `{"click":null,"user":"u"}`, `{"user":"u"}`), []string{"2 records looked at lack the label"}},
	} {
		if got, err := text(c.samples); err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else {
			for _, want := range c.says {
				if !strings.Contains(got, want) {
					t.Errorf("%s: %q is not in %s", c.name, want, got)
				}
			}
		}
	}
	if _, err := text(records(9, "not json")); err == nil || !strings.Contains(err.Error(), "record 9 of 9") {
		t.Errorf("one of nine: %v", err)
	}
	if _, err := text(records(10, `{"user":"u"}`, `{"user":"v"}`)); err == nil || !strings.Contains(err.Error(), "no field is 0 or 1 in every record") || !strings.Contains(err.Error(), "lists and objects are not looked into (geo, tags)") {
		t.Errorf("two of ten without a label: %v", err)
	}
}

// One of a thing is not "1 things".
func TestScaffoldCounts(t *testing.T) {
	src, err := Scaffold(ScaffoldInput{Brokers: []string{"b:1"}, Topic: "t", Partitions: 1, Samples: clicks(1), Label: "click"})
	if err != nil {
		t.Fatal(err)
	}
	if text := string(src); !strings.Contains(text, "has 1 partition.") || !strings.Contains(text, "from 1 record of") {
		t.Errorf("it says:\n%s", text)
	}
}

func TestScaffoldSaysWhatItMisses(t *testing.T) {
	for _, c := range []struct {
		name, label string
		samples     []string
		want        string
	}{
		{"nothing", "", nil, "no records to look at"},
		{"neither format", "", []string{"\xff\xfe"}, "neither JSON objects"},
		{"half of each", "", []string{`{"click":1}`, "x"}, "record 2 of 2"},
		{"no label", "", []string{`{"a":"x","b":2}`}, "no field is 0 or 1"},
		{"two labels", "", []string{`{"a":1,"b":0}`}, "could be any of a, b"},
		{"unknown label", "clik", []string{`{"click":1,"b":0}`}, `Did you mean "click"`},
		{"label only", "", []string{`{"click":1}`}, "nothing to learn from"},
		{"nested only", "", []string{`{"click":{"a":1}}`}, "no record has a field"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := ScaffoldInput{Brokers: []string{"b:1"}, Topic: "t", Partitions: 1, Label: c.label}
			for _, s := range c.samples {
				in.Samples = append(in.Samples, []byte(s))
			}
			if _, err := Scaffold(in); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
	in := ScaffoldInput{Brokers: []string{"b:1"}, Topic: "t", Partitions: 1, Samples: clicks(20), Label: "price"}
	if _, err := Scaffold(in); err == nil || !strings.Contains(err.Error(), `"price" cannot be the label`) || !strings.Contains(err.Error(), "click") {
		t.Errorf("a label that is no label: %v", err)
	}
	if _, err := Scaffold(ScaffoldInput{Brokers: []string{"nowhere"}, Topic: "t", Partitions: 1, Samples: clicks(2)}); err == nil || !strings.Contains(err.Error(), "host:port") {
		t.Errorf("a broker without a port: %v", err)
	}
}

// FuzzSamples checks that no record makes the survey panic.
func FuzzSamples(f *testing.F) {
	f.Add([]byte(`{"click":1,"user":"u1"}`))
	f.Add(example(map[string]any{"click": 1, "user": "u", "price": 0.5}, false))
	f.Add(example(map[string]any{"click": 1, "user": "u", "price": 0.5}, true))
	f.Fuzz(func(t *testing.T, record []byte) {
		s, err := look([][]byte{record})
		if err == nil && (len(s.fields) == 0 || s.samples != 1) {
			t.Errorf("%+v", s)
		}
	})
}

// A record that is JSON and no object is called what it is, not by the name of a type of ours.
func TestJSONThatIsNoObject(t *testing.T) {
	for record, says := range map[string]string{"[1]": "it is a JSON array and no object", "1": "it is a JSON number and no object", `"x"`: "it is a JSON string and no object", "true": "it is a JSON bool and no object", "null": "null is no object",
		`{"a":[1e999]}`: "the number 1e999 in it is too large"} {
		if _, err := readJSON([]byte(record)); err == nil || err.Error() != says {
			t.Errorf("%s: %v", record, err)
		}
	}
}

// A first job file has the block of the backend that it is for, with what the nodes share taken from where the checkpoint is.
func TestScaffoldForACluster(t *testing.T) {
	in := ScaffoldInput{Brokers: []string{"b:1"}, Topic: "t", Partitions: 2, Samples: clicks(30), Checkpoint: "/mnt/shared/checkpoints"}
	for name, says := range map[string]string{
		"":      "\n  backend \"local\" {\n  }\n}\n",
		"slurm": "\n    shared_dir   = \"/mnt/shared/kale\"\n    shared_paths = [\"/mnt/shared\"]\n",
		"nomad": "\n  backend \"nomad\" {\n    shared_paths = [\"/mnt/shared\"]\n",
	} {
		in.Backend = name
		src, err := Scaffold(in) // which loads it
		if err != nil || !strings.Contains(string(src), says) {
			t.Errorf("%q: %v; want %q in\n%s", name, err, says, src)
		}
	}
}
