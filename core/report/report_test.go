package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

const attack = `</script><script>alert(1)</script><img src=x onerror="alert(2)">'"&{{.Job}}` + "\u2028\x00<!--"

// hostileInput has markup wherever a job, a person or a broker puts words.
func hostileInput(t testing.TB) Input {
	in := demoInput(t)
	in.Job, in.Title, in.Mode, in.Policy, in.Version = attack, attack, attack, attack, attack
	for i := range in.Summary {
		in.Summary[i].Name, in.Summary[i].Value, in.Summary[i].Note = attack, attack, attack
	}
	in.Notes = []string{attack}
	for i := range in.Rescales {
		in.Rescales[i].Reason, in.Rescales[i].Unfinished = attack, attack
	}
	in.Rescales[0].Kind = attack
	for i := range in.Decisions {
		in.Decisions[i].Decision.Reason, in.Decisions[i].Decision.Kind = attack, attack
		in.Decisions[i].Decision.Hold = []string{attack}
	}
	return in
}

func written(t testing.TB, in Input) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, in); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// parsed is a page as a browser sees it.
type parsed struct {
	elements []string          // tag names in order, each with its depth
	attrs    map[string]string // "tag attribute" → last value
	scripts  []string          // bodies of script elements that run
	styles   []string
	data     string
	texts    []string
	ids      map[string]int
}

// void elements have no end tag.
var void = []string{"meta", "img", "br", "input", "link"}

// parse reads a page with a tokeniser and fails on elements that are not closed in order: a parser would repair them and hide it.
func parse(t testing.TB, page []byte) parsed {
	t.Helper()
	p := parsed{attrs: map[string]string{}, ids: map[string]int{}}
	z := html.NewTokenizer(bytes.NewReader(page))
	var open []string
	kind := ""
	for {
		switch z.Next() {
		case html.ErrorToken:
			if len(open) > 0 {
				t.Fatalf("not closed at the end: %v (%v)", open, z.Err())
			}
			return p
		case html.StartTagToken:
			tok := z.Token()
			p.elements = append(p.elements, strings.Repeat(" ", len(open))+tok.Data)
			kind = ""
			for _, a := range tok.Attr {
				p.attrs[tok.Data+" "+a.Key] = a.Val
				if a.Key == "id" {
					p.ids[a.Val]++
				}
				if a.Key == "type" {
					kind = a.Val
				}
			}
			if !slices.Contains(void, tok.Data) {
				open = append(open, tok.Data)
			}
		case html.EndTagToken:
			tok := z.Token()
			if len(open) == 0 || open[len(open)-1] != tok.Data {
				t.Fatalf("</%s> closes %v", tok.Data, open)
			}
			open = open[:len(open)-1]
		case html.TextToken:
			text := string(z.Text())
			switch {
			case len(open) > 0 && open[len(open)-1] == "script" && kind == "application/json":
				p.data = text
			case len(open) > 0 && open[len(open)-1] == "script":
				p.scripts = append(p.scripts, text)
			case len(open) > 0 && open[len(open)-1] == "style":
				p.styles = append(p.styles, text)
			default:
				p.texts = append(p.texts, html.UnescapeString(text))
			}
		case html.CommentToken:
			t.Errorf("a comment: %s", z.Text())
		}
	}
}

