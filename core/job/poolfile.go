package job

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Pool is a pool file: GPUs that several jobs share, and who comes first.
type Pool struct {
	Name string
	// GPUs is the size of the pool. A worker takes workers.gpus of it, and one where that is 0: then it is a pool of slots.
	GPUs int
	// Jobs are in the order of the file.
	Jobs []PoolJob

	ranges map[string]hcl.Range
}

// PoolJob is what a pool file says of a job.
type PoolJob struct {
	Name string
	// Priority: beyond the guarantees, the higher is served first.
	Priority int
	// Guarantee is how many workers the job gets when it wants them; 0: workers.min of its job file.
	Guarantee int
	// Limit is the most workers that it gets; 0: workers.max.
	Limit int
}

// LoadPool reads the pool file at path. On an error the pool is nil. Every diagnostic has a range in one of the returned files.
func LoadPool(path string) (*Pool, Files, hcl.Diagnostics) {
	src, err := readRegular(path, mostSource)
	if err != nil {
		d := unreadable("pool file", path, err)
		if os.IsNotExist(err) {
			d.Detail = "No such file. Is the path right?"
		}
		return nil, Files{}, hcl.Diagnostics{d}
	}
	return ParsePool(src, path)
}

// ParsePool is LoadPool for a source in memory. filename stands in diagnostics.
func ParsePool(src []byte, filename string) (*Pool, Files, hcl.Diagnostics) {
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
		scope: &scope{functions: functions(dir, os.LookupEnv)}, bad: map[string]bool{}, spans: map[string]hcl.Range{},
	}
	p := &Pool{ranges: d.job.ranges}
	d.poolFile(p, body)
	if d.diags.HasErrors() {
		return nil, files, d.sorted()
	}
	return p, files, d.sorted()
}

// poolBlock is the schema of a pool, that decodes into p.
func poolBlock(p *Pool) *block {
	return &block{
		name: "pool", labelled: true, required: true, doc: "GPUs that jobs share; a file holds one.",
		begin: func(_ *Job, label string) { p.Name = label },
		attrs: []attribute{
			{name: "gpus", field: integer(func(*Job) *int { return &p.GPUs }, 1, many), required: true,
				doc: "The size of the pool. A worker takes workers.gpus of it; where that is 0, one, and the pool is one of slots."},
		},
	}
}

// poolJobBlock is the schema of a job in a pool, that decodes into j.
func poolJobBlock(j *PoolJob) *block {
	return &block{
		name: "job", labelled: true, doc: "A job of the pool, by its name. One that is not here has priority 0 and is guaranteed its workers.min.",
		begin: func(_ *Job, label string) { j.Name = label },
		attrs: []attribute{
			{name: "priority", field: integer(func(*Job) *int { return &j.Priority }, -1000, 1000), fallback: "0", doc: "Beyond the guarantees, who has the higher one is served first."},
			{name: "guarantee", field: integer(func(*Job) *int { return &j.Guarantee }, 1, 100000), derived: "workers.min", doc: "So many workers it gets when it wants them; until then others may have them."},
			{name: "limit", field: integer(func(*Job) *int { return &j.Limit }, 1, 100000), derived: "workers.max", doc: "It gets no more."},
		},
	}
}

// poolFile decodes the top of a pool file: the one pool.
func (d *decoder) poolFile(p *Pool, body *hclsyntax.Body) {
	for _, a := range inOrder(body.Attributes) {
		d.fail(a.NameRange, fmt.Sprintf("Attribute %q outside of a block", a.Name), "A pool file holds one pool block.")
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
		return
	}
	for _, b := range pools[1:] {
		d.fail(b.DefRange(), "Second pool in this file", "A file holds one pool; the first is on line %d.", pools[0].DefRange().Start.Line)
	}
	d.pool(p, pools[0])
}

