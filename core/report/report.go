package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page's parts are files
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

//go:embed uplot/uPlot.iife.min.js
var uplotJS string

//go:embed uplot/uPlot.min.css
var uplotCSS string

//go:embed uplot/LICENSE
var uplotLicence string

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed charts.js
var chartsJS string

// maxRows is how many points of a series are drawn at most; a screen has fewer columns.
const maxRows = 5000

// payload is the JSON in the page, from which the charts are drawn.
type payload struct {
	Emulated   bool         `json:"emulated"`
	MaxLag     float64      `json:"max_lag"` // s
	Max        int          `json:"max"`
	Table      *table       `json:"table"`
	Violations [][2]float64 `json:"violations"`
	Unwatched  [][2]float64 `json:"unwatched"` // from and to, s since 1970
	Rescales   []mark       `json:"rescales"`
	End        float64      `json:"end"`               // of what was observed; beyond it is the outlook
	Counted    []float64    `json:"counted,omitempty"` // from and to, s since 1970
}

// mark is a rescale as the charts show it; times in s since 1970.
type mark struct {
	Kind    plan.Kind `json:"kind"`
	From    int       `json:"from"`
	To      int       `json:"to"`
	Decided float64   `json:"decided"`
	Done    float64   `json:"done"`
}

// page is what the template is filled with.
type page struct {
	Input
	Heading    string
	Policy     template.HTMLAttr // the content security policy
	CSS        template.CSS
	Scripts    []template.JS
	JSON       template.JS
	Begun      stamp
	Ended      stamp
	Written    stamp
	Counted    []stamp
	Watched    string // "8m48s of 40m27s"; "": all the time
	Unwatched  string // how long the rest is
	Drawn      int
	Rescales   []rescaleRow
	Decisions  []decisionRow
	Outlooking bool
}

// stamp is a time: for programs, and for people as long as no script has written it in their own zone.
type stamp struct{ ISO, Text string }

func stampOf(at, before time.Time) stamp { return stamp{iso(at), moment(at, before)} }

type rescaleRow struct {
	Kind, Word, Change, Decided, ISO, Took, Ahead, Gap, Reason string
	Unfinished, Join                                           string
	Late, Aborted, Aside                                       bool
}

type decisionRow struct {
	Kind, Word, Change, At, ISO, Reason, Explain string
	ObserveOnly                                  bool
}

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// Write writes the report as one HTML file. It is an error when there is nothing to show, or when w fails.
func Write(w io.Writer, in Input) error {
	if err := in.check(); err != nil {
		return err
	}
	if in.Summary == nil {
		in.Summary = Summarise(in)
	}
	data := in.payload()
	encoded, err := json.Marshal(data) // Escapes <, > and &, so that no text ends the script element.
	if err != nil {
		return fmt.Errorf("report of job %q: %w", in.Job, err)
	}
	css := uplotCSS + "\n" + pageCSS
	scripts := []string{uplotJS + "\n/*\n" + uplotLicence + "*/\n", chartsJS}
	p := page{
		Input: in, Heading: in.Title, CSS: template.CSS(css), JSON: template.JS(encoded), Policy: contentPolicy(css, scripts),
		Drawn: len(data.Table.T), Rescales: in.rescaleRows(), Decisions: in.decisionRows(), Outlooking: len(in.Outlook.Mean) > 0,
	}
	first, last := in.Samples[0].At, in.Samples[len(in.Samples)-1].At
	p.Begun, p.Ended, p.Written = stampOf(first, time.Time{}), stampOf(last, first), stampOf(in.Generated, time.Time{})
	if in.partly() {
		p.Counted = []stamp{stampOf(in.CountedFrom, first), stampOf(in.CountedTo, first)}
	}
	if watched, of, partly := in.watch(); partly {
		p.Watched, p.Unwatched = job.Length(watched)+" of "+job.Length(of), job.Length(of-watched)
	}
	if p.Heading == "" {
		p.Heading = in.Job
	}
	for _, s := range scripts {
		p.Scripts = append(p.Scripts, template.JS(s))
	}
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, p); err != nil {
		return fmt.Errorf("report of job %q: %w", in.Job, err)
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write the report of job %q: %w", in.Job, err)
	}
	return nil
}