// The page is closed in order, loads nothing, and its policy allows exactly the scripts and the style that it has.
func TestPageIsWholeAndLoadsNothing(t *testing.T) {
	for name, in := range map[string]Input{"demo": demoInput(t), "workday": trimmed(workday().run(t))} {
		t.Run(name, func(t *testing.T) {
			p := parse(t, written(t, in))
			for id, n := range p.ids {
				if n != 1 {
					t.Errorf("id %q is there %d times", id, n)
				}
			}
			for _, id := range []string{"data", "traffic", "workers", "lag", "busy"} {
				if p.ids[id] == 0 {
					t.Errorf("no element %q", id)
				}
			}
			for a, value := range p.attrs {
				name := strings.SplitN(a, " ", 2)[1]
				if name == "src" || name == "href" || name == "style" || strings.HasPrefix(name, "on") {
					t.Errorf("attribute %s = %q", a, value)
				}
			}
			if len(p.scripts) != 2 || len(p.styles) != 1 {
				t.Fatalf("%d scripts and %d styles", len(p.scripts), len(p.styles))
			}
			want := "default-src 'none'; base-uri 'none'; form-action 'none'; style-src " + hashSource(p.styles[0]) + "; script-src " + hashSource(p.scripts[0]) + " " + hashSource(p.scripts[1])
			if got := p.attrs["meta content"]; !slices.Contains(metas(t, in), want) {
				t.Errorf("policy %q is not among the meta elements (last one %q)", want, got)
			}
			if !strings.Contains(p.scripts[0], "Permission is hereby granted") {
				t.Error("uPlot's licence does not come with it")
			}
		})
	}
}

func metas(t *testing.T, in Input) []string {
	t.Helper()
	doc, err := html.Parse(bytes.NewReader(written(t, in)))
	if err != nil {
		t.Fatal(err)
	}
	var contents []string
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode && n.Data == "meta" {
			for _, a := range n.Attr {
				if a.Key == "content" {
					contents = append(contents, a.Val)
				}
			}
		}
	}
	return contents
}

// Markup in names, reasons and facts is text: the page has the same elements as one without, and shows the text as it was given.
func TestHostileTextStaysText(t *testing.T) {
	tame := hostileInput(t)
	for i := range tame.Summary {
		tame.Summary[i].Name, tame.Summary[i].Value, tame.Summary[i].Note = "n", "v", "t"
	}
	tame.Job, tame.Title, tame.Mode, tame.Policy, tame.Version, tame.Notes = "j", "t", "m", "p", "v", []string{"n"}
	for i := range tame.Rescales {
		tame.Rescales[i].Reason, tame.Rescales[i].Kind = "r", "k"
	}
	for i := range tame.Decisions {
		tame.Decisions[i].Decision.Reason, tame.Decisions[i].Decision.Kind, tame.Decisions[i].Decision.Hold = "r", "k", []string{"h"}
	}
	want, got := parse(t, written(t, tame)), parse(t, written(t, hostileInput(t)))
	if diff := cmp.Diff(want.elements, got.elements); diff != "" {
		t.Errorf("elements (-tame +hostile):\n%s", diff)
	}
	if diff := cmp.Diff(want.scripts, got.scripts); diff != "" {
		t.Errorf("scripts (-tame +hostile):\n%s", diff)
	}
	shown := strings.ReplaceAll(attack, "\x00", "\ufffd")
	n := 0
	for _, text := range got.texts {
		if strings.Contains(text, shown) {
			n++
		}
	}
	in := hostileInput(t)
	// Title element, heading, job, mode, policy, note, version; three of each tile; the rescales' reasons, what they waited for and one kind; kind, reason and explanation of each decision.
	if want := 7 + 3*len(in.Summary) + 2*len(in.Rescales) + 1 + 3*len(in.Decisions); n != want {
		t.Errorf("the text is shown %d times, want %d", n, want)
	}
	var data payload
	if err := json.Unmarshal([]byte(got.data), &data); err != nil {
		t.Fatal(err)
	}
	if data.Rescales[0].Kind != attack {
		t.Errorf("the kind in the data is %q", data.Rescales[0].Kind)
	}
}

