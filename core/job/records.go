package job

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// fewSamples is how many records must have been seen before a field that none of them has is taken for a mistake: below, it may be rare.
const fewSamples = 20

// RecordDiagnostics holds the job's features against records of its topic, the newest: the format, the label, and every field by its name.
// A field that no record has would be trained as a constant, and a record without a usable label is not trained at all; neither would be
// seen in the lag. Without samples it says that nothing was checked.
func (j *Job) RecordDiagnostics(samples [][]byte) hcl.Diagnostics {
	if j.Model.Kind == ModelCounting {
		return nil // it looks into no record
	}
	if len(samples) == 0 {
		return hcl.Diagnostics{j.WarningAt("features", "The features could not be checked",
			fmt.Sprintf("Topic %q is empty: whether its records will have these fields is not known. Ask again when there are some.", j.Stream.Topic))}
	}
	c := censusOf(samples, j.Features.Format)
	if len(c.records) == 0 {
		return hcl.Diagnostics{j.otherFormat(samples, c)}
	}
	var diags hcl.Diagnostics
	if c.unreadable > 0 {
		diags = append(diags, j.WarningAt("features.format", "Some records cannot be read",
			fmt.Sprintf("%d of the %s of topic %q are no %s (%v). %s", c.unreadable, newest(len(samples)), j.Stream.Topic, formatName[j.Features.Format], c.why, j.fate())))
	}
	if j.Features.Label != "" { // else it was said that there is none
		diags = append(diags, j.labelDiagnostics(c)...)
	}
	for i, name := range j.Features.Sparse {
		diags = append(diags, j.fieldDiagnostics(c, name, fmt.Sprintf("features.sparse[%d]", i), func(value) string { return "" })...)
	}
	for i, name := range j.Features.Dense {
		diags = append(diags, j.fieldDiagnostics(c, name, fmt.Sprintf("features.dense[%d]", i), noQuantity)...)
	}
	return diags
}

var formatName = map[string]string{FormatJSON: "JSON objects", FormatTFExample: "tf.train.Example"}

// newest names the samples.
func newest(n int) string {
	if n == 1 {
		return "newest record"
	}
	return fmt.Sprintf("%d newest records", n)
}

// fate is what becomes of a record that cannot be decoded.
func (j *Job) fate() string {
	if j.Stream.DeadLetter != "" {
		return fmt.Sprintf("Such records are not trained: they go to topic %q.", j.Stream.DeadLetter)
	}
	if j.Stream.OnUndecodable == OnLostSkip {
		return `Such records are not trained: they are counted, and skipped (on_undecodable = "skip").`
	}
	return "Such a record stops its partition, because the stream block names no dead_letter topic to put it in."
}

// census is what a set of records has.
type census struct {
	records    []map[string]value
	names      []string // of all fields, sorted
	unreadable int
	why        error // of the first that could not be read
}

func censusOf(samples [][]byte, format string) census {
	var c census
	names := map[string]bool{}
	for _, sample := range samples {
		record, err := readers[format](sample)
		if err != nil {
			c.unreadable++
			if c.why == nil {
				c.why = err
			}
			continue
		}
		c.records = append(c.records, record)
		for name := range record {
			names[name] = true
		}
	}
	for name := range names {
		c.names = append(c.names, name)
	}
	slices.Sort(c.names)
	return c
}

// OtherFormat is the summary of a diagnostic: no record has the format that the job file names, and they have the other one.
const OtherFormat = "The records have another format"

// otherFormat is about records of which none can be read.
func (j *Job) otherFormat(samples [][]byte, c census) *hcl.Diagnostic {
	is, other := j.Features.Format, FormatTFExample
	if is == FormatTFExample {
		other = FormatJSON
	}
	detail := fmt.Sprintf("None of the %s of topic %q can be read as %s (%v). ", newest(len(samples)), j.Stream.Topic, formatName[is], c.why)
	if d := censusOf(samples, other); len(d.records) > d.unreadable {
		return j.ErrorAt("features.format", OtherFormat, detail+fmt.Sprintf("They are %s: use format = %q.", formatName[other], other))
	}
	return j.ErrorAt("features.format", "The records cannot be read", detail+fmt.Sprintf("They are not %s either. Is this the right topic? %s", formatName[other], j.fate()))
}

// tally counts the records in which a field is absent, and those in which it cannot be used.
type tally struct {
	absent, wrong int
	why           string // of the first wrong one
}

