package backend

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

// Severity says whether a diagnostic forbids to go on.
type Severity int

// The severities.
const (
	SeverityError Severity = iota + 1
	SeverityWarning
)

// Position is a place in a file: line and column from 1, byte from 0.
type Position struct{ Line, Column, Byte int }

// Range is a part of a file.
type Range struct {
	Filename   string
	Start, End Position
}

// SharedRange is where the job file names the folder Shared[i]; otherwise where that is not told.
func (cfg Config) SharedRange(i int, otherwise hcl.Range) hcl.Range {
	if i >= len(cfg.SharedAt) || cfg.SharedAt[i].Start.Line == 0 {
		return otherwise
	}
	at := cfg.SharedAt[i]
	return hcl.Range{Filename: at.Filename, Start: hcl.Pos(at.Start), End: hcl.Pos(at.End)}
}

// Diagnostic is one mistake in a backend block: short summary, a detail that says the fix, and where.
type Diagnostic struct {
	Severity   Severity
	Summary    string
	Detail     string
	Filename   string
	Start, End Position
}

// Diagnostics is everything that is wrong with a block.
type Diagnostics []Diagnostic

// HasErrors reports whether any of them is an error.
func (ds Diagnostics) HasErrors() bool {
	for _, d := range ds {
		if d.Severity != SeverityWarning {
			return true
		}
	}
	return false
}

