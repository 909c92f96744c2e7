package job

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// field is one kind of attribute: it names itself and its limits for the reference, and moves a value into a Job.
type field interface {
	kind() string
	limits() string
	// set stores v (known, not null; a list may have elements that are not known) in j. Problems leave j as it was, save a list of names, which has "" in the place of each that could not be read.
	set(dir string, j *Job, v cty.Value) []*problem
}

// problem is what is wrong with a value. element is the 1-based element of a list that it is about; 0 is the whole.
type problem struct {
	summary, detail string
	element         int
	part            string     // the element's part that is wrong, where it is one
	parts           []*problem // each of a part of the element; nothing else is set then
	at              *hcl.Range // where it stands, if not in the job file; source is that file
	source          []byte
	empty           bool // a text that says nothing: the detail lacks what else could be done than to write one
}

func wrong(summary, detail string, args ...any) *problem {
	return &problem{summary: summary, detail: fmt.Sprintf(detail, args...)}
}

// reader turns a value into a T; dir is the folder that relative paths start from.
type reader[T any] func(dir string, v cty.Value) (T, *problem)

// scalar is a field of one value.
type scalar[T any] struct {
	name, bounds string
	dst          func(*Job) *T
	read         reader[T]
}

func (s scalar[T]) kind() string   { return s.name }
func (s scalar[T]) limits() string { return s.bounds }

func (s scalar[T]) set(dir string, j *Job, v cty.Value) []*problem {
	value, p := s.read(dir, v)
	if p != nil {
		return []*problem{p}
	}
	*s.dst(j) = value
	return nil
}

// list is a field of several values. With single set, one value may stand alone, without brackets.
type list[T any] struct {
	name, bounds string
	single       bool
	partly       bool // what could be read of it is stored, so that the rest of it is checked too
	dst          func(*Job) *[]T
	read         reader[T]
}

func (l list[T]) kind() string   { return l.name }
func (l list[T]) limits() string { return l.bounds }

func (l list[T]) set(dir string, j *Job, v cty.Value) []*problem {
	if t := v.Type(); !t.IsTupleType() && !t.IsListType() && !t.IsSetType() {
		if !l.single {
			if !t.IsPrimitiveType() {
				return []*problem{wrong("A list is needed here", "This is %s: use brackets, as in [ … ].", typeName(v))}
			}
			return []*problem{wrong("A list is needed here", "Write it in brackets: [%s].", show(v))}
		}
		v = cty.TupleVal([]cty.Value{v})
	}
	values := []T{}
	var problems []*problem
	unread := false
	for it, n := v.ElementIterator(), 1; it.Next(); n++ {
		_, element := it.Element()
		if !element.IsKnown() { // reported already
			unread = true
			values = append(values, *new(T))
			continue
		}
		if element.IsNull() {
			problems = append(problems, &problem{summary: "Empty element in a list", detail: "Give it a value or remove it.", element: n})
			values = append(values, *new(T))
			continue
		}
		value, p := l.read(dir, element)
		if p != nil {
			each := []*problem{p}
			if len(p.parts) > 0 {
				each = p.parts
			}
			for _, p := range each {
				p.element = n
			}
			problems = append(problems, each...)
		}
		values = append(values, value)
	}
	if problems == nil && !unread || l.partly {
		*l.dst(j) = values
	}
	return problems
}

// text reads a string that passes check (nil: not empty). check returns what is wrong with it, or "".
func text(dst func(*Job) *string, bounds string, check func(string) string) field {
	return scalar[string]{"string", bounds, dst, readText(check)}
}

func texts(dst func(*Job) *[]string, bounds string, check func(string) string) field {
	return list[string]{name: "list of strings", bounds: bounds, dst: dst, read: readText(check)}
}

// names reads names, each of them written as a text: a number is none.
func names(dst func(*Job) *[]string, bounds string) field {
	return list[string]{name: "list of strings", bounds: bounds, partly: true, dst: dst, read: func(dir string, v cty.Value) (string, *problem) {
		if v.Type() == cty.Number {
			return "", wrong("A string is needed here", "This is a number: write a name in quotes, as in %q.", show(v))
		}
		return readText(nil)(dir, v)
	}}
}

