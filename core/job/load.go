package job

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// Files are the sources that diagnostics point into, by the file name that stands in their ranges. A value given with
// -var is a source of its own, called "-var NAME".
type Files map[string]*hcl.File

// Options is what a job file depends on beside itself.
type Options struct {
	Vars      map[string]string           // -var NAME=VALUE: stronger than VarFiles
	VarFiles  []string                    // -var-file: HCL files of NAME = VALUE; the later are stronger
	LookupEnv func(string) (string, bool) // nil: the process's environment
}

const (
	mostSource  = 256 << 10 // bytes of a job file
	mostNesting = 100       // brackets inside brackets
)

// Load reads the job file at path. vars are the values of -var, varFiles the paths of -var-file. On an error the job is
// nil; warnings may come with a job. Every diagnostic has a range in one of the returned files.
func Load(path string, vars map[string]string, varFiles []string) (*Job, Files, hcl.Diagnostics) {
	return whole(Read(path, vars, varFiles))
}

// Parse is Load for a source in memory. filename stands in diagnostics, and its folder is where relative paths start.
func Parse(src []byte, filename string, opt Options) (*Job, Files, hcl.Diagnostics) {
	return whole(draft(src, filename, opt))
}

// Read is Load that gives what could be read of a job in spite of mistakes. The draft is never nil; its Job is where nothing could be read.
func Read(path string, vars map[string]string, varFiles []string) (*Draft, Files, hcl.Diagnostics) {
	src, err := readRegular(path, mostSource)
	if err != nil {
		return &Draft{}, Files{}, hcl.Diagnostics{unreadable("job file", path, err)}
	}
	return ReadText(src, path, vars, varFiles)
}

// ReadText is Read of what a file said when src was read from it.
func ReadText(src []byte, path string, vars map[string]string, varFiles []string) (*Draft, Files, hcl.Diagnostics) {
	return draft(src, path, Options{Vars: vars, VarFiles: varFiles})
}

// whole is the job of a draft without mistakes.
func whole(d *Draft, files Files, diags hcl.Diagnostics) (*Job, Files, hcl.Diagnostics) {
	if diags.HasErrors() {
		return nil, files, diags
	}
	return d.Job, files, diags
}

func draft(src []byte, filename string, opt Options) (*Draft, Files, hcl.Diagnostics) {
	files := Files{}
	body, diags := parseBody(src, filename, files)
	if diags.HasErrors() {
		return &Draft{Torn: true}, files, diags
	}
	if opt.LookupEnv == nil {
		opt.LookupEnv = os.LookupEnv
	}
	dir, err := filepath.Abs(filepath.Dir(filename))
	if err != nil {
		return &Draft{}, files, hcl.Diagnostics{unreadable("folder of", filename, err)}
	}
	top := hcl.Range{Filename: filename, Start: hcl.InitialPos, End: hcl.InitialPos}
	d := &decoder{
		job:   &Job{File: filename, Dir: dir, ranges: map[string]hcl.Range{"": top}},
		src:   src,
		files: files,
		root:  schema,
		scope: &scope{functions: functions(dir, opt.LookupEnv)},
		bad:   map[string]bool{},
		spans: map[string]hcl.Range{},
	}
	d.file(body, opt, files)
	return d.draft(), files, d.sorted()
}

func unreadable(what, path string, err error) *hcl.Diagnostic {
	detail := err.Error() + "."
	if os.IsNotExist(err) {
		if detail = "No such file. Is the path right?"; what == "job file" {
			detail += " `kale init` writes a new job file."
		}
	}
	return at(hcl.DiagError, hcl.Range{Filename: path, Start: hcl.InitialPos, End: hcl.InitialPos}, fmt.Sprintf("Cannot read the %s %s", what, path), detail)
}