// contentPolicy lets the page's own scripts and style run and nothing else: no network, no other script.
func contentPolicy(css string, scripts []string) template.HTMLAttr {
	out := "default-src 'none'; base-uri 'none'; form-action 'none'; style-src " + hashSource(css) + "; script-src"
	for _, s := range scripts {
		out += " " + hashSource(s)
	}
	return template.HTMLAttr(`content="` + out + `"`)
}

func hashSource(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func (in *Input) payload() payload {
	p := payload{
		Emulated: in.Emulated, MaxLag: in.MaxLag.Seconds(), Max: in.Max, Table: tabulate(in.Samples, in.Outlook).thin(maxRows),
		Violations: violations(in.Samples, in.MaxLag), Unwatched: [][2]float64{}, Rescales: []mark{}, End: unix(in.Samples[len(in.Samples)-1].At),
	}
	if in.partly() {
		p.Counted = []float64{unix(in.CountedFrom), unix(in.CountedTo)}
	}
	for _, s := range unwatched(in.Samples) {
		p.Unwatched = append(p.Unwatched, [2]float64{unix(s[0]), unix(s[1])})
	}
	for _, r := range in.Rescales {
		p.Rescales = append(p.Rescales, mark{r.Kind, r.From, r.To, unix(r.Decided), unix(r.Done)})
	}
	return p
}

// partly says that the summary is of a part of what is shown.
func (in *Input) partly() bool { return !in.CountedFrom.IsZero() }

func (in *Input) rescaleRows() []rescaleRow {
	var rows []rescaleRow
	before := in.Samples[0].At
	for _, r := range in.Rescales {
		row := rescaleRow{
			Kind: string(r.Kind), Word: word(r.Kind, r.From), Change: strconv.Itoa(r.From) + " → " + strconv.Itoa(r.To), Decided: moment(r.Decided, before),
			ISO: iso(r.Decided), Took: job.Length(r.Done.Sub(r.Decided)), Gap: "unknown", Ahead: "–", Reason: r.Reason, Aborted: r.Aborted, Unfinished: r.Unfinished,
		}
		if r.Join != nil {
			row.Join = r.Join.String()
		}
		row.Aside = in.partly() && (r.Decided.Before(in.CountedFrom) || r.Decided.After(in.CountedTo))
		switch {
		case r.From < 1:
			row.Gap = "–"
		case r.GapKnown:
			row.Gap = job.Length(r.Gap)
		}
		switch {
		case r.Ahead == nil:
		case *r.Ahead < 0:
			row.Ahead, row.Late = job.Length(-*r.Ahead)+" late", true
		default:
			row.Ahead = job.Length(*r.Ahead)
		}
		rows = append(rows, row)
		before = r.Decided
	}
	return rows
}

// word names a change in full.
func word(k plan.Kind, from int) string {
	switch {
	case k == plan.KindOut && from < 1:
		return "start"
	case k == plan.KindOut:
		return "scale-out"
	case k == plan.KindIn:
		return "scale-in"
	}
	return string(k)
}

// decisionRows are the newest first.
func (in *Input) decisionRows() []decisionRow {
	rows := make([]decisionRow, 0, len(in.Decisions))
	for _, r := range slices.Backward(in.Decisions) {
		rows = append(rows, in.decisionRow(r))
	}
	return rows
}

func (in *Input) decisionRow(r core.Record) decisionRow {
	d := r.Decision
	row := decisionRow{
		Kind: string(d.Kind), Word: d.Kind.Words(), At: moment(d.At, in.Samples[0].At), ISO: iso(d.At), Reason: d.Reason, Explain: d.In(time.UTC).Explain(), ObserveOnly: r.ObserveOnly,
		Change: strconv.Itoa(d.Target),
	}
	if d.Current != d.Target {
		row.Change = strconv.Itoa(d.Current) + " → " + strconv.Itoa(d.Target)
	}
	return row
}

func iso(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
