package job

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Pool is a pool file: GPUs that several jobs share, and who comes first.
type Pool struct {
	Name string
	// GPUs is the size of the pool. A worker takes workers.gpus of it, and one where that is 0: then it is a pool of slots.
	// 0: it has types, or is as large as its jobs' backends say that it is: Unsized.
	GPUs int
	// Types are those of its GPUs, in the order of the file; none: it has one kind.
	Types []PoolType
	// Patience is how long a job that wants more waits with no more than its guarantee, before it has a worker for a turn; 0: it waits for ever.
	Patience time.Duration
	// Jobs are in the order of the file.
	Jobs []PoolJob

	ranges map[string]hcl.Range
	draft  bool            // there are mistakes in its file
	bad    map[string]bool // paths that cannot be relied on
}

// PoolType is GPUs of one type; 0: as many as the backends of its jobs say: Unsized.
type PoolType struct {
	Name string
	GPUs int
}

// PoolJob is what a pool file says of a job.
type PoolJob struct {
	Name string
	// Type is the type of GPU that it runs on; "" where the pool has one kind.
	Type string
	// Priority: beyond the guarantees, the higher is served first.
	Priority int
	// Weight is how often what a worker is worth to it counts among jobs of one priority; 1 is usual.
	Weight int
	// Guarantee is how many workers the job gets when it wants them; 0: workers.min of its job file.
	Guarantee int
	// Limit is the most workers that it gets; 0: workers.max.
	Limit int
}

// LoadPool reads the pool file at path. On an error the pool is nil. Every diagnostic has a range in one of the returned files.
func LoadPool(path string) (*Pool, Files, hcl.Diagnostics) {
	return sound(DraftPool(path))
}

func sound(p *Pool, files Files, diags hcl.Diagnostics) (*Pool, Files, hcl.Diagnostics) {
	if diags.HasErrors() {
		return nil, files, diags
	}
	return p, files, diags
}

// DraftPool is [LoadPool] that gives of a pool file with mistakes what could be read of it, to be held against its jobs and for nothing else; nil: nothing could.
func DraftPool(path string) (*Pool, Files, hcl.Diagnostics) {
	src, err := readRegular(path, mostSource)
	if err != nil {
		d := unreadable("pool file", path, err)
		if os.IsNotExist(err) {
			d.Detail = "No such file. Is the path right?"
		}
		return nil, Files{}, hcl.Diagnostics{d}
	}
	return draftPool(src, path)
}

// ParsePool is LoadPool for a source in memory. filename stands in diagnostics.
func ParsePool(src []byte, filename string) (*Pool, Files, hcl.Diagnostics) {
	return sound(draftPool(src, filename))
}

func draftPool(src []byte, filename string) (*Pool, Files, hcl.Diagnostics) {
	files := Files{}
	body, diags := parseBody(src, filename, files)
	if diags.HasErrors() {
		return nil, files, diags
	}
	dir, err := filepath.Abs(filepath.Dir(filename))
	if err != nil {
		return nil, files, hcl.Diagnostics{unreadable("folder of", filename, err)}
	}
	top := hcl.Range{Filename: filename, Start: hcl.InitialPos, End: hcl.InitialPos}
	d := &decoder{
		job: &Job{File: filename, Dir: dir, ranges: map[string]hcl.Range{"": top}}, src: src,
		scope: &scope{functions: functions(dir, os.LookupEnv)}, bad: map[string]bool{}, spans: map[string]hcl.Range{}, root: poolBlock(&Pool{}),
	}
	p := &Pool{ranges: d.job.ranges, bad: d.bad}
	if !d.poolFile(p, body) {
		p = nil
	} else {
		p.draft = d.diags.HasErrors()
	}
	return p, files, d.sorted()
}

const (
	mostWeight    = 1000
	leastPatience = 10 * time.Second // and never less than a job's tick: Check
	mostPatience  = 7 * 24 * time.Hour
)