func readText(check func(string) string) reader[string] {
	return func(_ string, v cty.Value) (string, *problem) {
		s, p := asString(v)
		if p != nil {
			return "", p
		}
		if strings.TrimSpace(s) == "" {
			return "", &problem{summary: "Empty string", detail: "Write a value between the quotes", empty: true}
		}
		if check != nil {
			if advice := check(s); advice != "" {
				return "", wrong(fmt.Sprintf("Unsuitable value %q", s), "%s", advice)
			}
		}
		return s, nil
	}
}

func secret(dst func(*Job) *Secret) field {
	return scalar[Secret]{"string", "never shown", dst, func(_ string, v cty.Value) (Secret, *problem) {
		s, p := asString(v)
		if p != nil || s == "" {
			return Secret{}, wrong("Empty or unsuitable secret", `Write a string that is not empty; env("NAME") or file("path") keep it out of the job file.`)
		}
		return NewSecret(s), nil
	}}
}

func boolean(dst func(*Job) *bool) field {
	return scalar[bool]{"true or false", "", dst, func(_ string, v cty.Value) (bool, *problem) {
		b, err := convert.Convert(v, cty.Bool)
		if err != nil || b.IsNull() || !b.IsKnown() {
			return false, wrong("true or false is needed here", "%s is %s.", show(v), typeName(v))
		}
		return b.True(), nil
	}}
}

// choice reads one of values. later holds values that are understood but not built yet, with what is to come.
func choice(dst func(*Job) *string, values []string, later map[string]string) field {
	return scalar[string]{"string", oneOf(values), dst, func(_ string, v cty.Value) (string, *problem) {
		s, p := asString(v)
		if p != nil {
			return "", p
		}
		for _, value := range values {
			if s == value {
				return s, nil
			}
		}
		if advice, ok := later[s]; ok {
			return "", wrong(fmt.Sprintf("%q is not supported yet", s), "%s", advice)
		}
		return "", wrong(fmt.Sprintf("Unknown value %q", s), "%sUse %s.", DidYouMean(s, values), oneOf(values))
	}}
}

func integer[T int | int64](dst func(*Job) *T, least, most T) field {
	return scalar[T]{"whole number", between(int64(least), int64(most)), dst, readInteger(least, most)}
}

func integers(dst func(*Job) *[]int, least, most int) field {
	return list[int]{"list of whole numbers", "each " + between(int64(least), int64(most)), false, false, dst, readInteger(least, most)}
}

func readInteger[T int | int64](least, most T) reader[T] {
	return func(_ string, v cty.Value) (T, *problem) {
		f, p := asNumber(v)
		if p != nil {
			return 0, p
		}
		if f != math.Trunc(f) {
			return 0, wrong("A whole number is needed here", "%g is not whole: use %s.", f, between(int64(least), int64(most)))
		}
		if f < float64(least) || f > float64(most) {
			shown := strconv.FormatFloat(f, 'g', -1, 64)
			if math.Abs(f) < 1e15 {
				shown = strconv.FormatFloat(f, 'f', -1, 64)
			}
			return 0, wrong("Number out of range", "%s is out of range: use %s.", shown, between(int64(least), int64(most)))
		}
		return T(f), nil
	}
}

// bound is the range of a number; over and under exclude its ends.
type bound struct {
	least, most float64
	over, under bool
}

func (b bound) holds(f float64) bool {
	return f >= b.least && f <= b.most && (!b.over || f > b.least) && (!b.under || f < b.most)
}

func (b bound) String() string {
	low, high := fmt.Sprintf("at least %g", b.least), fmt.Sprintf("at most %g", b.most)
	if b.over {
		low = fmt.Sprintf("above %g", b.least)
	}
	if b.under {
		high = fmt.Sprintf("below %g", b.most)
	}
	if b.most >= math.MaxFloat64 {
		return low
	}
	return low + " and " + high
}

func number(dst func(*Job) *float64, b bound) field {
	return scalar[float64]{"number", b.String(), dst, readNumber(b)}
}

func numbers(dst func(*Job) *[]float64, b bound) field {
	return list[float64]{"list of numbers", "each " + b.String(), false, false, dst, readNumber(b)}
}

func readNumber(b bound) reader[float64] {
	return func(_ string, v cty.Value) (float64, *problem) {
		f, p := asNumber(v)
		if p == nil && !b.holds(f) {
			p = wrong("Number out of range", "%g is out of range: use a number %s.", f, b)
		}
		return f, p
	}
}

