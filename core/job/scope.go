package job

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
)

// scope is what expressions may refer to: variables as var.NAME, and functions.
type scope struct {
	functions map[string]function.Function
	variables map[string]cty.Value // nil: no variables may be used here
}

// value evaluates an expression. References are checked first, because we know better than the evaluator what may have
// been meant.
//
// Of a list, the elements that have no value are unknown: the others can be looked at.
func (s *scope) value(expr hclsyntax.Expression) (cty.Value, hcl.Diagnostics) {
	var diags hcl.Diagnostics
	if list, is := expr.(*hclsyntax.TupleConsExpr); is {
		values := make([]cty.Value, len(list.Exprs))
		for i, e := range list.Exprs {
			var more hcl.Diagnostics
			values[i], more = s.value(e)
			diags = append(diags, more...)
			if more.HasErrors() {
				values[i] = cty.DynamicVal
			}
		}
		return cty.TupleVal(values), diags
	}
	for _, traversal := range expr.Variables() {
		if d := s.check(traversal); d != nil {
			diags = append(diags, d)
		}
	}
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	context := &hcl.EvalContext{Functions: s.functions}
	if s.variables != nil {
		context.Variables = map[string]cty.Value{"var": cty.ObjectVal(s.variables)}
	}
	value, diags := expr.Value(context)
	for _, d := range diags {
		if _, unknown := hcl.DiagnosticExtra[hclsyntax.FunctionCallUnknownDiagExtra](d); unknown {
			d.Detail += fmt.Sprintf(" There are %s.", strings.Join(slices.Sorted(maps.Keys(s.functions)), ", "))
		}
		if d.Subject == nil {
			d.Subject = expr.Range().Ptr()
		}
	}
	if !diags.HasErrors() {
		value, _ = value.UnmarkDeep()
	}
	return value, diags
}

func (s *scope) check(traversal hcl.Traversal) *hcl.Diagnostic {
	r := traversal.SourceRange()
	names := s.names()
	if root := traversal.RootName(); root != "var" {
		detail := fmt.Sprintf("Text needs quotes: %q. A variable is written var.NAME.", root)
		if slices.Contains(names, root) {
			detail = fmt.Sprintf("Write var.%s for the variable, or %q for the text.", root, root)
		}
		return at(hcl.DiagError, r, fmt.Sprintf("Unknown name %q", root), detail)
	}
	if s.variables == nil {
		return at(hcl.DiagError, r, "Variable not allowed here", "A variable's default cannot depend on another variable. Functions such as env() can be used.")
	}
	if len(traversal) < 2 {
		return nil
	}
	step, ok := traversal[1].(hcl.TraverseAttr)
	if !ok {
		return nil
	}
	if _, declared := s.variables[step.Name]; declared {
		return nil
	}
	detail := DidYouMean(step.Name, names)
	return at(hcl.DiagError, r, fmt.Sprintf("Unknown variable %q", step.Name),
		fmt.Sprintf("%sDeclare it beside the job block: variable %q { }.", detail, step.Name))
}