// poolBlock is the schema of a pool, that decodes into p. typed: it has types.
func poolBlock(p *Pool) *block {
	return &block{
		name: "pool", labelled: true, required: true, doc: "GPUs that jobs share; a file holds one.",
		begin: func(_ *Job, label string) { p.Name = label },
		attrs: []attribute{
			{name: "gpus", field: integer(func(*Job) *int { return &p.GPUs }, 1, many), derived: "what the cluster has",
				doc: "The size of the pool. A worker takes workers.gpus of it; where that is 0, one, and the pool is one of slots."},
			{name: "patience", field: duration(func(*Job) *time.Duration { return &p.Patience }, 0, mostPatience), fallback: `"1h"`,
				doc: "Who wants more than its guarantee and has had no more for so long has one worker for a turn; \"0s\": never."},
		},
		blocks: []*block{optional(poolTypeBlock(&PoolType{})), optional(poolJobBlock(&PoolJob{}))}, // for advice; they are decoded one by one
	}
}

func optional(b *block) *block {
	b.optional = true
	return b
}

// poolTypeBlock is the schema of a type of GPU in a pool, that decodes into t.
func poolTypeBlock(t *PoolType) *block {
	return &block{
		name: "type", labelled: true, doc: "GPUs of one type, where the pool has several.",
		begin: func(_ *Job, label string) { t.Name = label },
		attrs: []attribute{
			{name: "gpus", field: integer(func(*Job) *int { return &t.GPUs }, 1, many), derived: "what the cluster has", doc: "How many GPUs of this type there are."},
		},
	}
}

// poolJobBlock is the schema of a job in a pool, that decodes into j.
func poolJobBlock(j *PoolJob) *block {
	return &block{
		name: "job", labelled: true, doc: "A job of the pool, by its name. One that is not here has priority 0 and is guaranteed its workers.min.",
		begin: func(_ *Job, label string) { j.Name = label },
		attrs: []attribute{
			{name: "type", field: text(func(*Job) *string { return &j.Type }, "a type of the pool", nil), doc: "The type of GPU that it runs on."},
			{name: "priority", field: integer(func(*Job) *int { return &j.Priority }, -1000, 1000), fallback: "0", doc: "Beyond the guarantees, who has the higher one is served first."},
			{name: "weight", field: integer(func(*Job) *int { return &j.Weight }, 1, mostWeight), fallback: "1", doc: "Among jobs of one priority, what a worker is worth to it counts so often."},
			{name: "guarantee", field: integer(func(*Job) *int { return &j.Guarantee }, 1, 100000), derived: "workers.min", doc: "So many workers it gets when it wants them; until then others may have them."},
			{name: "limit", field: integer(func(*Job) *int { return &j.Limit }, 1, 100000), derived: "workers.max", doc: "It gets no more."},
		},
	}
}

// poolFile decodes the top of a pool file: the one pool. It reports whether there is one.
func (d *decoder) poolFile(p *Pool, body *hclsyntax.Body) bool {
	for _, a := range inOrder(body.Attributes) {
		detail := "A pool file holds one pool block."
		if home := d.root.homeOf(a.Name); home != "" {
			detail = fmt.Sprintf("%q belongs in block %q.", a.Name, home)
		}
		d.fail(a.NameRange, fmt.Sprintf("Attribute %q outside of a block", a.Name), "%s", detail)
	}
	var pools []*hclsyntax.Block
	for _, b := range body.Blocks {
		if b.Type == "pool" {
			pools = append(pools, b)
			continue
		}
		switch {
		case Nearest(b.Type, []string{"pool"}) != "":
			pools = append(pools, b)
			d.fail(b.TypeRange, fmt.Sprintf("Unknown block %q", b.Type), `Did you mean "pool"?`)
		case b.Type == "job":
			d.fail(b.DefRange(), "A job outside of the pool", "Is this a job file? A pool file says pool \"NAME\" { … }, with job \"NAME\" { priority = … } inside.")
		default:
			d.fail(b.TypeRange, fmt.Sprintf("Unknown block %q", b.Type), "A pool file holds one pool block.")
		}
	}
	if len(pools) == 0 {
		if !d.diags.HasErrors() {
			d.fail(d.job.ranges[""], "No pool in this file", `Write pool "NAME" { gpus = … }.`)
		}
		return false
	}
	for _, b := range pools[1:] {
		d.fail(b.DefRange(), "Second pool in this file", "A file holds one pool; the first is on line %d.", pools[0].DefRange().Start.Line)
		d.aside(func(other *decoder) { other.pool(&Pool{}, b) })
	}
	d.pool(p, pools[0])
	return true
}

