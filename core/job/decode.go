package job

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// decoder walks a file along the schema. It goes on after every mistake, so that all are reported at once.
type decoder struct {
	job   *Job
	src   []byte
	scope *scope
	root  *block // of the schema of this kind of file
	diags hcl.Diagnostics
	bad   map[string]bool      // paths whose value could not be read: later checks leave them alone
	spans map[string]hcl.Range // path of what the file has → all of it
	files Files                // the sources of what is reported
	raws  []hcl.Range          // values of the backend's block that are not known
}

func (d *decoder) add(diags ...*hcl.Diagnostic) { d.diags = append(d.diags, diags...) }

func (d *decoder) fail(r hcl.Range, summary, detail string, args ...any) {
	d.add(at(hcl.DiagError, r, summary, fmt.Sprintf(detail, args...)))
}

// block decodes one block. body is nil when the file leaves the block out; label is then the schema's default.
func (d *decoder) block(spec *block, body *hclsyntax.Body, label, path string) {
	if spec.begin != nil {
		spec.begin(d.job, label)
	}
	taken := d.unknownAttributes(spec, body, path)
	for i := range spec.attrs {
		d.attribute(spec, &spec.attrs[i], body, label, join(path, spec.attrs[i].name), taken)
	}
	found := d.children(spec, body)
	for _, child := range spec.blocks {
		childPath := join(path, child.name)
		b, written := found[child.name]
		switch {
		case written:
			d.child(child, b, childPath)
		case child.required && body != nil:
			d.bad[childPath] = true
			d.fail(rangeOf(d.job.ranges, path), fmt.Sprintf("Missing block %q", child.name), "%s Add %s.", child.doc, skeleton(child))
			d.block(child, nil, child.label, childPath)
		case !child.optional:
			d.block(child, nil, child.label, childPath)
		}
	}
}

// child decodes a block that the file has, its labels first.
func (d *decoder) child(spec *block, b *hclsyntax.Block, path string) {
	d.job.ranges[path] = b.DefRange()
	d.spans[path] = b.Range()
	label, ok := d.label(spec, b)
	if !ok {
		d.bad[path] = true
	}
	if spec.params {
		d.params(b, path)
		return
	}
	if spec.raw {
		spec.begin(d.job, label)
		d.raw(b)
		return
	}
	d.block(spec, b.Body, label, path)
}

// label checks the labels of a block and returns the one it has, or the schema's default after a mistake.
func (d *decoder) label(spec *block, b *hclsyntax.Block) (string, bool) {
	if !spec.labelled {
		if len(b.Labels) > 0 {
			d.fail(b.LabelRanges[0], fmt.Sprintf("Block %q has no label", spec.name), "Write %s { … } without %q.", spec.name, b.Labels[0])
			return "", false
		}
		return "", true
	}
	fallback := spec.label
	if fallback == "" && len(spec.labels) > 0 {
		fallback = spec.labels[0]
	}
	switch {
	case len(b.Labels) == 0:
		d.fail(b.DefRange(), fmt.Sprintf("Block %q needs a label", spec.name), "Write %s.", skeleton(spec))
		return fallback, false
	case len(b.Labels) > 1:
		d.fail(b.LabelRanges[1], fmt.Sprintf("Block %q has one label", spec.name), "Remove %q.", b.Labels[1])
		return b.Labels[0], false
	case spec.labels != nil && !slices.Contains(spec.labels, b.Labels[0]):
		d.fail(b.LabelRanges[0], fmt.Sprintf("Unknown %s %q", spec.name, b.Labels[0]), "%sUse %s.", DidYouMean(b.Labels[0], spec.labels), oneOf(spec.labels))
		return fallback, false
	}
	return b.Labels[0], true
}

// unknownAttributes reports the attributes that the schema does not have. It returns the names of those that a
// misspelt attribute was probably meant to be: they are not reported as missing too.
func (d *decoder) unknownAttributes(spec *block, body *hclsyntax.Body, path string) map[string]bool {
	taken := map[string]bool{}
	if body == nil {
		return taken
	}
	for _, a := range inOrder(body.Attributes) {
		if spec.attribute(a.Name) != nil {
			continue
		}
		if child := spec.child(a.Name); child != nil {
			taken[a.Name] = true
			d.bad[join(path, a.Name)] = true
			d.fail(a.NameRange, fmt.Sprintf("%q is a block", a.Name), "Write it without the equals sign: %s.", skeleton(child))
			continue
		}
		best := Nearest(a.Name, spec.missing(body))
		taken[best] = true
		if best != "" {
			d.bad[join(path, best)] = true
		}
		d.fail(a.NameRange, fmt.Sprintf("Unknown attribute %q", a.Name), "%s", strings.TrimSpace(spec.advise(d.root, a.Name, best)))
	}
	return taken
}