// Err gives the errors among them as one InvalidField error, or nil.
func (ds Diagnostics) Err() error {
	var lines []string
	for _, d := range ds {
		if d.Severity != SeverityWarning {
			lines = append(lines, fmt.Sprintf("%s:%d,%d: %s; %s", d.Filename, d.Start.Line, d.Start.Column, d.Summary, d.Detail))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return Invalidf("backend", "%s", strings.Join(lines, "\n"))
}

// HCL gives them in HCL's form, to be printed beside those of the rest of the job file.
func (ds Diagnostics) HCL() hcl.Diagnostics {
	var out hcl.Diagnostics
	for _, d := range ds {
		severity := hcl.DiagError
		if d.Severity == SeverityWarning {
			severity = hcl.DiagWarning
		}
		out = append(out, &hcl.Diagnostic{
			Severity: severity, Summary: d.Summary, Detail: d.Detail,
			Subject: &hcl.Range{Filename: d.Filename, Start: hcl.Pos(d.Start), End: hcl.Pos(d.End)},
		})
	}
	return out
}

// FromHCL takes HCL's diagnostics into the contract's form. One without a place gets the block's start. Of a value that could not be read for its type, nothing
// more is said.
func FromHCL(cfg Config, diags hcl.Diagnostics) Diagnostics {
	var out Diagnostics
	var unread []hcl.Range
	for _, d := range diags {
		if d.Subject != nil && slices.ContainsFunc(unread, d.Subject.Overlaps) {
			continue
		}
		if d.Subject != nil && strings.Contains(d.Summary, isNeeded) {
			unread = append(unread, *d.Subject)
		}
		start := Position(cfg.startPos())
		o := Diagnostic{
			Severity: SeverityError, Summary: d.Summary, Detail: d.Detail,
			Filename: cfg.Filename, Start: start, End: start,
		}
		if d.Severity == hcl.DiagWarning {
			o.Severity = SeverityWarning
		}
		if d.Subject != nil {
			o.Filename, o.Start, o.End = d.Subject.Filename, Position(d.Subject.Start), Position(d.Subject.End)
		}
		out = append(out, o)
	}
	return out
}

func (cfg Config) startPos() hcl.Pos {
	return hcl.Pos{Line: max(cfg.StartLine, 1), Column: max(cfg.StartColumn, 1), Byte: cfg.StartByte}
}

// DecodeBlock reads a backend block into target, a pointer to a struct with gohcl tags. Its expressions may use var
// (Config.Variables) and env("NAME"). Positions are those of the file that the block comes from.
func DecodeBlock(cfg Config, target any) hcl.Diagnostics {
	file, diags := hclsyntax.ParseConfig(cfg.Source, cfg.Filename, cfg.startPos())
	if diags.HasErrors() {
		return diags
	}
	evalCtx := &hcl.EvalContext{Functions: map[string]function.Function{"env": envFunction}}
	if len(cfg.Variables) > 0 {
		vars, err := decodeVariables(cfg.Variables)
		if err != nil {
			return append(diags, Mistake(hcl.Range{}, "Variables cannot be read", "The values of the job's variables did not reach the backend as a JSON object: %v", err))
		}
		evalCtx.Variables = map[string]cty.Value{"var": vars}
	}
	body, _ := file.Body.(*hclsyntax.Body)
	wrong := slices.DeleteFunc(gohcl.DecodeBody(body, evalCtx, target), func(d *hcl.Diagnostic) bool {
		return d.Summary == "Unsuitable value type" && strings.HasSuffix(d.Detail, "value must be known") // it could not be evaluated, which is said beside it
	})
	return append(diags, inOurWords(wrong, body, target)...)
}

// hclWords are HCL's words for what a block has and may not, or lacks, with what it suggests.
var hclWords = regexp.MustCompile(`^(?:An argument named|Blocks of type|The argument) "([^"]*)" (?:is not expected here|are not expected here|is required, but no definition was found)\.\s*(.*)$`)

// hclNeeds are HCL's words for a value of another type than the attribute's: the element of which it is said, what it needs, and what it is.
var hclNeeds = regexp.MustCompile(`^Unsuitable value: (?:(element "[^"]*"): )?(?:(?:a )?(\S+)(?: of \S+)?(?: is)? required(?:, but have (.*))?|value must be a (whole number)\b.*)$`)

// inOurWords says of what is unknown, missing or of another type in a block what is said of a job file's other blocks.
func inOurWords(diags hcl.Diagnostics, body *hclsyntax.Body, target any) hcl.Diagnostics {
	for _, d := range diags {
		if m := hclNeeds.FindStringSubmatch(d.Detail); m != nil {
			d.Summary, d.Detail = needed(m[1], m[2]+m[4], m[3])
			continue
		}
		m := hclWords.FindStringSubmatch(d.Detail)
		if m == nil {
			continue
		}
		name, hint := m[1], m[2]
		_, direct := body.Attributes[name]
		kind := "attribute"
		switch d.Summary {
		case "Missing required argument":
			d.Summary, d.Detail = fmt.Sprintf("Missing attribute %q", name), fmt.Sprintf("Add a line %s = ….", name)
			continue
		case "Unsupported block type":
			kind, direct = "block", slices.ContainsFunc(body.Blocks, func(b *hclsyntax.Block) bool { return b.Type == name })
		}
		d.Summary, d.Detail = fmt.Sprintf("Unknown %s %q", kind, name), hint
		if direct {
			d.Detail = strings.TrimSpace(hint + " " + taken(target))
		}
	}
	return diags
}

// isNeeded is in the summary of a value of another type than its attribute's.
const isNeeded = " is needed "

// needed says what to write where an attribute, or an element of it, needs a value of another type than is there.
func needed(element, what, have string) (summary, detail string) {
	summary, detail = "Another value"+isNeeded+"here", "It must be a "+what+"."
	for _, kind := range []struct{ hcl, needs, write string }{
		{"number", "A number", "one number, without quotes"},
		{"whole number", "A whole number", "one without a fraction"},
		{"bool", "true or false", "one of the two, without quotes"},
		{"string", "A string", `it in quotes, as in "x"`},
		{"list", "A list", `it in brackets, as in ["x", "y"]`},
		{"set", "A list", `it in brackets, as in ["x", "y"]`},
		{"map", "A map", `it in braces, as in { NAME = "value" }`},
		{"object", "A map", `it in braces, as in { NAME = "value" }`},
	} {
		if what == kind.hcl {
			summary, detail = kind.needs+isNeeded+"here", "Write "+kind.write+"."
		}
	}
	if have = strings.NewReplacer("tuple", "a list", "list", "a list", "object", "a map", "map", "a map", "bool", "true or false", "number", "a number", "string", "a string").Replace(have); have != "" {
		detail = "This is " + have + ": w" + strings.TrimPrefix(detail, "W")
	}
	if element != "" {
		summary = strings.Replace(summary, "here", "in "+element, 1)
	}
	return summary, detail
}

// OnlyUnknown reports whether all that DecodeBlock found wrong are attributes and blocks that are not known: what is known was read, and can be checked.
func OnlyUnknown(diags hcl.Diagnostics) bool {
	for _, d := range diags {
		if !strings.HasPrefix(d.Summary, "Unknown attribute ") && !strings.HasPrefix(d.Summary, "Unknown block ") {
			return false
		}
	}
	return true
}

// taken lists what a block may have.
func taken(target any) string {
	var names []string
	schema, _ := gohcl.ImpliedBodySchema(target)
	for _, a := range schema.Attributes {
		names = append(names, a.Name)
	}
	for _, b := range schema.Blocks {
		names = append(names, b.Type+" { … }")
	}
	if len(names) == 0 {
		return "Nothing can be set here."
	}
	slices.Sort(names)
	return "There are: " + strings.Join(names, ", ") + "."
}

func decodeVariables(raw []byte) (cty.Value, error) {
	typ, err := ctyjson.ImpliedType(raw)
	if err != nil {
		return cty.NilVal, err
	}
	if !typ.IsObjectType() {
		return cty.NilVal, fmt.Errorf("it is %s", typ.FriendlyName())
	}
	return ctyjson.Unmarshal(raw, typ)
}

// envFunction is env(name): the variable's value in the plugin's environment, which is the scheduler's.
var envFunction = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "name", Type: cty.String}},
	Type:   function.StaticReturnType(cty.String),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		name := args[0].AsString()
		value, ok := os.LookupEnv(name)
		if !ok {
			return cty.NilVal, function.NewArgErrorf(0, "the environment has no variable %q; set it", name)
		}
		return cty.StringVal(value), nil
	},
})

// Mistake is the diagnostic of an attribute that is wrong: a short summary, and a detail (a format) that says how to mend it. subject is where it stands
// in the block; an attribute that is not there has no place.
func Mistake(subject hcl.Range, summary, detail string, args ...any) *hcl.Diagnostic {
	d := &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(detail, args...)}
	if subject.Filename != "" {
		d.Subject = subject.Ptr()
	}
	return d
}
