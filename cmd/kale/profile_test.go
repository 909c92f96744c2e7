package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/profile"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/examples"
)

// profiledJob is a job file whose throughput is that of its profile, and nothing else.
func profiledJob(t *testing.T, text string) string {
	t.Helper()
	return changed(t, text, "    form   = \"async\"\n    theta  = [0.0002, 0, 0]\n    source = \"a guess by kale init\"\n", "    source = \"profile\"\n")
}

// ofEight is a scaffolded job file that allows 8 workers, however many the machine has room for.
func ofEight(text string) string {
	return regexp.MustCompile(`max  = \d+`).ReplaceAllString(text, "max  = 8")
}

// storedProfile puts a profile of 800 records/s for each worker where kale profile stores it.
func storedProfile(t *testing.T, s *shell, file string) {
	t.Helper()
	j, _, diags := job.Load(file, nil, nil)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	var points []profile.Point
	for _, w := range []int{1, 2, 4, 8} {
		points = append(points, profile.Point{Workers: w, Servers: j.Servers.Count, Rates: []float64{799 * float64(w), 800 * float64(w), 801 * float64(w)}})
	}
	p, err := profile.New(j.Name, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), points, 0, conditions(j))
	if err != nil {
		t.Fatal(err)
	}
	if err := writeProfile(filepath.Join(s.env["KALE_STATE_DIR"], j.Name), p); err != nil {
		t.Fatal(err)
	}
}

// Where throughput.source is "profile", form and theta are those that were measured; without a profile a job that gives none itself is refused at that line.
func TestThroughputFromTheProfile(t *testing.T) {
	t.Parallel()
	s := newShell(t).withPrograms()
	_, text := scaffolded(t, s)
	file := write(t, profiledJob(t, text))
	for _, command := range []string{"plan", "run", "validate"} {
		r := s.run(command, file)
		if r.code != exitFailed || !strings.Contains(r.err, "No profile of this job is stored on this machine") || !strings.Contains(r.err, `source = "profile"`) {
			t.Errorf("kale %s: %+v", command, r)
		}
	}
	if r := s.run("profile", "show", file); r.code != exitFailed || !strings.Contains(r.err, "no profile of job") {
		t.Errorf("%+v", r)
	}
	storedProfile(t, s, file)
	var got struct {
		Observation struct {
			Model struct {
				Form  string    `json:"form"`
				Theta []float64 `json:"theta"`
			} `json:"model"`
		} `json:"observation"`
	}
	r := s.must("plan", file, "-json")
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatalf("%v in %s", err, r.out)
	}
	if m := got.Observation.Model; m.Form != "async" || len(m.Theta) != 3 || m.Theta[0] < 0.00124 || m.Theta[0] > 0.00126 {
		t.Errorf("planned with %+v", m)
	}
	if r := s.must("plan", file); !strings.Contains(r.out, "profile of 2026-01-02 03:04 UTC, 1 to 8 workers") {
		t.Errorf("the source is not told:\n%s", r.out)
	}
	if r := s.must("profile", "show", file); !strings.Contains(r.out, "model/measured") || !strings.Contains(r.out, "throughput {") || !strings.Contains(r.out, "●") {
		t.Errorf("%s", r.out)
	}

	// By its name alone, though nothing has run of the job.
	_, name, _ := strings.Cut(text, `job "`)
	name, _, _ = strings.Cut(name, `"`)
	if r := s.must("profile", "show", name); !strings.Contains(r.out, "model/measured") {
		t.Errorf("%s", r.out)
	}
	if r := s.run("profile", "show", "nosuch"); r.code != exitFailed || !strings.Contains(r.err, `no job "nosuch" is known`) || !strings.HasSuffix(r.err, ". Profiles are stored of: "+name+"\n") {
		t.Errorf("what there is to show is not named: %+v", r)
	}
	if r := s.run("profile", "show", name+"s"); !strings.Contains(r.err, fmt.Sprintf("Did you mean %q?", name)) {
		t.Errorf("what may be meant is not named: %+v", r)
	}

	// What it was measured under has changed: it holds, with a warning.
	other := write(t, changed(t, profiledJob(t, text), "max  = ", "cpu  = 3\n    max  = "))
	if r := s.must("validate", other); !strings.Contains(r.err, "The profile was measured under other conditions") || !strings.Contains(r.err, "workers.cpu (1, now 3)") {
		t.Errorf("%+v", r)
	}
}

