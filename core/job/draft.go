package job

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// Draft is a job file that may have mistakes: what could be read of its job, and which parts of that can be relied on, so that those who know more than the file
// tells (brokers, a backend, a file system) can be asked about them before the mistakes are mended.
type Draft struct {
	Job *Job // nil: there is none that could be read. What of it could not be read has its default, or is empty.
	// Torn says that the file's form is wrong, so that nothing in it was looked at.
	Torn bool

	bad    map[string]bool
	spans  map[string]hcl.Range
	wrong  []hcl.Range // where mistakes were reported
	values []hcl.Range // what has no value that is known: why was reported, maybe elsewhere
}

func (d *decoder) draft() *Draft {
	out := &Draft{Job: d.job, bad: d.bad, spans: d.spans, values: slices.Clone(d.raws)}
	if _, there := d.spans[""]; !there {
		out.Job = nil
	}
	for _, diag := range d.diags {
		if diag.Severity == hcl.DiagError {
			out.wrong = append(out.wrong, *diag.Subject)
		}
	}
	for path, bad := range d.bad {
		if r, written := d.spans[path]; bad && written && path != "backend" {
			out.values = append(out.values, r)
		}
	}
	return out
}

// Known says that what stands at a path ("stream.topic"; "name" is the job's), or its default, could be read.
func (d *Draft) Known(path string) bool {
	for ; path != ""; path = parentPath(path) {
		if d.bad[path] {
			return false
		}
	}
	return d.Job != nil
}

// Sound says that neither at a path nor in it is any mistake, save in those of its parts that are excepted.
func (d *Draft) Sound(path string, except ...string) bool {
	if !d.Known(path) {
		return false
	}
	excepted := func(p string) bool {
		return slices.ContainsFunc(except, func(e string) bool { return p == e || strings.HasPrefix(p, e+".") })
	}
	for p, bad := range d.bad {
		if bad && strings.HasPrefix(p, path+".") && !excepted(p) {
			return false
		}
	}
	span, written := d.spans[path]
	return !written || !slices.ContainsFunc(d.wrong, func(r hcl.Range) bool {
		return meet(span, r) && !slices.ContainsFunc(except, func(e string) bool { s, written := d.spans[e]; return written && meet(s, r) })
	})
}

// Told says that a mistake was reported at a place already, or of what stands there: what anybody else says of it follows from that.
func (d *Draft) Told(at hcl.Range) bool {
	covers := func(r hcl.Range) bool { return meet(r, at) }
	return slices.ContainsFunc(d.wrong, covers) || slices.ContainsFunc(d.values, covers)
}

// meet says that two places have a character in common; one without any is where the next character stands.
func meet(a, b hcl.Range) bool {
	aEnd, bEnd := max(a.End.Byte, a.Start.Byte+1), max(b.End.Byte, b.Start.Byte+1)
	return a.Filename == b.Filename && a.Start.Byte < bEnd && b.Start.Byte < aEnd
}