// The JSON in the page holds the samples' own numbers.
func TestEmbeddedDataAreTheSamples(t *testing.T) {
	in := demoInput(t)
	var got struct {
		Emulated bool    `json:"emulated"`
		MaxLag   float64 `json:"max_lag"`
		End      float64
		Table    map[string][]*float64
		Rescales []mark
	}
	if err := json.Unmarshal([]byte(parse(t, written(t, in)).data), &got); err != nil {
		t.Fatal(err)
	}
	number := func(v float64) *float64 { return &v }
	want := map[string][]*float64{}
	for _, s := range in.Samples {
		for name, v := range map[string]*float64{
			"t": number(float64(s.At.UnixMilli()) / 1000), "rate": s.Rate, "trained": s.Trained, "lag": s.Lag, "mean": &s.Forecast.Mean, "lower": &s.Forecast.Lower,
			"upper": &s.Forecast.Upper, "capacity": s.Capacity, "running": number(float64(*s.Running)), "pending": number(float64(*s.Pending)),
			"draining": number(float64(s.Draining)), "target": number(float64(s.Target)), "held": number(float64(*s.Held)), "busy": number(100 * *s.Busy),
		} {
			want[name] = append(want[name], v)
		}
	}
	if diff := cmp.Diff(want, got.Table); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if !got.Emulated || got.MaxLag != 2 || got.End != *want["t"][len(want["t"])-1] || len(got.Rescales) != len(in.Rescales) {
		t.Errorf("emulated %v, max lag %v, end %v, %d rescales", got.Emulated, got.MaxLag, got.End, len(got.Rescales))
	}
	for i, r := range in.Rescales {
		want := mark{r.Kind, r.From, r.To, float64(r.Decided.UnixMilli()) / 1000, float64(r.Done.UnixMilli()) / 1000}
		if got.Rescales[i] != want {
			t.Errorf("rescale %d is %+v, want %+v", i, got.Rescales[i], want)
		}
	}
}

// An emulated accelerator is named so wherever it is spoken of, and a real one is not.
func TestEmulationIsNamed(t *testing.T) {
	in := trimmed(demoDay().run(t))
	for _, emulated := range []bool{true, false} {
		in.Emulated, in.Summary = emulated, nil
		text := strings.Join(parse(t, written(t, in)).texts, "\n")
		for _, words := range []string{"emulated accelerators", "Emulated accelerators busy", "Emulated GPU-hours", "are emulated"} {
			if strings.Contains(text, words) != emulated {
				t.Errorf("emulated %v, %q is there: %v", emulated, words, !emulated)
			}
		}
	}
}