func (d *decoder) pool(p *Pool, b *hclsyntax.Block) {
	spec := poolBlock(p)
	d.job.ranges[""] = b.DefRange()
	label, ok := d.label(spec, b)
	if ok && !jobName.MatchString(label) {
		d.fail(b.LabelRanges[0], fmt.Sprintf("Unsuitable pool name %q", label), "Use at most 63 lower-case letters, digits and dashes, with a letter or digit at both ends.")
	}
	own := *b.Body
	own.Blocks = slices.DeleteFunc(slices.Clone(own.Blocks), func(c *hclsyntax.Block) bool { return c.Type == "job" })
	spec.blocks = []*block{poolJobBlock(&PoolJob{})} // for advice on what is misspelt
	spec.blocks[0].optional = true
	d.block(spec, &own, label, "")
	first := map[string]hcl.Range{}
	for _, c := range b.Body.Blocks {
		if c.Type != "job" {
			continue
		}
		var j PoolJob
		job := poolJobBlock(&j)
		name, ok := d.label(job, c)
		if !ok {
			continue
		}
		if before, twice := first[name]; twice {
			d.fail(c.LabelRanges[0], fmt.Sprintf("Job %q is here twice", name), "The first is on line %d. Merge the two.", before.Start.Line)
			continue
		}
		first[name] = c.DefRange()
		path := "job " + name
		d.job.ranges[path], d.job.ranges[path+".name"] = c.DefRange(), c.LabelRanges[0]
		d.block(job, c.Body, name, path)
		if j.Limit > 0 && j.Limit < j.Guarantee {
			d.fail(rangeOf(d.job.ranges, path+".limit"), "The limit is below the guarantee", "Job %q is guaranteed %d workers, and limited to %d.", name, j.Guarantee, j.Limit)
		}
		p.Jobs = append(p.Jobs, j)
	}
}

// Of is what the pool says of a job, with what its job file says where the pool file leaves it open.
func (p *Pool) Of(j *Job) PoolJob {
	out := PoolJob{Name: j.Name}
	if i := slices.IndexFunc(p.Jobs, func(o PoolJob) bool { return o.Name == j.Name }); i >= 0 {
		out = p.Jobs[i]
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

// PoolGPUs is how much of a pool a worker takes.
func (j *Job) PoolGPUs() int { return max(j.Workers.GPUs, 1) }

// Check holds the pool against the jobs that are to share it, which must have different names.
func (p *Pool) Check(jobs []*Job) hcl.Diagnostics {
	var diags hcl.Diagnostics
	fail := func(path, summary, detail string, args ...any) {
		diags = append(diags, p.ErrorAt(path, summary, fmt.Sprintf(detail, args...)))
	}
	var names, sums []string
	owed := 0
	for _, j := range jobs {
		names = append(names, j.Name)
		of, path := p.Of(j), "job "+j.Name
		if of.Guarantee < j.Workers.Min {
			fail(path+".guarantee", "The guarantee is below workers.min", "Job %q never has fewer than %d workers (workers.min in %s): guarantee it as many.", j.Name, j.Workers.Min, j.File)
		}
		if of.Guarantee > j.Workers.Max {
			fail(path+".guarantee", "The guarantee is above workers.max", "Job %q never has more than %d workers (workers.max in %s): guarantee it no more.", j.Name, j.Workers.Max, j.File)
		}
		if of.Limit < of.Guarantee && of.Guarantee <= j.Workers.Max && of.Guarantee >= j.Workers.Min {
			fail(path+".limit", "The limit is below workers.min", "Job %q never has fewer than %d workers (workers.min in %s).", j.Name, j.Workers.Min, j.File)
		}
		owed += of.Guarantee * j.PoolGPUs()
		sums = append(sums, fmt.Sprintf("%d for %q", of.Guarantee*j.PoolGPUs(), j.Name))
		if first := jobs[0]; j.Backend.Name != first.Backend.Name {
			diags = append(diags, at(hcl.DiagWarning, rangeOf(p.ranges, path), "Jobs of one pool run on different backends",
				fmt.Sprintf("Job %q runs on %q and job %q on %q. The pool counts their GPUs together: is that meant?", j.Name, j.Backend.Name, first.Name, first.Backend.Name)))
		}
	}
	if owed > p.GPUs && !diags.HasErrors() {
		fail("gpus", "The pool is smaller than its guarantees", "%d GPUs are guaranteed, and there are %d: %s. A job without a guarantee here is guaranteed its workers.min.", owed, p.GPUs, strings.Join(sums, ", "))
	}
	for _, o := range p.Jobs {
		if !slices.Contains(names, o.Name) {
			free := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
				return slices.ContainsFunc(p.Jobs, func(o PoolJob) bool { return o.Name == name })
			})
			fail("job "+o.Name+".name", fmt.Sprintf("Job %q is not among the jobs", o.Name), "%sName its job file too: what it holds counts, and one process must know it. Or take it out of the pool, once it has stopped.", DidYouMean(o.Name, free))
		}
	}
	InFileOrder(diags)
	return diags
}
