package job

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Reference returns the description of every block and attribute of a job file as plain text, made from the schema
// that decodes them. Descriptions are wrapped to width characters, and to 96 where that is more.
func Reference(width int) string {
	width = min(width, widestReference)
	var out strings.Builder
	fmt.Fprintf(&out, `A job file holds one job and the variables that it uses, in %d KiB at most:

  variable "NAME" {          used as var.NAME; set by -var NAME=VALUE or -var-file FILE
    type        = string     string, number, bool, list(string), ...; optional
    default     = "..."      any value; without it the variable must be set
    description = "..."
  }

`, mostSource>>10)
	describe(&out, schema, "", width)
	describeBackends(&out, width)
	out.WriteString("\nDurations: " + durationUnits + ".\nSizes: " + sizeUnits + ".\n")
	names := slices.Sorted(maps.Keys(functions("", nil)))
	out.WriteString("Functions: " + strings.Join(names, ", ") + `.
  env("NAME", default...) reads the environment; file("path") reads a text file.
Relative paths start at the job file's folder.
`)
	return out.String()
}

const widestReference = 96

func describe(out *strings.Builder, b *block, indent string, width int) {
	head := b.name
	if b.labels != nil {
		head += " " + oneOf(b.labels)
	} else if b.labelled {
		head += ` "NAME"`
	}
	switch {
	case b.required:
		head += " (required)"
	case b.optional:
		head += " (optional)"
	}
	fmt.Fprintf(out, "%s%s {\n", indent, head)
	inner := indent + "  "
	for _, line := range wrap(b.doc, width-len(inner)-2) {
		fmt.Fprintf(out, "%s# %s\n", inner, line)
	}
	for i := range b.attrs {
		if a := &b.attrs[i]; a.later == "" {
			a.describe(out, inner, width)
		}
	}
	if b.params {
		describeParams(out, inner, width)
	}
	for _, child := range b.blocks {
		out.WriteByte('\n')
		describe(out, child, inner, width)
	}
	fmt.Fprintf(out, "%s}\n", indent)
}

func (a *attribute) describe(out *strings.Builder, indent string, width int) {
	facts := []string{a.field.kind()}
	if limits := a.field.limits(); limits != "" {
		facts = append(facts, limits)
	}
	fmt.Fprintf(out, "%s%-20s %s; %s\n", indent, a.name, strings.Join(facts, ": "), a.standard())
	for _, line := range wrap(a.doc, width-len(indent)-4) {
		fmt.Fprintf(out, "%s    %s\n", indent, line)
	}
}

// standard says what holds when the attribute is left out.
func (a *attribute) standard() string {
	switch {
	case a.required:
		return "required"
	case a.derived != "":
		return "default " + a.derived
	case a.byLabel != nil:
		var parts []string
		for _, label := range slices.Sorted(maps.Keys(a.byLabel)) {
			parts = append(parts, label+" "+a.byLabel[label])
		}
		return "default " + strings.Join(parts, ", ")
	case a.fallback != "":
		return "default " + a.fallback
	}
	return "optional"
}