// The tables stand in the page without any script: a rescale that came too late, one that was replaced, a first start.
func TestRescaleRows(t *testing.T) {
	in := demoInput(t)
	in.Rescales = in.Rescales[:3]
	late := -in.Rescales[1].Gap
	in.Rescales[0].From, in.Rescales[0].Ahead, in.Rescales[0].GapKnown = 0, nil, false
	in.Rescales[1].Ahead = &late
	in.Rescales[2].Aborted = true
	got := in.rescaleRows()
	for i := range got {
		got[i].Reason, got[i].ISO, got[i].Took = "", "", ""
	}
	want := []rescaleRow{
		{Kind: "out", Word: "start", Change: "0 → 2", Decided: "09:14:23", Ahead: "–", Gap: "–"},
		{Kind: "out", Word: "scale-out", Change: "2 → 3", Decided: "09:14:32", Ahead: job.Length(in.Rescales[1].Gap) + " late", Gap: job.Length(in.Rescales[1].Gap), Late: true},
		{Kind: "out", Word: "scale-out", Change: "3 → 4", Decided: "09:14:37", Ahead: job.Length(*in.Rescales[2].Ahead), Gap: job.Length(in.Rescales[2].Gap), Aborted: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What stands in a job's way now is said before what was.
func TestReportBeginsWithProblems(t *testing.T) {
	in := demoInput(t)
	in.Problems = []string{"the topic was <created> again"}
	text := strings.Join(parse(t, written(t, in)).texts, " ")
	if at, tiles := strings.Index(text, in.Problems[0]), strings.Index(text, "records"); at < 0 || at > tiles {
		t.Errorf("the problem stands at %d, the first figure at %d of %.300q", at, tiles, text)
	}
}

// A summary of a part of the time says so, and what is outside that part is told as not counted.
func TestReportSaysWhatIsCounted(t *testing.T) {
	in := demoInput(t)
	in.CountedFrom, in.CountedTo = in.Rescales[1].Decided, in.Rescales[2].Decided
	for i, row := range in.rescaleRows() {
		if want := i < 1 || i > 2; row.Aside != want {
			t.Errorf("the rescale of %s: aside %v", row.Decided, row.Aside)
		}
	}
	text := strings.Join(parse(t, written(t, in)).texts, " ")
	for _, want := range []string{"The figures above, but for the count of records, are of the time from", "not counted"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if p := in.payload(); len(p.Counted) != 2 || p.Counted[0] != unix(in.CountedFrom) || p.Counted[1] != unix(in.CountedTo) {
		t.Errorf("the charts shade outside of %v", p.Counted)
	}
	in.CountedFrom, in.CountedTo = time.Time{}, time.Time{}
	if text := strings.Join(parse(t, written(t, in)).texts, " "); strings.Contains(text, "not counted") || in.payload().Counted != nil {
		t.Error("all is counted, and it says otherwise")
	}
}

func TestWriteIsDeterministic(t *testing.T) {
	in := trimmed(workday().run(t))
	if !bytes.Equal(written(t, in), written(t, in)) {
		t.Error("two pages of one input differ")
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestWriteErrors(t *testing.T) {
	err := Write(&bytes.Buffer{}, Input{Meta: Meta{Job: "ctr"}})
	if err == nil || !strings.Contains(err.Error(), `report of job "ctr": no samples`) {
		t.Errorf("without samples: %v", err)
	}
	err = Write(fullDisk{}, demoInput(t))
	if err == nil || err.Error() != `write the report of job "ctr": no space left on device` {
		t.Errorf("on a full disk: %v", err)
	}
}

// Samples that are out of order are brought in order, and the caller's own stay as they are.
func TestSamplesAreOrdered(t *testing.T) {
	in := demoInput(t)
	want := written(t, in)
	slices.Reverse(in.Samples)
	first := in.Samples[0].At
	if !bytes.Equal(want, written(t, in)) {
		t.Error("the order of the samples changes the page")
	}
	if !in.Samples[0].At.Equal(first) {
		t.Error("the caller's samples were reordered")
	}
}

func TestVendoredFilesAreTheOnesNamed(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("uplot", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"uPlot.iife.min.js", "uPlot.min.css", "LICENSE"} {
		raw, err := os.ReadFile(filepath.Join("uplot", file))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(raw)
		if line := "| `" + file + "` | `" + hex.EncodeToString(sum[:]) + "` |"; !strings.Contains(string(readme), line) {
			t.Errorf("uplot/README.md lacks %s", line)
		}
	}
	if !strings.Contains(uplotJS, "(v1.6.32)") || !strings.Contains(pageHTML, "uPlot 1.6.32") {
		t.Error("the version that the page names is not the one that is embedded")
	}
}

func BenchmarkWriteFortnight(b *testing.B) {
	d := workday()
	d.day, d.awayFor = 14*24*60*60*1e9, 0
	in := trimmed(d.run(b))
	for b.Loop() {
		written(b, in)
	}
}

// A rescale that was given up says what it waited for; one that is done, how its join divides.
func TestRescaleRowsSayWhatWasMissing(t *testing.T) {
	decided := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	in := Input{Meta: Meta{Job: "ctr"}, Samples: []core.Sample{{At: decided}, {At: decided.Add(time.Hour)}}, Rescales: []Rescale{
		{Rescale: core.Rescale{Kind: plan.KindOut, From: 1, To: 2, Decided: decided, Done: decided.Add(10 * time.Minute), Aborted: true, Unfinished: "worker 1 is not <ready>"}},
		{Rescale: core.Rescale{Kind: plan.KindOut, From: 1, To: 2, Decided: decided, Done: decided.Add(time.Second), Join: &core.Join{Worker: "worker-1", Placed: time.Second}}},
	}}
	var out bytes.Buffer
	if err := Write(&out, in); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"given up: worker 1 is not &lt;ready&gt;</span>", `title="worker-1 in 1s: placed 1s, started 0s, ready 0s, first record 0s"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page does not have %q", want)
		}
	}
}