// A theta beside source = "profile" holds until there is one.
func TestThetaHoldsUntilThereIsAProfile(t *testing.T) {
	s := newShell(t).withPrograms()
	_, text := scaffolded(t, s)
	file := write(t, changed(t, text, `source = "a guess by kale init"`, `source = "profile"`))
	if r := s.must("plan", file, "-json"); !strings.Contains(r.out, "0.0002") {
		t.Errorf("%s", r.out)
	}
	for _, command := range []string{"plan", "validate"} {
		r := s.must(command, file)
		if said := strings.Join(strings.Fields(r.err), " "); !strings.Contains(said, "No profile is stored for this job") || !strings.Contains(said, "theta of the job file is used; kale profile "+file+" measures.") {
			t.Errorf("%s says nothing of a profile that is not there: %s", command, r.err)
		}
		if command == "plan" && (strings.Contains(r.out, "the prior: profile") || !strings.Contains(r.out, "theta of the job file, since no profile is stored")) {
			t.Errorf("what is planned by: %s", r.out)
		}
	}
	if err := os.MkdirAll(filepath.Join(s.env["KALE_STATE_DIR"], "clicks", profileFile), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"plan", "validate"} {
		if r := s.must(command, file); !strings.Contains(strings.Join(strings.Fields(r.err), " "), "profile.json is a folder: remove it") {
			t.Errorf("%s with a folder in the profile's place: %s", command, r.err)
		}
	}
}

// A replay of a job says where its throughput comes from.
func TestReplaySaysWhereThroughputComesFrom(t *testing.T) {
	t.Parallel()
	s := newShell(t).withPrograms()
	_, text := scaffolded(t, s)
	trace := filepath.Join(t.TempDir(), "t.csv")
	csv := "timestamp,rate\n"
	for i := range 60 {
		csv += fmt.Sprintf("%d,%d\n", 1_777_593_600+60*i, 1000+i)
	}
	if err := os.WriteFile(trace, []byte(csv), 0o644); err != nil {
		t.Fatal(err)
	}
	says := func(file, want string) {
		t.Helper()
		one := []string{"replay", "-trace", trace, "-policies", "static", "-seeds", "1", "-job", file}
		fleet := []string{"replay", "-synthetic", "week", "-policies", "static", "-jobs", "2", "-job", file}
		for _, args := range [][]string{one, fleet} {
			var got struct {
				From string `json:"throughput_from"`
			}
			r := s.must(append(slices.Clone(args), "-json")...)
			if err := json.Unmarshal([]byte(r.out), &got); err != nil || got.From != want {
				t.Errorf("%v: from %q, want %q (%v)", args, got.From, want, err)
			}
			if r := s.must(args...); !strings.Contains(r.out, "What workers train is by "+want+".") {
				t.Errorf("%v: %q is not told:\n%s", args, want, r.out)
			}
		}
	}
	text = strings.Replace(ofEight(text), "max  = 8", "max  = 16", 1)
	says(write(t, text), `theta of the job file (its source: "a guess by kale init")`)
	file := write(t, changed(t, text, `source = "a guess by kale init"`, `source = "profile"`))
	says(file, "theta of the job file, since no profile is stored")
	storedProfile(t, s, file)
	says(file, "the stored profile of 2026-01-02 03:04 UTC, 4 points, of 1 to 8 workers, extrapolated beyond w = 8, ± 3.4 % at most")
	if r := s.must("profile", "show", file); !regexp.MustCompile(`16 +\d+ .*±3\.4 % +extrapolated`).MatchString(r.out) {
		t.Errorf("kale profile show tells another error:\n%s", r.out)
	}
}