func (s *scope) names() []string {
	names := make([]string, 0, len(s.variables))
	for name := range s.variables {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// resolve returns src[from:to], the inside of body, with every expression that uses a variable or a function replaced
// by its value, and what begins with "~/" by the path that it means. Lines stay where they are, and so does the start of every value. What has no value stays as it is: unknown says where.
func (s *scope) resolve(body *hclsyntax.Body, src []byte, from, to int) (out []byte, unknown []hcl.Range, diags hcl.Diagnostics) {
	done := from
	for _, a := range allAttributes(body) {
		template, _ := a.Expr.(*hclsyntax.TemplateExpr)
		written := template != nil && template.IsStringLiteral()
		if !written && !dependsOnScope(a.Expr) {
			continue
		}
		value, d := s.value(a.Expr)
		moved := false
		if path, is := textOf(value); is && homePath.MatchString(path) && !d.HasErrors() {
			full, err := atHome(path)
			if err != nil {
				d = append(d, at(hcl.DiagError, a.Expr.Range(), "Unsuitable path", err.Error()+"."))
			}
			value, moved = cty.StringVal(full), true
		}
		diags = append(diags, d...)
		if written && !moved {
			continue
		}
		r := a.Expr.Range()
		if d.HasErrors() || !value.IsWhollyKnown() {
			unknown = append(unknown, r)
			continue
		}
		out = append(out, src[done:r.Start.Byte]...)
		out = append(out, literal(value)...)
		out = append(out, strings.Repeat("\n", r.End.Line-r.Start.Line)...)
		done = r.End.Byte
	}
	return append(out, src[done:to]...), unknown, diags
}

// homePath is a path at a home folder, and no version such as "~> 1.2".
var homePath = regexp.MustCompile(`^~[a-zA-Z0-9_.-]*(/|$)`)

func textOf(v cty.Value) (string, bool) {
	if v.IsNull() || !v.IsKnown() || v.Type() != cty.String {
		return "", false
	}
	return v.AsString(), true
}

func dependsOnScope(expr hclsyntax.Expression) bool {
	for _, traversal := range expr.Variables() {
		if traversal.RootName() == "var" {
			return true
		}
	}
	calls := false
	_ = hclsyntax.VisitAll(expr, func(node hclsyntax.Node) hcl.Diagnostics {
		if _, call := node.(*hclsyntax.FunctionCallExpr); call {
			calls = true
		}
		return nil
	})
	return calls
}

// allAttributes returns the attributes of a body and of the blocks inside it, as they stand in the file.
func allAttributes(body *hclsyntax.Body) []*hclsyntax.Attribute {
	out := inOrder(body.Attributes)
	for _, b := range body.Blocks {
		out = append(out, allAttributes(b.Body)...)
	}
	slices.SortFunc(out, func(a, b *hclsyntax.Attribute) int { return a.SrcRange.Start.Byte - b.SrcRange.Start.Byte })
	return out
}

// literal writes a known value as HCL on one line.
func literal(v cty.Value) string {
	t := v.Type()
	switch {
	case v.IsNull():
		return "null"
	case t.IsObjectType() || t.IsMapType():
		var parts []string
		for it := v.ElementIterator(); it.Next(); {
			key, element := it.Element()
			parts = append(parts, literal(key)+" = "+literal(element))
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	case v.CanIterateElements():
		var parts []string
		for it := v.ElementIterator(); it.Next(); {
			_, element := it.Element()
			parts = append(parts, literal(element))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case t.IsPrimitiveType():
		return strings.TrimSpace(string(hclwrite.TokensForValue(v).Bytes()))
	}
	return strconv.Quote(t.FriendlyName())
}

// input is a value for a variable from outside the job file.
type input struct {
	expr hclsyntax.Expression // nil: text holds it
	text string
	at   hcl.Range // of the value
	name hcl.Range
}

// misfit says why a word is no number or truth value where t is one: quotes would not help.
func misfit(word string, t cty.Type) error {
	if !t.IsPrimitiveType() {
		return nil
	}
	_, err := convert.Convert(cty.StringVal(word), t)
	return err
}

// value gives the input the type of its variable.
func (in input) value(s *scope, t cty.Type) (cty.Value, hcl.Diagnostics) {
	if in.expr == nil && (t == cty.String || t == cty.DynamicPseudoType) {
		return cty.StringVal(in.text), nil
	}
	expr, r := in.expr, in.at
	unfit := func(err error) hcl.Diagnostics {
		return hcl.Diagnostics{at(hcl.DiagError, r, "Value does not fit its variable", fmt.Sprintf("The variable is declared as %s: %s.", t.FriendlyName(), err))}
	}
	if expr == nil {
		parsed, diags := hclsyntax.ParseExpression([]byte(in.text), r.Filename, r.Start)
		if diags.HasErrors() {
			if err := misfit(in.text, t); err != nil {
				diags = unfit(err)
			}
			return cty.DynamicVal, diags
		}
		expr = parsed
	}
	if word := hcl.ExprAsKeyword(expr); word != "" && word != "null" {
		if err := misfit(word, t); err != nil {
			return cty.DynamicVal, unfit(err)
		}
	}
	value, diags := (&scope{functions: s.functions}).value(expr)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	converted, err := convert.Convert(value, t)
	if err != nil {
		return cty.DynamicVal, unfit(err)
	}
	return converted, nil
}