// parseBody parses HCL whose size and nesting are bounded, because the parser recurses.
func parseBody(src []byte, filename string, files Files) (*hclsyntax.Body, hcl.Diagnostics) {
	files[filename] = &hcl.File{Bytes: src}
	if len(src) > mostSource {
		r := hcl.Range{Filename: filename, Start: hcl.InitialPos, End: hcl.InitialPos}
		return nil, hcl.Diagnostics{at(hcl.DiagError, r, "File too large", fmt.Sprintf("%d bytes: a job file has at most %d KiB. Is this a job file?", len(src), mostSource>>10))}
	}
	if bytes.IndexByte(src, 0) >= 0 {
		r := hcl.Range{Filename: filename, Start: hcl.InitialPos, End: hcl.InitialPos}
		files[filename] = &hcl.File{} // nobody wants to see it
		return nil, hcl.Diagnostics{at(hcl.DiagError, r, "Not a text", "The file holds zero bytes, as programs and archives do. Is this a job file?")}
	}
	if i := bytes.IndexByte(src, '\r'); i >= 0 && bytes.IndexByte(src, '\n') < 0 {
		files[filename] = &hcl.File{} // it would be shown as one line
		r := hcl.Range{Filename: filename, Start: hcl.InitialPos, End: hcl.InitialPos}
		return nil, hcl.Diagnostics{at(hcl.DiagError, r, "Lines end in a carriage return alone", `HCL's end in a line feed: tr '\r' '\n' <OLD >NEW makes such a file.`)}
	}
	if r, deep := tooDeep(src, filename); deep {
		return nil, hcl.Diagnostics{at(hcl.DiagError, r, "Nested too deeply", fmt.Sprintf("More than %d brackets stand inside each other.", mostNesting))}
	}
	file, diags := hclsyntax.ParseConfig(src, filename, hcl.InitialPos)
	if file != nil {
		files[filename] = file
	}
	if diags.HasErrors() {
		return nil, plainer(diags, src, filename)
	}
	return file.Body.(*hclsyntax.Body), diags
}

var unquoted = regexp.MustCompile(`[0-9]+[a-zA-Z]+$`)

// plainer puts the parser's errors into the order of lines, one for each, and says in plainer words what is wrong where
// job files are mistyped most. What follows a quote that is not closed, or a brace that closes nothing, is its consequence, and left out.
func plainer(diags hcl.Diagnostics, src []byte, filename string) hcl.Diagnostics {
	for _, d := range diags {
		if d.Subject == nil {
			d.Subject = &hcl.Range{Filename: filename, Start: hcl.InitialPos, End: hcl.InitialPos}
		}
	}
	InFileOrder(diags)
	var out hcl.Diagnostics
	for _, d := range diags {
		if len(out) > 0 && out[len(out)-1].Subject.Start.Line == d.Subject.Start.Line {
			continue
		}
		out = append(out, d)
		switch d.Summary {
		case "Missing newline after argument":
			if word := unquoted.Find(src[:min(d.Subject.End.Byte, len(src))]); word != nil {
				d.Summary, d.Detail = "Missing quotes", fmt.Sprintf("A number with a unit is written in quotes: %q.", word)
			}
		case "Invalid single-argument block definition", "Argument definition required":
			d.Summary, d.Detail = "More than one line is needed", "A block on one line holds one attribute. Write each attribute on a line of its own, and the closing brace too."
		case "Argument or block definition required":
			if bytes.HasPrefix(src[min(d.Subject.Start.Byte, len(src)):], []byte("}")) {
				d.Summary, d.Detail = "Nothing is open that this brace could close", unopened(src, filename)
				return out
			}
		case "Invalid multi-line string":
			d.Summary, d.Detail = "Quote not closed", "A text in quotes ends on the line on which it begins."
			return out
		}
	}
	return out
}

// unopened says what may be wrong in a source with a closing brace too many: where one stands under another column than the line of the brace that it closes,
// the one that it was meant to close is missing.
func unopened(src []byte, filename string) string {
	indent := func(r hcl.Range) int {
		line := src[bytes.LastIndexByte(src[:r.Start.Byte], '\n')+1:]
		return len(line) - len(bytes.TrimLeft(line, " \t"))
	}
	var open []hcl.Range
	tokens, _ := hclsyntax.LexConfig(src, filename, hcl.InitialPos) // the parser has reported what the lexer dislikes
	for _, token := range tokens {
		switch {
		case token.Type == hclsyntax.TokenOBrace:
			open = append(open, token.Range)
		case token.Type == hclsyntax.TokenCBrace && len(open) > 0:
			begin := open[len(open)-1]
			open = open[:len(open)-1]
			if indent(token.Range) != indent(begin) {
				return fmt.Sprintf("The } in line %d closes what line %d opens, and is indented otherwise: is the line missing above it that opens its block?", token.Range.Start.Line, begin.Start.Line)
			}
		}
	}
	return "Remove it; or is the line missing above that opens its block?"
}