func (d *decoder) pool(p *Pool, b *hclsyntax.Block) {
	d.job.ranges[""] = b.DefRange()
	var types []hcl.Range // that the file has, right or wrong
	own := *b.Body
	var parts []*hclsyntax.Block // of a misspelt kind, too: what is wrong inside is told in the same run
	own.Blocks = slices.DeleteFunc(slices.Clone(own.Blocks), func(c *hclsyntax.Block) bool {
		kind := c.Type
		if kind != "job" && kind != "type" {
			if kind = Nearest(kind, []string{"job", "type"}); kind == "" {
				return false
			}
			d.fail(c.TypeRange, fmt.Sprintf("Unknown block %q", c.Type), "Did you mean %q?", kind)
			c = new(*c)
			c.Type = kind
		}
		if kind == "type" {
			types = append(types, c.DefRange())
		}
		parts = append(parts, c)
		return true
	})
	spec := poolBlock(p)
	if len(types) > 0 { // where gpus belong is each type
		root := *spec
		root.attrs = slices.DeleteFunc(slices.Clone(root.attrs), func(a attribute) bool { return a.name == "gpus" })
		d.root = &root
	}
	label, ok := d.label(spec, b)
	if ok && !jobName.MatchString(label) {
		d.fail(b.LabelRanges[0], fmt.Sprintf("Unsuitable pool name %q", label), "Use at most 63 lower-case letters, digits and dashes, with a letter or digit at both ends.")
	}
	d.block(spec, &own, label, "")
	if p.Patience > 0 && p.Patience < leastPatience {
		d.bad["patience"] = true
		d.fail(rangeOf(d.job.ranges, "patience"), "Patience too short", "Use %s or more, and no less than each job's autoscale.tick, or \"0s\" for no turns.", FormatDuration(leastPatience))
	}
	if gpus, both := own.Attributes["gpus"]; both && len(types) > 0 {
		d.fail(gpus.NameRange, "GPUs with and without a type", "The pool has types (line %d): say in each how many GPUs it has, and leave this line out.", types[0].Start.Line)
	}
	d.several(parts, "type", func(c *hclsyntax.Block) {
		var t PoolType
		if d.one(poolTypeBlock(&t), c) {
			if !gpuTypeName.MatchString(t.Name) {
				d.fail(c.LabelRanges[0], fmt.Sprintf("Unsuitable name of a type %q", t.Name), "Use at most 63 letters, digits, dashes and underscores, with a letter or digit first.")
			}
			p.Types = append(p.Types, t)
		}
	})
	d.several(parts, "job", func(c *hclsyntax.Block) {
		var j PoolJob
		if d.one(poolJobBlock(&j), c) {
			d.poolJob(p, j)
			p.Jobs = append(p.Jobs, j)
		}
	})
}

var gpuTypeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)

// aside looks for mistakes in what does not count, since another block stands in its place: in a copy of d, of which only what it reports is kept.
func (d *decoder) aside(look func(*decoder)) {
	other := *d
	other.job = &Job{File: d.job.File, Dir: d.job.Dir, ranges: map[string]hcl.Range{"": d.job.ranges[""]}}
	other.bad, other.spans, other.diags = map[string]bool{}, map[string]hcl.Range{}, nil
	look(&other)
	d.add(other.diags...)
}