func duration(dst func(*Job) *time.Duration, least, most time.Duration) field {
	return scalar[time.Duration]{"duration", spans(least, most), dst, readDuration(least, most)}
}

func durations(dst func(*Job) *[]time.Duration, least, most time.Duration) field {
	return list[time.Duration]{"duration or list of them", "each " + spans(least, most), true, false, dst, readDuration(least, most)}
}

func readDuration(least, most time.Duration) reader[time.Duration] {
	return func(_ string, v cty.Value) (time.Duration, *problem) {
		if v.Type() == cty.Number {
			return 0, wrong("Duration without a unit", "%s: quote it with a unit, %s.", show(v), durationUnits)
		}
		s, p := asString(v)
		if p != nil {
			return 0, p
		}
		if strings.HasPrefix(strings.TrimSpace(s), "-") {
			return 0, wrong("Negative duration", "%q is negative: use %s.", s, spans(least, most))
		}
		d, err := ParseDuration(strings.TrimSpace(s))
		if err != nil {
			return 0, wrong("Invalid duration", "%s.", err)
		}
		if d < least || d > most {
			return 0, wrong("Duration out of range", "%q is out of range: use %s.", s, spans(least, most))
		}
		return d, nil
	}
}

func size(dst func(*Job) *int64, least, most int64) field {
	bounds := fmt.Sprintf("%d MiB to %d TiB", least>>20, most>>40)
	return scalar[int64]{"size", bounds, dst, func(_ string, v cty.Value) (int64, *problem) {
		if v.Type() == cty.Number {
			return 0, wrong("Size without a unit", "%s: quote it with a unit, %s.", show(v), sizeUnits)
		}
		s, p := asString(v)
		if p != nil {
			return 0, p
		}
		n, err := ParseSize(strings.TrimSpace(s))
		if err != nil {
			return 0, wrong("Invalid size", "%s.", err)
		}
		if n < least || n > most {
			return 0, wrong("Size out of range", "%q is out of range: use %s.", s, bounds)
		}
		return n, nil
	}}
}

// path reads a path and makes it absolute. What must exist is looked for, and must be an ordinary file.
func path(dst func(*Job) *string, exists bool) field {
	bounds := "a folder; it is made when it is absent"
	if exists {
		bounds = "a file that exists"
	}
	return scalar[string]{"path", bounds, dst, readPath(exists)}
}

// forecaster reads "seasonal", "ensemble" or the path of a model file.
func forecaster(dst func(*Job) *string) field {
	return scalar[string]{"string", `"seasonal", "ensemble" or the path of an .onnx file`, dst, func(dir string, v cty.Value) (string, *problem) {
		s, p := asString(v)
		if p != nil || s == ForecastSeasonal || s == ForecastEnsemble {
			return s, p
		}
		if filepath.Ext(s) != ".onnx" {
			return "", wrong(fmt.Sprintf("Unknown forecaster %q", s), `%sUse "seasonal", "ensemble", or the path of a model file that ends in .onnx.`,
				DidYouMean(s, []string{ForecastSeasonal, ForecastEnsemble}))
		}
		full, p := readPath(false)(dir, v)
		if p != nil {
			return "", p
		}
		if _, err := os.Stat(full); os.IsNotExist(err) {
			return full, nil // it may be trained yet: core.CheckForecast says that it lacks
		}
		return full, ordinary(full)
	}}
}

// scheme is how a URL begins.
var scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

func readPath(exists bool) reader[string] {
	return func(dir string, v cty.Value) (string, *problem) {
		s, p := readText(nil)(dir, v)
		if p != nil {
			return "", p
		}
		if strings.ContainsRune(s, 0) {
			return "", wrong("Unsuitable path", "A path cannot hold a zero byte.")
		}
		if scheme.MatchString(s) {
			return "", wrong("A URL is no path", "%q is a URL, and this is a path in a file system: mount the bucket or the share, and give the path that it has there.", s)
		}
		full, err := atHome(s)
		if err != nil {
			return "", wrong("Unsuitable path", "%s.", err)
		}
		if !filepath.IsAbs(full) {
			full = filepath.Join(dir, full)
		}
		if !exists {
			return full, nil
		}
		return full, ordinary(full)
	}
}