// attribute decodes one attribute, or its default.
func (d *decoder) attribute(spec *block, a *attribute, body *hclsyntax.Body, label, path string, taken map[string]bool) {
	a.setDefault(d.job, label) // Also under a value that turns out wrong, so that later checks find something sane.
	var written *hclsyntax.Attribute
	if body != nil {
		written = body.Attributes[a.name]
	}
	if written == nil {
		if a.required && body != nil && (a.spared == nil || !a.spared(d.job)) {
			d.bad[path] = true
			if !taken[a.name] {
				d.fail(rangeOf(d.job.ranges, path), fmt.Sprintf("Missing attribute %q in %s", a.name, spec.name), "%s Add a line %s.", a.doc, a.sample())
			}
		}
		return
	}
	d.job.ranges[path] = written.Expr.Range()
	d.spans[path] = written.SrcRange
	if a.later != "" {
		d.fail(written.NameRange, fmt.Sprintf("%q is not supported yet", a.name), "%s", a.later)
		return
	}
	elements := elementRanges(written.Expr)
	for i, r := range elements {
		d.job.ranges[fmt.Sprintf("%s[%d]", path, i)] = r
	}
	value, diags := d.scope.value(written.Expr)
	d.diags = append(d.diags, diags...)
	switch {
	case diags.HasErrors() || !value.IsWhollyKnown():
		d.bad[path] = true // Already reported: here, or where the variable got its value.
		if value.IsKnown() && !value.IsNull() && strings.HasPrefix(a.field.kind(), "list") {
			d.set(a, value, path, written.Expr)
		}
	case value.IsNull() && a.required:
		d.bad[path] = true
		d.fail(written.Expr.Range(), fmt.Sprintf("%q has no value", a.name), "%s It cannot be null.", a.doc)
	case !value.IsNull(): // null is the default.
		d.set(a, value, path, written.Expr)
	}
}

func (d *decoder) set(a *attribute, value cty.Value, path string, expr hclsyntax.Expression) {
	elements := elementRanges(expr)
	for _, p := range a.field.set(d.job.Dir, d.job, value) {
		d.bad[path] = true
		r := expr.Range()
		if p.element > 0 && p.element <= len(elements) {
			r = elements[p.element-1]
			if part, written := partRange(expr.(*hclsyntax.TupleConsExpr).Exprs[p.element-1], p.part); written {
				r = part
			}
		}
		if p.at != nil {
			r = *p.at
			if rel, err := filepath.Rel(d.job.Dir, r.Filename); err == nil && filepath.IsLocal(rel) { // as the job file's own name is written
				r.Filename = filepath.Join(filepath.Dir(d.job.File), rel)
			}
			d.files[r.Filename] = &hcl.File{Bytes: p.source}
		}
		d.fail(r, p.summary, "%s", p.advice(a))
	}
}

// advice is a problem's detail, with what else could be done about a text that says nothing.
func (p *problem) advice(a *attribute) string {
	switch {
	case !p.empty:
		return p.detail
	case p.element > 0 && p.part == "":
		return p.detail + ", or remove it from the list."
	case a.required || p.part != "":
		return p.detail + "."
	}
	return p.detail + ", or remove the attribute."
}

// children sorts a body's blocks by name, reporting unknown and repeated ones. A misspelt block stands for the one it
// was probably meant to be, so that mistakes inside it are found in the same run.
func (d *decoder) children(spec *block, body *hclsyntax.Body) map[string]*hclsyntax.Block {
	found := map[string]*hclsyntax.Block{}
	if body == nil {
		return found
	}
	var unknown []*hclsyntax.Block
	for _, b := range body.Blocks {
		if spec.child(b.Type) == nil {
			unknown = append(unknown, b)
		} else if first, twice := found[b.Type]; twice {
			d.fail(b.DefRange(), fmt.Sprintf("Second block %q", b.Type), "The first is on line %d. Merge the two.", first.DefRange().Start.Line)
		} else {
			found[b.Type] = b
		}
	}
	for _, b := range unknown {
		if a := spec.attribute(b.Type); a != nil {
			d.fail(b.DefRange(), fmt.Sprintf("%q is an attribute", b.Type), "Write it with an equals sign: %s.", a.sample())
			continue
		}
		var free []string
		for _, child := range spec.blocks {
			if found[child.name] == nil {
				free = append(free, child.name)
			}
		}
		best := Nearest(b.Type, free)
		if best != "" {
			found[best] = b
		}
		d.fail(b.TypeRange, fmt.Sprintf("Unknown block %q", b.Type), "%s", strings.TrimSpace(spec.advise(d.root, b.Type, best)))
	}
	return found
}

// raw keeps the body of a block for its plugin.
func (d *decoder) raw(b *hclsyntax.Block) {
	source, unknown, diags := d.scope.resolve(b.Body, d.src, b.OpenBraceRange.End.Byte, b.CloseBraceRange.Start.Byte)
	d.diags, d.raws = append(d.diags, diags...), unknown
	d.job.Backend.Source = source
	d.job.Backend.Filename = b.OpenBraceRange.Filename
	d.job.Backend.Start = b.OpenBraceRange.End
}