// several decodes the blocks of a kind, of which each has a label of its own.
func (d *decoder) several(blocks []*hclsyntax.Block, kind string, decode func(*hclsyntax.Block)) {
	first := map[string]int{}
	for _, c := range blocks {
		if c.Type != kind {
			continue
		}
		if len(c.Labels) == 1 {
			if line, twice := first[c.Labels[0]]; twice {
				d.fail(c.LabelRanges[0], fmt.Sprintf("%s %q is here twice", strings.ToUpper(kind[:1])+kind[1:], c.Labels[0]), "The first is on line %d. Merge the two.", line)
				d.aside(func(other *decoder) { other.block(blockOf(kind), c.Body, c.Labels[0], kind+" "+c.Labels[0]) })
				continue
			}
			first[c.Labels[0]] = c.DefRange().Start.Line
		}
		decode(c)
	}
}

// one decodes a block with a label into spec, whose path is then "KIND LABEL". It reports whether the label is right.
func (d *decoder) one(spec *block, c *hclsyntax.Block) bool {
	name, ok := d.label(spec, c)
	if !ok {
		d.aside(func(other *decoder) { other.block(spec, c.Body, name, spec.name+" "+name) })
		return false
	}
	path := spec.name + " " + name
	d.job.ranges[path], d.job.ranges[path+".name"] = c.DefRange(), c.LabelRanges[0]
	d.block(spec, c.Body, name, path)
	return true
}

// blockOf is the schema of a kind of block in a pool, that decodes into nothing that counts.
func blockOf(kind string) *block {
	if kind == "type" {
		return poolTypeBlock(&PoolType{})
	}
	return poolJobBlock(&PoolJob{})
}

// poolJob checks what a pool file says of a job, against itself.
func (d *decoder) poolJob(p *Pool, j PoolJob) {
	path := "job " + j.Name
	if j.Limit > 0 && j.Limit < j.Guarantee {
		d.bad[path+".limit"] = true
		d.fail(rangeOf(d.job.ranges, path+".limit"), "The limit is below the guarantee", "Job %q is guaranteed %d workers, and limited to %d.", j.Name, j.Guarantee, j.Limit)
	}
	types := p.typeNames()
	switch {
	case d.bad[path+".type"]:
	case j.Type == "" && len(types) > 1:
		d.fail(rangeOf(d.job.ranges, path), fmt.Sprintf("Job %q has no type of GPU", j.Name), "The pool has several, and a job runs on one: add a line type = %s.", oneOf(types))
	case j.Type != "" && len(types) == 0:
		d.fail(rangeOf(d.job.ranges, path+".type"), "The pool has no types", "Remove this line, or say in the pool how many GPUs of the type there are: type %q, with gpus = … inside.", j.Type)
	case j.Type != "" && !slices.Contains(types, j.Type):
		d.fail(rangeOf(d.job.ranges, path+".type"), fmt.Sprintf("The pool has no type %q", j.Type), "%sUse %s.", DidYouMean(j.Type, types), oneOf(types))
	}
}

func (p *Pool) typeNames() (names []string) {
	for _, t := range p.Types {
		names = append(names, t.Name)
	}
	return names
}

// Of is what the pool says of a job, with what its job file says where the pool file leaves it open.
func (p *Pool) Of(j *Job) PoolJob {
	out := PoolJob{Name: j.Name, Weight: 1}
	if i := slices.IndexFunc(p.Jobs, func(o PoolJob) bool { return o.Name == j.Name }); i >= 0 {
		out = p.Jobs[i]
	}
	if out.Type == "" && len(p.Types) == 1 {
		out.Type = p.Types[0].Name
	}
	if out.Guarantee == 0 {
		out.Guarantee = j.Workers.Min
	}
	if out.Limit == 0 {
		out.Limit = j.Workers.Max
	}
	return out
}

// ErrorAt returns an error located at path, for checks that need more than the files.
func (p *Pool) ErrorAt(path, summary, detail string) *hcl.Diagnostic {
	return at(hcl.DiagError, rangeOf(p.ranges, path), summary, detail)
}