func (c census) tally(name string, wrong func(value) string) tally {
	var t tally
	for _, record := range c.records {
		v, there := record[name]
		why := ""
		switch {
		case !there || v.nothing && !v.several:
			t.absent++
		case v.several:
			why = "a list or an object"
		default:
			why = wrong(v)
		}
		if why != "" {
			if t.wrong++; t.wrong == 1 {
				t.why = why
			}
		}
	}
	return t
}

// mostlyWrong says that more of n records cannot be used than can.
func (t tally) mostlyWrong(n int) bool { return 2*t.wrong > n-t.absent }

func (j *Job) labelDiagnostics(c census) hcl.Diagnostics {
	const path = "features.label"
	label, n := j.Features.Label, len(c.records)
	t := c.tally(label, noLabel)
	switch {
	case t.absent == n:
		return hcl.Diagnostics{j.ErrorAt(path, fmt.Sprintf("No record has the label %q", label), c.advice(label, n))}
	case t.mostlyWrong(n):
		return hcl.Diagnostics{j.ErrorAt(path, fmt.Sprintf("The label %q is not 0 or 1", label),
			fmt.Sprintf("In %d of the %s of topic %q it is something else, such as %s. %s", t.wrong, newest(n), j.Stream.Topic, t.why, j.fate()))}
	}
	var diags hcl.Diagnostics
	if t.absent > 0 {
		diags = append(diags, j.WarningAt(path, fmt.Sprintf("Some records have no label %q", label),
			fmt.Sprintf("%d of the %s of topic %q lack it. %s", t.absent, newest(n), j.Stream.Topic, j.fate())))
	}
	if t.wrong > 0 {
		diags = append(diags, j.WarningAt(path, fmt.Sprintf("The label %q is not always 0 or 1", label),
			fmt.Sprintf("In %d of the %s of topic %q it is something else, such as %s. %s", t.wrong, newest(n), j.Stream.Topic, t.why, j.fate())))
	}
	return diags
}

func (j *Job) fieldDiagnostics(c census, name, path string, wrong func(value) string) hcl.Diagnostics {
	n := len(c.records)
	t := c.tally(name, wrong)
	switch {
	case t.absent == n && n >= fewSamples:
		return hcl.Diagnostics{j.ErrorAt(path, fmt.Sprintf("No record has the field %q", name), c.advice(name, n))}
	case t.absent == n:
		return hcl.Diagnostics{j.WarningAt(path, fmt.Sprintf("No record so far has the field %q", name), c.advice(name, n))}
	case t.mostlyWrong(n):
		return hcl.Diagnostics{j.ErrorAt(path, fmt.Sprintf("The field %q cannot be used", name),
			fmt.Sprintf("In %d of the %s of topic %q it is not what it should be, such as %s. %s", t.wrong, newest(n), j.Stream.Topic, t.why, j.fate()))}
	case t.wrong > 0:
		return hcl.Diagnostics{j.WarningAt(path, fmt.Sprintf("The field %q cannot always be used", name),
			fmt.Sprintf("In %d of the %s of topic %q it is not what it should be, such as %s. %s", t.wrong, newest(n), j.Stream.Topic, t.why, j.fate()))}
	}
	return nil
}

// advice is what to do about a name that no record has.
func (c census) advice(name string, n int) string {
	shown := c.names
	more := ""
	if len(shown) > 16 {
		shown, more = shown[:16], " and others"
	}
	return fmt.Sprintf("%sThe %s %s: %s%s.", DidYouMean(name, c.names), newest(n), have(n), strings.Join(shown, ", "), more)
}

func have(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

// noLabel says what a value is, unless it can be a label: 0, 1, true, false, or a text that is one of the numbers. "" when it can.
func noLabel(v value) string {
	n, ok := v.quantity()
	if ok && (n == 0 || n == 1) {
		return ""
	}
	return v.String()
}

// MaxDense bounds the magnitude of a numeric field's values, which enter the model as they are: a record with a larger one is taken for one that cannot be decoded.
const MaxDense = 1e13

// noQuantity says what a value is, unless it is a number within ±MaxDense, or a text that is one. "" when it is.
func noQuantity(v value) string {
	switch n, ok := v.quantity(); {
	case ok && math.Abs(n) <= MaxDense:
		return ""
	case ok && !math.IsNaN(n):
		return fmt.Sprintf("%s, beyond ±%g", v, MaxDense)
	}
	return v.String() + ", no number"
}

func (v value) quantity() (float64, bool) {
	if v.numeric {
		return v.number, true
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(v.text), 64)
	return n, err == nil
}

func (v value) String() string {
	if v.numeric {
		return strconv.FormatFloat(v.number, 'g', -1, 64)
	}
	if len(v.text) > 40 {
		return strconv.Quote(v.text[:40]) + "…"
	}
	return strconv.Quote(v.text)
}