// setDefault stores the default of an attribute that the file leaves out.
func (a *attribute) setDefault(j *Job, label string) {
	source := a.fallback
	if byLabel, ok := a.byLabel[label]; ok {
		source = byLabel
	}
	if source == "" {
		return
	}
	expr, diags := hclsyntax.ParseExpression([]byte(source), "default", hcl.InitialPos)
	if diags.HasErrors() {
		panic("job: default of " + a.name + ": " + diags.Error())
	}
	value, diags := expr.Value(nil)
	if diags.HasErrors() {
		panic("job: default of " + a.name + ": " + diags.Error())
	}
	for _, p := range a.field.set("", j, value) {
		panic("job: default of " + a.name + ": " + p.summary + ": " + p.detail)
	}
}

func (b *block) attribute(name string) *attribute {
	for i := range b.attrs {
		if b.attrs[i].name == name {
			return &b.attrs[i]
		}
	}
	return nil
}

func (b *block) child(name string) *block {
	for _, child := range b.blocks {
		if child.name == name {
			return child
		}
	}
	return nil
}

// missing returns the names of the attributes that body does not have.
func (b *block) missing(body *hclsyntax.Body) []string {
	var names []string
	for _, a := range b.attrs {
		if _, written := body.Attributes[a.name]; !written && a.later == "" {
			names = append(names, a.name)
		}
	}
	return names
}

// advise says what an unknown name was meant to be (best), where in root it belongs, or what there is.
func (b *block) advise(root *block, name, best string) string {
	if best != "" {
		return fmt.Sprintf("Did you mean %q?", best)
	}
	for _, a := range b.attrs { // before what another block has under that name
		if slices.Contains(a.others, name) {
			return fmt.Sprintf("Here it is called %q.", a.name)
		}
	}
	if home := root.homeOf(name); home != "" && home != b.name {
		return fmt.Sprintf("%q belongs in block %q.", name, home)
	}
	var names []string
	for _, a := range b.attrs {
		if a.later == "" {
			names = append(names, a.name)
		}
	}
	if best := Nearest(name, names); best != "" {
		return fmt.Sprintf("Did you mean %q? It is already there.", best)
	}
	for _, child := range b.blocks {
		names = append(names, child.name+" { }")
	}
	if len(names) == 0 {
		return "Nothing can be written here."
	}
	return fmt.Sprintf("Block %q has: %s.", b.name, strings.Join(names, ", "))
}

// homeOf returns the name of the first block that has an attribute or a block of this name, and takes it.
func (b *block) homeOf(name string) string {
	if a := b.attribute(name); a != nil && a.later == "" || b.child(name) != nil {
		return b.name
	}
	for _, child := range b.blocks {
		if home := child.homeOf(name); home != "" {
			return home
		}
	}
	return ""
}

// skeleton writes a block as it should look.
func skeleton(b *block) string {
	switch {
	case b.labels != nil:
		return fmt.Sprintf("%s %q { … }", b.name, b.labels[0])
	case b.name == "backend":
		return `backend "local" { … }`
	case b.labelled:
		return b.name + ` "NAME" { … }`
	}
	return b.name + " { … }"
}

// sample writes an attribute as it could look.
func (a *attribute) sample() string {
	value := "…"
	switch {
	case a.fallback != "":
		value = a.fallback
	case strings.HasPrefix(a.field.kind(), "list"):
		value = "[…]"
	case a.field.kind() == "string" || a.field.kind() == "path":
		value = `"…"`
	}
	return a.name + " = " + value
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// inOrder returns attributes as they stand in the file.
func inOrder(attrs hclsyntax.Attributes) []*hclsyntax.Attribute {
	out := make([]*hclsyntax.Attribute, 0, len(attrs))
	for _, a := range attrs {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b *hclsyntax.Attribute) int { return a.SrcRange.Start.Byte - b.SrcRange.Start.Byte })
	return out
}

// elementRanges returns where the elements of a list written in place stand.
// partRange is where the value of an object's part stands or, of a part that is none, its name.
func partRange(expr hclsyntax.Expression, name string) (hcl.Range, bool) {
	object, ok := expr.(*hclsyntax.ObjectConsExpr)
	if !ok || name == "" {
		return hcl.Range{}, false
	}
	for _, item := range object.Items {
		if key, diags := item.KeyExpr.Value(nil); !diags.HasErrors() && key.Type() == cty.String && key.IsKnown() && key.AsString() == name {
			if !slices.Contains(eventParts, name) && !slices.Contains(holidayParts, name) {
				return item.KeyExpr.Range(), true
			}
			return item.ValueExpr.Range(), true
		}
	}
	return hcl.Range{}, false
}

func elementRanges(expr hclsyntax.Expression) []hcl.Range {
	tuple, ok := expr.(*hclsyntax.TupleConsExpr)
	if !ok {
		return nil
	}
	ranges := make([]hcl.Range, len(tuple.Exprs))
	for i, e := range tuple.Exprs {
		ranges[i] = e.Range()
	}
	return ranges
}