// Unsized are the types of which the file does not say how many GPUs there are; "" where that is the pool, which has none.
func (p *Pool) Unsized() (types []string) {
	if len(p.Types) == 0 && p.GPUs == 0 {
		return []string{""}
	}
	for _, t := range p.Types {
		if t.GPUs == 0 {
			types = append(types, t.Name)
		}
	}
	return types
}

// Size says how many GPUs there are of a type, or in a pool that has none ("").
func (p *Pool) Size(typ string, gpus int) {
	if typ == "" {
		p.GPUs = gpus
	}
	for i := range p.Types {
		if p.Types[i].Name == typ {
			p.Types[i].GPUs = gpus
		}
	}
}

// UnsizedAt is a mistake about a type that is Unsized.
func (p *Pool) UnsizedAt(typ, summary, detail string) *hcl.Diagnostic {
	if typ == "" {
		return p.ErrorAt("", summary, detail)
	}
	return p.ErrorAt("type "+typ, summary, detail)
}

// PoolGPUs is how much of a pool a worker takes.
func (j *Job) PoolGPUs() int { return max(j.Workers.GPUs, 1) }

// Check holds the pool against the jobs that are to share it, which must have different names.
func (p *Pool) Check(jobs []*Job) hcl.Diagnostics { return p.check(jobs, nil, true) }

// CheckSome is Check where the pool may be a draft, and other jobs of these names are to share it too, of which nothing but that can be relied on; every: there are
// no more than these. What depends on all of them is not looked at.
func (p *Pool) CheckSome(jobs []*Job, others []string, every bool) hcl.Diagnostics {
	return p.check(jobs, slices.Clone(others), every)
}

func (p *Pool) check(jobs []*Job, names []string, every bool) hcl.Diagnostics {
	var diags hcl.Diagnostics
	fail := func(path, summary, detail string, args ...any) {
		if !p.bad[path] {
			diags = append(diags, p.ErrorAt(path, summary, fmt.Sprintf(detail, args...)))
		}
	}
	whole := every && !p.draft && len(names) == 0
	firsts := map[string]*Job{} // by type
	for _, j := range jobs {
		names = append(names, j.Name)
		of, path := p.Of(j), "job "+j.Name
		if of.Type == "" && len(p.Types) > 0 && !p.draft {
			fail("", fmt.Sprintf("Job %q has no type of GPU", j.Name), "The pool has several, and a job runs on one: add job %q, with type = %s inside.", j.Name, oneOf(p.typeNames()))
		}
		if of.Guarantee < j.Workers.Min {
			fail(path+".guarantee", "The guarantee is below workers.min", "Job %q never has fewer than %d workers (workers.min in %s): guarantee it as many.", j.Name, j.Workers.Min, j.File)
		}
		if of.Guarantee > j.Workers.Max {
			fail(path+".guarantee", "The guarantee is above workers.max", "Job %q never has more than %d workers (workers.max in %s): guarantee it no more.", j.Name, j.Workers.Max, j.File)
		}
		if of.Limit < of.Guarantee && !p.bad[path+".guarantee"] && of.Guarantee <= j.Workers.Max && of.Guarantee >= j.Workers.Min {
			fail(path+".limit", "The limit is below workers.min", "Job %q never has fewer than %d workers (workers.min in %s).", j.Name, j.Workers.Min, j.File)
		}
		if of.Limit > j.Workers.Max && !p.bad[path+".limit"] {
			diags = append(diags, at(hcl.DiagWarning, rangeOf(p.ranges, path+".limit"), "The limit is above workers.max",
				fmt.Sprintf("Job %q never has more than %d workers (workers.max in %s), whatever the limit: lower it, or raise workers.max.", j.Name, j.Workers.Max, j.File)))
		}
		if p.Patience > 0 && p.Patience < j.Autoscale.Tick {
			fail("patience", "Patience too short", "Job %q decides once in %s (autoscale.tick in %s), and would be due a turn each time: use as much or more, or \"0s\" for no turns.",
				j.Name, FormatDuration(j.Autoscale.Tick), j.File)
		}
		if firsts[of.Type] == nil {
			firsts[of.Type] = j
		}
		if first := firsts[of.Type]; j.Backend.Name != first.Backend.Name {
			diags = append(diags, at(hcl.DiagWarning, rangeOf(p.ranges, path), "Jobs of one pool run on different backends",
				fmt.Sprintf("Job %q runs on %q and job %q on %q. The pool counts their GPUs together: is that meant?", j.Name, j.Backend.Name, first.Name, first.Backend.Name)))
		}
	}
	diags = append(append(diags, p.alike(jobs)...), p.tooSmall(jobs, whole)...)
	for _, o := range p.Jobs {
		if every && !slices.Contains(names, o.Name) {
			free := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
				return slices.ContainsFunc(p.Jobs, func(o PoolJob) bool { return o.Name == name })
			})
			fail("job "+o.Name+".name", fmt.Sprintf("Job %q is not among the jobs", o.Name), "%sName its job file too: what it holds counts, and one process must know it. Or take it out of the pool, once it has stopped.", DidYouMean(o.Name, free))
		}
	}
	InFileOrder(diags)
	return diags
}