func tooDeep(src []byte, filename string) (hcl.Range, bool) {
	tokens, _ := hclsyntax.LexConfig(src, filename, hcl.InitialPos) // The parser reports what the lexer dislikes.
	depth := 0
	for _, token := range tokens {
		switch token.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc,
			hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenCQuote, hclsyntax.TokenCHeredoc,
			hclsyntax.TokenTemplateSeqEnd:
			depth--
		}
		if depth > mostNesting {
			return token.Range, true
		}
	}
	return hcl.Range{}, false
}

// file decodes the top of a job file: variables, then the one job.
func (d *decoder) file(body *hclsyntax.Body, opt Options, files Files) {
	for _, a := range inOrder(body.Attributes) {
		detail := "A job file holds variable blocks and one job block."
		if home := schema.homeOf(a.Name); home != "" {
			detail = fmt.Sprintf("%q belongs in block %q, inside the job block.", a.Name, home)
		}
		d.fail(a.NameRange, fmt.Sprintf("Attribute %q outside of a block", a.Name), "%s", detail)
	}
	var jobs, variables []*hclsyntax.Block
	for _, b := range body.Blocks {
		switch b.Type {
		case "job":
			jobs = append(jobs, b)
		case "variable":
			variables = append(variables, b)
		default:
			best := Nearest(b.Type, []string{"job", "variable"})
			if best == "job" {
				jobs = append(jobs, b)
			}
			d.misplaced(b, best)
		}
	}
	d.scope.variables = d.variables(variables, opt, files)
	if len(jobs) == 0 {
		if len(d.diags) == 0 || !d.diags.HasErrors() {
			d.fail(d.job.ranges[""], "No job in this file", `Write job "NAME" { … }. "kale init" writes a first one from a topic.`)
		}
		return
	}
	for _, b := range jobs[1:] {
		d.fail(b.DefRange(), "Second job in this file", "A file holds one job; the first is on line %d. Move this one into a file of its own.", jobs[0].DefRange().Start.Line)
	}
	d.jobBlock(jobs[0])
}

func (d *decoder) misplaced(b *hclsyntax.Block, best string) {
	switch {
	case b.Type == "pool":
		d.fail(b.TypeRange, "A pool in a job file", "A pool has a file of its own, and jobs are run in it with kale run -pool POOL.hcl JOB.hcl [JOB.hcl …].")
	case best != "":
		d.fail(b.TypeRange, fmt.Sprintf("Unknown block %q", b.Type), "Did you mean %q?", best)
	case schema.homeOf(b.Type) != "":
		d.fail(b.TypeRange, fmt.Sprintf("Block %q outside of the job", b.Type), "It belongs in block %q: a job file holds variable blocks and one job block.", schema.homeOf(b.Type))
	default:
		d.fail(b.TypeRange, fmt.Sprintf("Unknown block %q", b.Type), "A job file holds variable blocks and one job block.")
	}
}

var jobName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckName says what is wrong with the name of a job, or "".
func CheckName(name string) string {
	if jobName.MatchString(name) {
		return ""
	}
	return "Use at most 63 lower-case letters, digits and dashes, with a letter or digit at both ends: processes and folders are named after it."
}

func (d *decoder) jobBlock(b *hclsyntax.Block) {
	d.job.ranges[""] = b.DefRange()
	d.spans[""] = b.Range()
	label, ok := d.label(schema, b)
	why := CheckName(label)
	d.bad["name"] = !ok || why != ""
	if ok {
		d.job.ranges["name"] = b.LabelRanges[0]
		if why != "" {
			d.fail(b.LabelRanges[0], fmt.Sprintf("Unsuitable job name %q", label), "%s", why)
		}
	}
	d.block(schema, b.Body, label, "")
	d.check()
}