// What makes a profile impossible is said before anything is started, with figures and advice.
func TestProfileRefusals(t *testing.T) {
	t.Parallel()
	s := newShell(t).withPrograms()
	addr, text := scaffolded(t, s, stream.TopicSpec{Name: "empty", Partitions: 1})
	slots := changed(t, text, `backend "local" {`, "backend \"local\" {\n    gpus  = \"none\"\n    slots = 2")
	slots = ofEight(strings.Replace(slots, "gpus = 0", "gpus = 1\n    emulate_step = \"1ms\"", 1))
	enough := ofEight(strings.Replace(text, "gpus = 1", "gpus = 0", 1))
	for _, tt := range []struct {
		name, text string
		args       []string
		says       []string
	}{
		{"a broker that is away", changed(t, text, addr, "127.0.0.1:1"), nil, []string{`Cannot ask the brokers about topic "clicks"`}},
		{"too few records", enough, nil, []string{`topic "clicks" holds`, "to measure 1 worker takes at least 61,440", "Wait until more have arrived"}},
		{"no room", slots, []string{"-intervals", "2", "-workers", "1,2,4", "-any-records"}, []string{`backend "local" has no room`, "needs 4 slots, 2 free", "-workers 1,2 would fit now"}},
		{"more servers than tablets", enough, []string{"-servers", "65"}, []string{"the job has 64 tablets"}},
		{"more workers than the job may have", enough, []string{"-workers", "1,99"}, []string{"-workers 99: the job never has more than 8 (workers.max): measure up to that, or raise workers.max"}},
		{"no worker", enough, []string{"-workers", "0"}, []string{"want numbers of 1 or more"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "no room" {
				s.must("produce", "-brokers", addr, "-topic", "clicks", "-history", "100s", "-duration", "0", "-peak", "5000")
			}
			r := s.run(append([]string{"profile", write(t, tt.text)}, tt.args...)...)
			if r.code == exitDone {
				t.Fatalf("%+v", r)
			}
			for _, want := range tt.says {
				if !strings.Contains(strings.Join(strings.Fields(r.err), " "), want) {
					t.Errorf("%q is not said:\n%s", want, r.err)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(s.env["KALE_STATE_DIR"], "*", "profile", "*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// A point whose intervals differ much says so, and so does one that was given up.
func TestProfileTableSaysWhatIsWorthLittle(t *testing.T) {
	var b strings.Builder
	profileTable(&b, []profile.Row{
		{Workers: 1, Servers: 2, Measured: 600, Spread: 0.02, Fitted: 598, Ratio: 0.997, Error: 0.01},
		{Workers: 2, Servers: 2, Measured: 900, Spread: 0.37, Fitted: 1100, Ratio: 1.222, Error: 0.2},
		{Workers: 4, Servers: 2, Fitted: 2000, Error: 0.4, Extrapolated: true, Why: "workers waited for records"},
		{Workers: 8, Servers: 2, Measured: 900, Fitted: 1100, Fewer: "the topic has too few records", Intervals: 3},
	})
	for _, want := range []string{"8 workers, 2 servers: 3 intervals only: the topic has too few records", "2 workers, 2 servers: the intervals differ by ±37 %", "4 workers, 2 servers: workers waited for records", "failed", "extrapolated"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not said:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "1 worker, 2 servers: ") {
		t.Errorf("something is said of a good point:\n%s", b.String())
	}
}

// -dry says what would be done and starts nothing.
func TestProfileDry(t *testing.T) {
	t.Parallel()
	s := newShell(t).withPrograms()
	addr, text := scaffolded(t, s)
	s.must("produce", "-brokers", addr, "-topic", "clicks", "-history", "100s", "-duration", "0", "-peak", "5000")
	file := write(t, strings.Replace(text, "gpus = 1", "gpus = 0", 1))
	r := s.must("profile", file, "-dry", "-workers", "2,1", "-servers", "1,2", "-intervals", "3", "-interval", "2s")
	for _, want := range []string{`profile of job "clicks" on backend "local": 1 and 2 workers with 1 and 2 servers; 3 intervals of 2s each`, "it commits nothing", "if nothing has to be waited for"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q is not said:\n%s", want, r.out)
		}
	}
	r = s.must("profile", file, "-dry", "-json", "-workers", "2,1", "-servers", "1,2", "-intervals", "3", "-interval", "2s")
	var p struct {
		Job              string
		Workers, Servers []int
		Interval         float64 `json:"interval_s"`
		Records          int64
		Estimate         float64 `json:"estimate_s"`
	}
	if err := json.Unmarshal([]byte(r.out), &p); err != nil || p.Job != "clicks" || !slices.Equal(p.Workers, []int{1, 2}) || p.Interval != 2 || p.Records == 0 || p.Estimate == 0 {
		t.Errorf("%v, %+v: %s", err, p, r.out)
	}
	if exists(filepath.Join(s.env["KALE_STATE_DIR"], "clicks", "profile")) {
		t.Error("something was done")
	}
}

// What is wrong with a job file is JSON where JSON is asked for.
func TestProfileRefusesInJSON(t *testing.T) {
	s := newShell(t)
	r := s.run("profile", "nofile.hcl", "-json")
	var v struct {
		Valid       bool
		Diagnostics []diagnosticJSON
	}
	if err := json.Unmarshal([]byte(r.out), &v); err != nil || v.Valid || len(v.Diagnostics) == 0 || r.code != exitFailed {
		t.Errorf("code %d, %v: %q %q", r.code, err, r.out, r.err)
	}
}

// Where nothing could be measured for want of records, it is said what helps; where for another reason, nothing of records is said.
func TestProfileOfTooFewRecordsSaysWhatHelps(t *testing.T) {
	j := &job.Job{Name: "ctr", Stream: job.Stream{Topic: "clicks"}}
	if text := nothingMeasured(j, []profile.Point{{Workers: 1, Few: true, Why: "the topic has too few records"}}).Error(); !strings.Contains(text, `Wait until topic "clicks" holds more records`) ||
		!strings.Contains(text, "kale produce -history") || !strings.Contains(text, "-interval 1s") {
		t.Error(text)
	}
	if text := nothingMeasured(j, []profile.Point{{Workers: 1, Unfed: true, Why: "the worker was busy only 61 % of the time"}}).Error(); strings.Contains(text, "records") ||
		!strings.Contains(text, "nothing was stored: 1 worker: the worker was busy only 61 % of the time") {
		t.Error(text)
	}
	if text := nothingMeasured(j, []profile.Point{{Workers: 1, Why: "0 of 1 workers had joined"}}).Error(); strings.Contains(text, "records") {
		t.Error(text)
	}
}

// Only where no point was measured as it was asked for, for want of records, is it tried again with more of them.
func TestTooFew(t *testing.T) {
	partly := profile.Point{Few: true, Fewer: "too few", Rates: []float64{1}}
	few, failed, measured := profile.Point{Few: true, Why: "too few"}, profile.Point{Why: "it crashed"}, profile.Point{Rates: []float64{1}}
	for _, c := range []struct {
		points []profile.Point
		want   bool
	}{{nil, false}, {[]profile.Point{few}, true}, {[]profile.Point{failed, few}, true}, {[]profile.Point{failed}, false}, {[]profile.Point{measured, few}, false},
		{[]profile.Point{partly, few}, true}, {[]profile.Point{measured, partly}, false}} {
		if got := tooFew(c.points); got != c.want {
			t.Errorf("%+v: %v", c.points, got)
		}
	}
}

// A measurement that tells less of the same job than the stored profile is refused before it begins, unless -force says so; of a job that has changed it is not.
func TestProfileThatTellsLessIsRefused(t *testing.T) {
	t.Parallel()
	s := newShell(t).withPrograms()
	_, text := scaffolded(t, s)
	text = ofEight(strings.Replace(text, "gpus = 1", "gpus = 0", 1))
	file := write(t, text)
	storedProfile(t, s, file)
	const refused = "it would tell less of the same job"
	r := s.run("profile", file, "-dry", "-workers", "8")
	if r.code != exitUsage || !strings.Contains(r.err, refused) || !strings.Contains(r.err, "has 4 points, of 1 to 8 workers, and this would be 1 point, of 8 workers") ||
		!strings.Contains(r.err, "-force") {
		t.Errorf("%+v", r)
	}
	for name, args := range map[string][]string{
		"forced": {file, "-workers", "8", "-force"}, "as much": {file, "-workers", "1,2,4,8"}, "by default": {file},
		"of a changed job": {write(t, changed(t, text, "max  = ", "cpu  = 3\n    max  = ")), "-workers", "8"},
	} {
		if r := s.run(append([]string{"profile", "-dry"}, args...)...); strings.Contains(r.err, refused) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// A profile that replaces another keeps it beside; one of which too much failed does not replace it, and is kept beside itself.
func TestProfileIsKept(t *testing.T) {
	j, _, diags := job.Parse(examples.Replay, "replay.hcl", job.Options{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	l := &loaded{Job: j, dir: t.TempDir()}
	var told strings.Builder
	a := &app{out: io.Discard, err: &told}
	ladder := profile.Options{Workers: []int{1, 2, 4}, Servers: []int{1}, Extra: 2}
	measure := func(failed bool, rate float64) *profile.Profile {
		var points []profile.Point
		for _, w := range ladder.Workers {
			pt := profile.Point{Workers: w, Servers: 1, Rates: []float64{rate * float64(w), rate * float64(w)}}
			if failed && w > 1 {
				pt.Why = "it crashed"
			}
			points = append(points, pt)
		}
		p, err := profile.New(j.Name, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), points, 0, conditions(j))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := func(name string) float64 {
		raw, err := os.ReadFile(filepath.Join(l.dir, name))
		var p profile.Profile
		if err == nil {
			err = json.Unmarshal(raw, &p)
		}
		if err != nil {
			return 0
		}
		return p.Points[0].Mean()
	}
	for _, step := range []struct {
		name                     string
		failed, force            bool
		rate                     float64
		file                     string
		stored, previous, narrow float64
		says                     string
	}{
		{"the first", false, false, 100, profileFile, 100, 0, 0, ""},
		{"as good", false, false, 200, profileFile, 200, 100, 0, "The profile before this one is kept in"},
		{"worse", true, false, 300, narrowFile, 200, 100, 300, "only 1 point, of 1 worker could be had"},
		{"worse, and forced", true, true, 400, profileFile, 400, 200, 300, "The profile before this one is kept in"},
	} {
		told.Reset()
		file, err := a.storeProfile(l, measure(step.failed, step.rate), ladder, step.force)
		if err != nil || file != filepath.Join(l.dir, step.file) || first(profileFile) != step.stored || first(previousFile) != step.previous || first(narrowFile) != step.narrow {
			t.Errorf("%s: %v, stored in %s: %v, before %v, beside %v", step.name, err, file, first(profileFile), first(previousFile), first(narrowFile))
		}
		if said := strings.Join(strings.Fields(told.String()), " "); !strings.Contains(said, step.says) || (step.says == "" && said != "") {
			t.Errorf("%s: it says %q", step.name, said)
		}
	}
}