// alike warns of jobs on different types of GPU whose backend blocks are the same: nothing in them asks for the type, so that each may get the other's.
func (p *Pool) alike(jobs []*Job) (diags hcl.Diagnostics) {
	firsts := map[string]*Job{} // by backend and block
	for _, j := range jobs {
		key := j.Backend.Name + "\n" + strings.Join(strings.Fields(string(j.Backend.Source)), " ")
		first := firsts[key]
		if first == nil {
			firsts[key] = j
			continue
		}
		if of, other := p.Of(j).Type, p.Of(first).Type; of != other && of != "" && other != "" && j.Workers.GPUs > 0 {
			diags = append(diags, at(hcl.DiagWarning, rangeOf(p.ranges, "job "+j.Name+".type"), "Nothing asks for the type", fmt.Sprintf(
				"Job %q is to run on %q and job %q on %q, and their blocks backend %q are the same, so that each may get the other's GPUs. Ask for the type there: "+
					"in Slurm by gres, constraint or partition, in Nomad by device, constraint or node_pool.", j.Name, of, first.Name, other, j.Backend.Name)))
		}
	}
	return diags
}

// tooSmall says where the pool, or a type of its GPUs, is smaller than what is guaranteed of it; all: that is known of every job. Else, and of a guarantee that is itself
// a mistake, what there is at least counts: of the latter the nearest that the job may have.
func (p *Pool) tooSmall(jobs []*Job, all bool) (diags hcl.Diagnostics) {
	types := p.Types
	if len(types) == 0 {
		types = []PoolType{{GPUs: p.GPUs}}
	}
	for _, t := range types {
		var sums []string
		owed, exact := 0, all
		for _, j := range jobs {
			of := p.Of(j)
			if of.Type != t.Name {
				continue
			}
			n := max(min(of.Guarantee, j.Workers.Max), j.Workers.Min)
			owed, exact = owed+n*j.PoolGPUs(), exact && n == of.Guarantee
			sums = append(sums, fmt.Sprintf("%d for %q", n*j.PoolGPUs(), j.Name))
		}
		if owed <= t.GPUs || t.GPUs == 0 { // or its size is not known
			continue
		}
		path, summary, what := "gpus", "The pool is smaller than its guarantees", "GPUs"
		if t.Name != "" {
			path, summary, what = "type "+t.Name+".gpus", fmt.Sprintf("Type %q is smaller than its guarantees", t.Name), t.Name+" GPUs"
		}
		least := ""
		if !exact {
			least = "At least "
		}
		diags = append(diags, p.ErrorAt(path, summary, fmt.Sprintf("%s%d %s are guaranteed, and there are %d: %s. A job without a guarantee here is guaranteed its workers.min.",
			least, owed, what, t.GPUs, strings.Join(sums, ", "))))
	}
	return diags
}