// variables decodes the variable blocks and gives each its value: from -var, from a -var-file, or its default.
// A variable without a usable value is unknown, so that its uses are not reported again.
func (d *decoder) variables(blocks []*hclsyntax.Block, opt Options, files Files) map[string]cty.Value {
	inputs := d.inputs(opt, files)
	values := map[string]cty.Value{}
	declared := map[string]hcl.Range{}
	times := map[string]int{}
	for _, b := range blocks {
		if len(b.Labels) == 1 {
			times[b.Labels[0]]++
		}
	}
	for _, b := range blocks {
		if len(b.Labels) != 1 {
			d.fail(b.DefRange(), `Block "variable" needs one label`, `Write variable "NAME" { … }.`)
			continue
		}
		name := b.Labels[0]
		if first, twice := declared[name]; twice {
			d.fail(b.DefRange(), fmt.Sprintf("Second variable %q", name), "The first is on line %d. Merge the two.", first.Start.Line)
			continue
		}
		if !hclsyntax.ValidIdentifier(name) {
			d.fail(b.LabelRanges[0], fmt.Sprintf("Unsuitable variable name %q", name), "Use letters, digits, _ and -, with a letter first.")
			continue
		}
		declared[name] = b.DefRange()
		in, given := inputs[name]
		values[name] = d.variable(b, in, given, times[name] > 1)
	}
	names := slices.Sorted(maps.Keys(values))
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		if _, ok := declared[name]; !ok {
			d.fail(inputs[name].name, fmt.Sprintf("Unknown variable %q", name), "%sThe job file declares %s.", DidYouMean(name, names), listOr(names, "no variables"))
		}
	}
	return values
}

// variable is the value of one. Of one that is declared twice it is not said that it has none: that may stand in the other.
func (d *decoder) variable(b *hclsyntax.Block, in input, given, twice bool) cty.Value {
	known := []string{"default", "description", "type"}
	for _, a := range inOrder(b.Body.Attributes) {
		if !slices.Contains(known, a.Name) {
			d.fail(a.NameRange, fmt.Sprintf("Unknown attribute %q", a.Name), "%sA variable has default, description and type.", DidYouMean(a.Name, known))
		}
	}
	for _, inner := range b.Body.Blocks {
		d.fail(inner.DefRange(), fmt.Sprintf("Unknown block %q", inner.Type), "A variable has default, description and type.")
	}
	kind, value, ok := cty.DynamicPseudoType, cty.NilVal, true
	if a := b.Body.Attributes["type"]; a != nil {
		t, diags := typeexpr.TypeConstraint(a.Expr)
		for _, diag := range diags {
			diag.Detail = DidYouMean(hcl.ExprAsKeyword(a.Expr), variableTypes) + diag.Detail + " " + typeForms
		}
		d.diags = append(d.diags, diags...)
		if diags.HasErrors() {
			return cty.DynamicVal
		}
		kind = t
	}
	if a := b.Body.Attributes["default"]; a != nil {
		value, ok = d.variableDefault(a, kind)
		if kind == cty.DynamicPseudoType && ok && !value.IsNull() {
			kind = value.Type()
		}
	}
	switch {
	case given:
		if kind.IsTupleType() || kind.IsObjectType() {
			kind = cty.DynamicPseudoType // A list of another length is as good as the default's.
			if in.expr == nil {
				in.expr, ok = d.parseInput(in)
				if !ok {
					return cty.DynamicVal
				}
			}
		}
		v, diags := in.value(d.scope, kind)
		d.diags = append(d.diags, diags...)
		return v
	case !ok:
		return cty.DynamicVal
	case value == cty.NilVal && twice:
		return cty.DynamicVal
	case value == cty.NilVal:
		name := b.Labels[0]
		d.fail(b.DefRange(), fmt.Sprintf("Variable %q has no value", name), "Give it one with -var %s=VALUE, with a line %s = … in a -var-file, or with a default here.", name, name)
		return cty.DynamicVal
	}
	return value
}