// ordinary says why a path is not one of a file that can be read; nil: it is.
func ordinary(full string) *problem {
	info, err := os.Stat(full)
	switch {
	case err != nil && os.IsNotExist(err):
		return wrong("No such file", "%s does not exist. Relative paths start at the job file's folder.", full)
	case err != nil:
		return wrong("Unreadable file", "%s: %s.", full, err)
	case !info.Mode().IsRegular():
		return wrong("Not a file", "%s is not an ordinary file.", full)
	}
	return nil
}

// start reads where a job without a checkpoint begins.
func start(dst func(*Job) *Start) field {
	const forms = `"latest", "earliest", a duration ago such as "-10m", or a time such as "2026-01-31T06:00:00Z"`
	return scalar[Start]{"string", forms, dst, func(_ string, v cty.Value) (Start, *problem) {
		s, p := asString(v)
		if p != nil {
			return Start{}, p
		}
		if s == StartLatest || s == StartEarliest {
			return Start{Kind: s}, nil
		}
		if ago, found := strings.CutPrefix(s, "-"); found {
			d, err := ParseDuration(ago)
			if err != nil {
				return Start{}, wrong("Invalid start", "%s.", err)
			}
			return Start{Kind: StartAgo, Ago: d}, nil
		}
		if _, err := ParseDuration(s); err == nil {
			return Start{}, wrong("Start lies in the future", "To begin in the past, write %q.", "-"+s)
		}
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return Start{}, wrong(fmt.Sprintf("Invalid start %q", s), "%sUse %s.", DidYouMean(s, []string{StartLatest, StartEarliest}), forms)
		}
		return Start{Kind: StartTime, Time: t}, nil
	}}
}

func asString(v cty.Value) (string, *problem) {
	s, err := convert.Convert(v, cty.String)
	if err != nil || s.IsNull() || !s.IsKnown() || v.Type() == cty.Bool {
		return "", wrong("A string is needed here", "This is %s: write one text in quotes.", typeName(v))
	}
	return s.AsString(), nil
}

func asNumber(v cty.Value) (float64, *problem) {
	n, err := convert.Convert(v, cty.Number)
	if err != nil || n.IsNull() || !n.IsKnown() {
		return 0, wrong("A number is needed here", "This is %s: write one number, without quotes.", typeName(v))
	}
	f, _ := n.AsBigFloat().Float64()
	if n.AsBigFloat().IsInf() { // which no number that is written is
		return 0, wrong("Division by zero", "Nothing comes of a division by zero. Write the number itself.")
	}
	if math.IsInf(f, 0) {
		return 0, wrong("Number out of range", "The number is larger than any that can be used here.")
	}
	return f, nil
}

// typeName says what kind of value v is, in the words of Reference.
func typeName(v cty.Value) string {
	switch t := v.Type(); {
	case t == cty.String:
		return "a string"
	case t == cty.Number:
		return "a number"
	case t == cty.Bool:
		return "true or false"
	case t.IsObjectType() || t.IsMapType():
		return "an object"
	case t.IsTupleType() || t.IsListType() || t.IsSetType():
		return "a list"
	}
	return "nothing that can be used here"
}

// show writes a value as a person would, short.
func show(v cty.Value) string {
	s, err := convert.Convert(v, cty.String)
	if err != nil || s.IsNull() || !s.IsKnown() {
		return typeName(v)
	}
	out := s.AsString()
	if len(out) > 40 {
		out = strings.ToValidUTF8(out[:40], "") + "…"
	}
	if v.Type() == cty.String {
		return fmt.Sprintf("%q", out)
	}
	return out
}

func between(least, most int64) string {
	if most >= math.MaxInt32 {
		return fmt.Sprintf("%d or more", least)
	}
	return fmt.Sprintf("%d to %d", least, most)
}

func spans(least, most time.Duration) string {
	if most >= forever {
		return FormatDuration(least) + " or more"
	}
	return FormatDuration(least) + " to " + FormatDuration(most)
}

func oneOf(values []string) string {
	quoted := make([]string, len(values))
	for i, value := range values {
		quoted[i] = fmt.Sprintf("%q", value)
	}
	if len(quoted) < 2 {
		return strings.Join(quoted, "")
	}
	return strings.Join(quoted[:len(quoted)-1], ", ") + " or " + quoted[len(quoted)-1]
}