func (d *decoder) variableDefault(a *hclsyntax.Attribute, kind cty.Type) (cty.Value, bool) {
	value, diags := (&scope{functions: d.scope.functions}).value(a.Expr)
	d.diags = append(d.diags, diags...)
	if diags.HasErrors() {
		return cty.DynamicVal, false
	}
	converted, err := convert.Convert(value, kind)
	if err != nil {
		d.fail(a.Expr.Range(), "Default does not fit its type", "The variable is declared as %s: %s.", kind.FriendlyName(), err)
		return cty.DynamicVal, false
	}
	return converted, true
}

func (d *decoder) parseInput(in input) (hclsyntax.Expression, bool) {
	expr, diags := hclsyntax.ParseExpression([]byte(in.text), in.at.Filename, in.at.Start)
	d.diags = append(d.diags, diags...)
	return expr, !diags.HasErrors()
}

// inputs gathers the values given from outside, the strongest last.
func (d *decoder) inputs(opt Options, files Files) map[string]input {
	inputs := map[string]input{}
	for _, path := range opt.VarFiles {
		src, err := readRegular(path, mostSource)
		if err != nil {
			d.add(unreadable("variable file", path, err))
			continue
		}
		body, diags := parseBody(src, path, files)
		d.diags = append(d.diags, diags...)
		if body == nil {
			continue
		}
		for _, b := range body.Blocks {
			d.fail(b.DefRange(), fmt.Sprintf("Block %q in a variable file", b.Type), "A variable file holds lines NAME = VALUE only.")
		}
		for _, a := range inOrder(body.Attributes) {
			inputs[a.Name] = input{expr: a.Expr, at: a.Expr.Range(), name: a.NameRange}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(opt.Vars)) {
		filename, text := "-var "+name, opt.Vars[name]
		prefix := name + "="
		files[filename] = &hcl.File{Bytes: []byte(prefix + text)}
		begin := hcl.Pos{Line: 1, Column: len(prefix) + 1, Byte: len(prefix)}
		end := begin
		if first, _, _ := strings.Cut(text, "\n"); first != "" {
			end.Column += len([]rune(first))
			end.Byte += len(first)
		}
		if _, deep := tooDeep([]byte(text), filename); deep || len(text) > mostSource || bytes.ContainsRune([]byte(text), 0) {
			d.fail(hcl.Range{Filename: filename, Start: begin, End: begin}, "Unsuitable value", "It is nested too deeply, too long, or holds a zero byte.")
			continue
		}
		inputs[name] = input{text: text, at: hcl.Range{Filename: filename, Start: begin, End: end},
			name: hcl.Range{Filename: filename, Start: hcl.InitialPos, End: hcl.Pos{Line: 1, Column: len(prefix), Byte: len(name)}}}
	}
	return inputs
}

// sorted returns the diagnostics by file and position, the job file's own order.
func (d *decoder) sorted() hcl.Diagnostics {
	InFileOrder(d.diags)
	return d.diags
}

// InFileOrder sorts diagnostics as what they are about stands in its files; what is about no file comes last.
func InFileOrder(diags hcl.Diagnostics) {
	slices.SortStableFunc(diags, func(a, b *hcl.Diagnostic) int {
		if a.Subject == nil || b.Subject == nil {
			return cmp.Compare(unplaced(a), unplaced(b))
		}
		if c := strings.Compare(a.Subject.Filename, b.Subject.Filename); c != 0 {
			return c
		}
		return a.Subject.Start.Byte - b.Subject.Start.Byte
	})
}

func unplaced(d *hcl.Diagnostic) int {
	if d.Subject == nil {
		return 1
	}
	return 0
}

func listOr(names []string, none string) string {
	if len(names) == 0 {
		return none
	}
	return strings.Join(names, ", ")
}

// typeForms say how a variable's type is written.
const typeForms = "Write string, number, bool or any, or one of them as in list(string), set(number) or map(bool)."

// variableTypes are the types of variables that are one word.
var variableTypes = []string{"string", "number", "bool", "any"}
