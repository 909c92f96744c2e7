package slurm

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/kale-sched/kale/core/backend"
)

// block is what stands between the braces of backend "slurm" { … }.
type block struct {
	SharedDir        string            `hcl:"shared_dir"`
	SharedDirRange   hcl.Range         `hcl:"shared_dir,attr_value_range"`
	SharedPaths      []string          `hcl:"shared_paths,optional"`
	SharedPathsRange hcl.Range         `hcl:"shared_paths,attr_value_range"`
	Trainer          *string           `hcl:"trainer,optional"`
	TrainerRange     hcl.Range         `hcl:"trainer,attr_value_range"`
	Env              map[string]string `hcl:"env,optional"`
	EnvRange         hcl.Range         `hcl:"env,attr_value_range"`
	Partition        string            `hcl:"partition,optional"`
	PartitionRange   hcl.Range         `hcl:"partition,attr_value_range"`
	Account          string            `hcl:"account,optional"`
	AccountRange     hcl.Range         `hcl:"account,attr_value_range"`
	QOS              string            `hcl:"qos,optional"`
	QOSRange         hcl.Range         `hcl:"qos,attr_value_range"`
	Reservation      string            `hcl:"reservation,optional"`
	ReservationRange hcl.Range         `hcl:"reservation,attr_value_range"`
	Constraint       string            `hcl:"constraint,optional"`
	ConstraintRange  hcl.Range         `hcl:"constraint,attr_value_range"`
	Exclude          string            `hcl:"exclude,optional"`
	ExcludeRange     hcl.Range         `hcl:"exclude,attr_value_range"`
	GRES             *string           `hcl:"gres,optional"`
	GRESRange        hcl.Range         `hcl:"gres,attr_value_range"`
	GPUs             *string           `hcl:"gpus,optional"`
	GPUsRange        hcl.Range         `hcl:"gpus,attr_value_range"`
	Nice             *int              `hcl:"nice,optional"`
	NiceRange        hcl.Range         `hcl:"nice,attr_value_range"`
	Priority         *int              `hcl:"priority,optional"`
	PriorityRange    hcl.Range         `hcl:"priority,attr_value_range"`
	Time             *string           `hcl:"time,optional"`
	TimeRange        hcl.Range         `hcl:"time,attr_value_range"`
	Prologue         []string          `hcl:"prologue,optional"`
	Directives       []string          `hcl:"directives,optional"`
	Clusters         string            `hcl:"clusters,optional"`
	ClustersRange    hcl.Range         `hcl:"clusters,attr_value_range"`
	BinDir           string            `hcl:"bin_dir,optional"`
	BinDirRange      hcl.Range         `hcl:"bin_dir,attr_value_range"`
	Rest             string            `hcl:"rest,optional"`
	RestRange        hcl.Range         `hcl:"rest,attr_value_range"`
	TokenFile        string            `hcl:"token_file,optional"`
	TokenFileRange   hcl.Range         `hcl:"token_file,attr_value_range"`
	CACert           string            `hcl:"ca_cert,optional"`
	CACertRange      hcl.Range         `hcl:"ca_cert,attr_value_range"`
	Properties       map[string]string `hcl:"properties,optional"`
	PropertiesRange  hcl.Range         `hcl:"properties,attr_value_range"`
	MaxPending       *int              `hcl:"max_pending,optional"`
	MaxPendingRange  hcl.Range         `hcl:"max_pending,attr_value_range"`
	Poll             *string           `hcl:"poll,optional"`
	PollRange        hcl.Range         `hcl:"poll,attr_value_range"`
	Artifact         *artifactBlock    `hcl:"artifact,block"`
}

// artifactBlock is where a node gets the trainer from, when it is not installed there.
type artifactBlock struct {
	Source        string    `hcl:"source"`
	SourceRange   hcl.Range `hcl:"source,attr_value_range"`
	Checksum      string    `hcl:"checksum"`
	ChecksumRange hcl.Range `hcl:"checksum,attr_value_range"`
	Cache         string    `hcl:"cache,optional"`
	CacheRange    hcl.Range `hcl:"cache,attr_value_range"`
}

// settings is a job's configuration, checked.
type settings struct {
	way        way
	owner      backend.Owner
	dir        string // absolute, shared by all nodes
	trainer    string // path on the nodes; empty: the path that the workload names
	artifact   *artifact
	env        map[string]string // wins over a workload's: it knows the nodes
	options    []string          // sbatch options that are the same for every workload
	asked      map[string]asked  // what the block asks the cluster for, by attribute
	directives []asked           // further options of sbatch
	exclude    string
	partition  string
	gpuOption  string // of sbatch, with one %d
	gpuType    string // of the devices that it asks for; empty for any
	noGPUs     bool   // gres = "": none are asked for
	limit      time.Duration
	nice       *int
	priority   *int
	properties map[string]string // of a job, for slurmrestd
	named      []asked           // the properties by name, each where it stands
	prologue   []string
	maxPending int
	poll       time.Duration
	begins     backend.Config // the place of the block in its file, and no more
}

type artifact struct{ source, sha256, cache string }

const (
	// trainerName is the program name that the block's trainer stands for.
	trainerName = "kale-trainer"
	// defaultMaxPending is how many workloads of a job may wait in the queue when the block does not say.
	defaultMaxPending = 16
	defaultPoll       = 5 * time.Second
	// mostNice and mostPriority are the largest numbers that sbatch takes: NICE_OFFSET less 3, and one less than NO_VAL, of slurm.h.
	mostNice     = 1<<31 - 3
	mostPriority = 1<<32 - 3
)

var (
	plainWord  = regexp.MustCompile(`^[^\s'"\\;|&<>$` + "`" + `]+$`)
	sha256Form = regexp.MustCompile(`^(sha256:)?[0-9a-fA-F]{64}$`)
	slurmTime  = regexp.MustCompile(`^(\d+-)?\d+(:\d+){0,2}$`)
	shellName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// decoding collects what is wrong while a block is decoded.
type decoding struct {
	cfg   backend.Config
	b     block
	s     settings
	diags hcl.Diagnostics
}

func (d *decoding) fail(subject hcl.Range, summary, detail string, args ...any) {
	d.diags = append(d.diags, backend.Mistake(subject, summary, detail, args...))
}

// warn is fail for what Slurm takes, and may read otherwise than it was meant.
func (d *decoding) warn(subject hcl.Range, summary, detail string, args ...any) {
	d.fail(subject, summary, detail, args...)
	d.diags[len(d.diags)-1].Severity = hcl.DiagWarning
}

func decode(cfg backend.Config) (settings, backend.Diagnostics) {
	d := &decoding{cfg: cfg, s: settings{asked: map[string]asked{}, owner: cfg.Owner}}
	d.s.begins = backend.Config{Filename: cfg.Filename, StartLine: cfg.StartLine, StartColumn: cfg.StartColumn, StartByte: cfg.StartByte}
	if d.diags = backend.DecodeBlock(cfg, &d.b); !backend.OnlyUnknown(d.diags) {
		return settings{}, backend.FromHCL(cfg, d.diags)
	}
	d.folders()
	d.programs()
	d.placement()
	d.gpuTemplate()
	d.limits()
	d.directives()
	d.reach()
	return d.s, backend.FromHCL(cfg, d.diags)
}

// folders checks what the nodes share, and that the scheduler's folders lie within it.
func (d *decoding) folders() {
	b := &d.b
	if !filepath.IsAbs(b.SharedDir) {
		d.fail(b.SharedDirRange, "Shared folder is not absolute",
			"shared_dir is %q; it is a folder that every node and this machine reach under the same absolute path.", b.SharedDir)
		return
	}
	d.s.dir = filepath.Clean(b.SharedDir)
	d.s.asked[attrSharedDir] = asked{b.SharedDir, b.SharedDirRange}
	if !plainWord.MatchString(d.s.dir) || strings.Contains(d.s.dir, "%") {
		d.fail(b.SharedDirRange, "Unsuitable folder name",
			"shared_dir is %q; Slurm's options cannot carry blanks, quotes, '%%' or characters that mean something to a shell.", b.SharedDir)
	}
	roots := []string{d.s.dir}
	for _, p := range b.SharedPaths {
		if !filepath.IsAbs(p) {
			d.fail(b.SharedPathsRange, "Shared folder is not absolute", "shared_paths names %q; give absolute paths.", p)
		}
		if root := filepath.Clean(p); !slices.Contains(roots, root) {
			roots = append(roots, root)
		}
	}
	for i, p := range d.cfg.Shared {
		if !slices.ContainsFunc(roots, func(root string) bool { return within(p, root) }) {
			d.fail(d.cfg.SharedRange(i, b.SharedDirRange), "Folder is not shared by the nodes",
				"The job keeps its checkpoints in %s, which every node must reach, but the folders that the nodes are said to share are %s. "+
					"Move the folder there (checkpoint.dir), or name the file system that it is on in shared_paths if the nodes mount it at that path.",
				p, strings.Join(roots, ", "))
		}
	}
}

// within reports whether path is root or below it.
func within(path, root string) bool {
	rel, err := filepath.Rel(root, filepath.Clean(path))
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// programs checks the trainer, the environment and where Slurm's clients are.
func (d *decoding) programs() {
	b := &d.b
	if b.Trainer != nil {
		d.s.trainer = *b.Trainer
		if !filepath.IsAbs(*b.Trainer) {
			d.fail(b.TrainerRange, "Trainer's path is not absolute", "trainer is %q; it is the absolute path of %s on the nodes.", *b.Trainer, trainerName)
		}
	}
	if a := b.Artifact; a != nil {
		if b.Trainer != nil {
			d.fail(b.TrainerRange, "Trainer named twice", "trainer and artifact both say where %s comes from; keep one of them.", trainerName)
		}
		if !sha256Form.MatchString(a.Checksum) {
			d.fail(a.ChecksumRange, "Unsuitable checksum", "checksum is %q; it is the artifact's SHA-256 as 64 hexadecimal digits, with or without \"sha256:\" before them.", a.Checksum)
		}
		if !strings.HasPrefix(a.Source, "https://") && !strings.HasPrefix(a.Source, "http://") && !filepath.IsAbs(a.Source) {
			d.fail(a.SourceRange, "Unsuitable source", "source is %q; it is an http:// or https:// address, or an absolute path that the nodes can read.", a.Source)
		}
		cache := a.Cache
		if cache == "" {
			cache = filepath.Join(d.s.dir, ".cache")
		} else if !filepath.IsAbs(cache) {
			d.fail(a.CacheRange, "Folder is not absolute", "cache is %q; it is the absolute path of a folder on the nodes, shared or not.", cache)
		}
		d.s.artifact = &artifact{source: a.Source, sha256: strings.ToLower(strings.TrimPrefix(a.Checksum, "sha256:")), cache: cache}
	}
	d.s.env = b.Env
	for name := range b.Env {
		if !shellName.MatchString(name) {
			d.fail(b.EnvRange, "Unsuitable name of an environment variable", "env has the name %q; a name is letters, digits and '_' and begins with no digit.", name)
		}
	}
	if detail := backend.OwnEnv(b.Env); detail != "" {
		d.fail(b.EnvRange, "Kale's own environment variable", "%s", detail)
	}
}

// placement turns the attributes that say where jobs go into options of sbatch.
func (d *decoding) placement() {
	b := &d.b
	for _, o := range []struct {
		option, value string
		at            hcl.Range
	}{
		{"partition", b.Partition, b.PartitionRange}, {"account", b.Account, b.AccountRange}, {"qos", b.QOS, b.QOSRange},
		{"reservation", b.Reservation, b.ReservationRange}, {"clusters", b.Clusters, b.ClustersRange}, {"exclude", b.Exclude, b.ExcludeRange},
	} {
		if o.value == "" {
			continue
		}
		if !plainWord.MatchString(o.value) {
			d.fail(o.at, "Unsuitable value", "%s is %q; it is one word, without blanks and quotes.", o.option, o.value)
		}
		d.s.asked[o.option] = asked{o.value, o.at}
		if o.option == "exclude" {
			d.s.exclude = o.value
			continue
		}
		d.s.options = append(d.s.options, "--"+o.option+"="+o.value)
	}
	d.s.partition = b.Partition
	if b.Constraint != "" { // features are joined by & and |
		if strings.ContainsAny(b.Constraint, "\n\r'\"\\") {
			d.fail(b.ConstraintRange, "Unsuitable value", "constraint is %q; it is Slurm's list of features, such as \"h200&nvlink\".", b.Constraint)
		}
		d.s.options = append(d.s.options, fmt.Sprintf("--constraint=%q", b.Constraint))
		d.s.asked[attrConstraint] = asked{b.Constraint, b.ConstraintRange}
	}
	d.s.nice, d.s.priority = b.Nice, b.Priority
	if b.Nice != nil {
		if *b.Nice < -mostNice || *b.Nice > mostNice {
			d.fail(b.NiceRange, "Unsuitable number", "nice is %d; Slurm takes %d to %d.", *b.Nice, -mostNice, mostNice)
		}
		d.s.options = append(d.s.options, fmt.Sprintf("--nice=%d", *b.Nice))
	}
	if b.Priority != nil {
		if *b.Priority < 1 || *b.Priority > mostPriority {
			d.fail(b.PriorityRange, "Unsuitable number", "priority is %d; Slurm takes 1 to %d. (0 would hold the jobs.)", *b.Priority, mostPriority)
		}
		d.s.options = append(d.s.options, fmt.Sprintf("--priority=%d", *b.Priority))
	}
}

// gpuTemplate takes the option that asks for GPUs.
func (d *decoding) gpuTemplate() {
	b := &d.b
	option, template, at := "gres", "gpu:%d", b.GRESRange
	switch {
	case b.GRES != nil && b.GPUs != nil:
		d.fail(b.GPUsRange, "GPUs asked for twice", "gres and gpus both say how GPUs are asked for; keep one of them.")
		return
	case b.GPUs != nil:
		option, template, at = "gpus-per-node", *b.GPUs, b.GPUsRange
		if rest, named := strings.CutPrefix(template, "gpu:"); named {
			d.fail(at, "Unsuitable template", "gpus is %q, which to Slurm is a GPU of the type \"gpu\": write %q, or gres = %q.", template, rest, template)
			return
		}
	case b.GRES != nil:
		template = *b.GRES
	}
	if template == "" {
		d.s.noGPUs = true
		return
	}
	if strings.Count(template, "%d") != 1 || strings.Count(template, "%") != 1 || !plainWord.MatchString(template) {
		d.fail(at, "Unsuitable template", "It is %q; write the value of --%s with one %%d where the number of GPUs belongs, such as \"gpu:%%d\" or \"gpu:h200:%%d\".", template, option)
		return
	}
	d.s.gpuOption = "--" + option + "=" + template
	if b.GPUs != nil || b.GRES != nil {
		d.s.asked[attrGRES] = asked{template, at}
	}
	if parts := strings.Split(strings.TrimPrefix(template, "gpu:"), ":"); len(parts) == 2 {
		d.s.gpuType = parts[0]
	}
}

// limits checks times and numbers.
func (d *decoding) limits() {
	b := &d.b
	d.s.maxPending, d.s.poll, d.s.prologue = defaultMaxPending, defaultPoll, b.Prologue
	if b.MaxPending != nil {
		d.s.maxPending = *b.MaxPending
		if d.s.maxPending < 0 {
			d.fail(b.MaxPendingRange, "Unsuitable number", "max_pending is %d; it says how many of the job's processes may wait in Slurm's queue, 0 for none.", d.s.maxPending)
		}
	}
	if b.Poll != nil {
		poll, err := time.ParseDuration(*b.Poll)
		if d.s.poll = poll; err != nil || poll < time.Second || poll > 10*time.Minute {
			d.fail(b.PollRange, "Unsuitable interval", "poll is %q; it is the longest time between two looks at Slurm's queue, such as \"5s\", from 1s to 10m.", *b.Poll)
		}
	}
	if b.Time == nil {
		return
	}
	limit, err := parseLimit(*b.Time)
	if err != nil || limit < time.Minute {
		d.fail(b.TimeRange, "Unsuitable time limit", "time is %q; it is a duration such as \"12h\", or Slurm's form (minutes, hours:minutes:seconds, days-hours), one minute at least.", *b.Time)
		return
	}
	d.s.limit = limit
	d.s.asked[attrTime] = asked{*b.Time, b.TimeRange}
	d.s.options = append(d.s.options, fmt.Sprintf("--time=%d", d.s.minutes()))
	switch {
	case minutesSeconds.MatchString(*b.Time):
		d.warn(b.TimeRange, "Time limit in minutes and seconds", "time is %q, which is %s to Slurm (minutes:seconds). If hours are meant, write %q; else %q.",
			*b.Time, span(limit), *b.Time+":00", span(limit))
	case limit < shortLimit:
		is := fmt.Sprintf("time is %q", *b.Time)
		if span(limit) != *b.Time {
			is += ", which is " + span(limit)
		}
		d.warn(b.TimeRange, "Short time limit", "%s. Each process is replaced before it is over, and a parameter server's replacement pauses training: give an hour or more, such as \"12h\".", is)
	}
}

// span is a time limit for people, in a form that time takes too.
func span(d time.Duration) string {
	return strings.Replace(strings.Replace(d.String(), "m0s", "m", 1), "h0m", "h", 1)
}

// shortLimit is the time limit below which a job is busy with its own renewal: an eighth and more of it goes to each.
const shortLimit = 10 * time.Minute

// minutesSeconds is Slurm's form that looks like hours and minutes.
var minutesSeconds = regexp.MustCompile(`^\d+:\d+$`)

// minutes gives the time limit as Slurm takes it.
func (s settings) minutes() int { return int((s.limit + time.Minute - 1) / time.Minute) }

// parseLimit reads a Go duration or Slurm's forms: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S.
func parseLimit(s string) (time.Duration, error) {
	if !slurmTime.MatchString(s) {
		return time.ParseDuration(s)
	}
	var days time.Duration
	units := map[int][]time.Duration{1: {time.Minute}, 2: {time.Minute, time.Second}, 3: {time.Hour, time.Minute, time.Second}}
	if before, after, ok := strings.Cut(s, "-"); ok {
		var n int64
		if _, err := fmt.Sscan(before, &n); err != nil {
			return 0, err
		}
		days, s = lasting(n, 24*time.Hour), after
		units[1], units[2] = []time.Duration{time.Hour}, []time.Duration{time.Hour, time.Minute}
	}
	parts := strings.Split(s, ":")
	total := days
	for i, p := range parts {
		var n int64
		if _, err := fmt.Sscan(strings.TrimLeft(p[:len(p)-1], "0")+p[len(p)-1:], &n); err != nil {
			return 0, err
		}
		total += lasting(n, units[len(parts)][i])
	}
	return total, nil
}

// lasting is n units, or endless where that is more: Slurm makes eight thousand years of a limit, which a Duration cannot hold, where the end of a job
// without one is set.
func lasting(n int64, unit time.Duration) time.Duration {
	if n > int64(endless/unit) {
		return endless
	}
	return time.Duration(n) * unit
}

// ours are sbatch's options that the backend sets itself, and what to use instead where there is something.
var ours = map[string]string{
	"job-name": "", "J": "", "output": "", "o": "", "error": "", "e": "", "input": "", "i": "", "requeue": "", "no-requeue": "", "array": "", "a": "",
	"nodes": "", "N": "", "ntasks": "", "n": "", "ntasks-per-node": "", "comment": "", "chdir": "", "D": "", "open-mode": "", "export": "env", "export-file": "env",
	"parsable": "", "wrap": "", "test-only": "", "wait": "", "W": "", "hold": "", "H": "", "signal": "", "uid": "", "gid": "", "get-user-env": "env", "ignore-pbs": "",
	"quiet": "", "Q": "", "cpus-per-task": "workers.cpu", "c": "workers.cpu", "mem": "workers.memory", "mem-per-cpu": "workers.memory", "mem-per-gpu": "workers.memory",
	"gres": "gres", "gpus": "gpus", "G": "gpus", "gpus-per-node": "gpus", "gpus-per-task": "gpus", "time": "time", "t": "time", "time-min": "time",
	"partition": "partition", "p": "partition", "account": "account", "A": "account", "qos": "qos", "q": "qos", "reservation": "reservation",
	"constraint": "constraint", "C": "constraint", "exclude": "exclude", "x": "exclude", "clusters": "clusters", "M": "clusters", "nice": "nice", "priority": "priority",
}

// directives checks the extra lines, each at its own place.
func (d *decoding) directives() {
	ranges := d.elements("directives")
	for i, line := range d.b.Directives {
		at := hcl.Range{Filename: d.cfg.Filename, Start: hcl.Pos{Line: d.cfg.StartLine, Column: d.cfg.StartColumn, Byte: d.cfg.StartByte}}
		at.End = at.Start
		if i < len(ranges) {
			at = ranges[i]
		}
		option := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#SBATCH"))
		name, one := optionName(option)
		if !one {
			d.fail(at, "Unsuitable directive", "It is %q; a directive is one option of sbatch, such as \"--mail-type=FAIL\": write each as an element of its own.", line)
			continue
		}
		name = unabbreviated(name)
		if instead, taken := ours[name]; taken {
			advice := "leave it out: the backend sets it itself, and depends on it"
			if instead != "" {
				advice = "use " + instead + " instead"
			}
			d.fail(at, "Directive collides with the backend", "%q sets %s; %s.", line, name, advice)
			continue
		}
		if slices.Contains(printing, name) {
			d.fail(at, "Directive that submits nothing", "With %q sbatch prints something and ends: take it out.", line)
			continue
		}
		d.s.directives = append(d.s.directives, asked{option, at})
		d.perProcess(name, asked{optionValue(option, name), at})
	}
}

// printing are sbatch's options that keep it from submitting anything.
var printing = []string{"version", "V", "help", "h", "usage", "u"}

// perProcess warns of what Slurm takes of each job anew: each of the processes is a job, those that are started later too.
func (d *decoding) perProcess(name string, a asked) {
	switch name {
	case "begin", "b", "begin_time":
		if a.value != "now" && !datedTime.MatchString(a.value) {
			d.warn(a.at, "Begin that counts anew for each process", "Slurm reads %q when a process is submitted: one that is added or replaced later waits so long again. Give it with its date (2030-01-31T13:00), or start kale run when training is to begin.", a.value)
		}
	case "deadline":
		d.warn(a.at, "Deadline for each process", "At %q Slurm ends each process, and starts none later: training stands still until this is taken out. To end the job then, use kale stop.", a.value)
	}
}

// datedTime are Slurm's forms of a time that come once: YYYY-MM-DD, MM/DD/YY, MMDDYY, seconds since 1970.
var datedTime = regexp.MustCompile(`\d{4}-\d{1,2}-\d{1,2}|\d{1,2}/\d{1,2}/\d{2}|\d{6}`)

// optionValue is what stands behind the name in one option of sbatch.
func optionValue(option, name string) string {
	return strings.Trim(strings.TrimLeft(strings.TrimPrefix(strings.TrimLeft(option, "-"), name), "= \t"), `"'`)
}

// Forms of one option of sbatch: its name, and what may follow as its value, which is one word. A short option that takes no value has none, or it would be
// another option.
var (
	longOption  = regexp.MustCompile(`^--([A-Za-z0-9][A-Za-z0-9-]*)(=(\S*|"[^"]*"|'[^']*')|\s+([^-\s]\S*|"[^"]*"|'[^']*'))?$`)
	shortFlag   = regexp.MustCompile(`^-([OkshuvVHQWI])$`)
	shortOption = regexp.MustCompile(`^-([^OkshuvVHQWI-])(\S*|\s+([^-\s]\S*|"[^"]*"|'[^']*'))$`)
)

// optionName is the name of the one option of sbatch that a directive is; false: it is none, or more than one.
func optionName(option string) (string, bool) {
	for _, form := range []*regexp.Regexp{longOption, shortFlag, shortOption} {
		if m := form.FindStringSubmatch(option); m != nil {
			return m[1], true
		}
	}
	return "", false
}

// unabbreviated is the option of ours that sbatch takes an abbreviated long name for; any other name is given back.
func unabbreviated(name string) string {
	if _, taken := ours[name]; taken || len(name) == 1 {
		return name
	}
	for _, full := range slices.Sorted(maps.Keys(ours)) {
		if strings.HasPrefix(full, name) {
			return full
		}
	}
	return name
}

// elements gives the places of a list attribute's elements; none where the list is computed.
func (d *decoding) elements(name string) []hcl.Range {
	tuple, ok := d.expression(name).(*hclsyntax.TupleConsExpr)
	if !ok {
		return nil
	}
	var out []hcl.Range
	for _, e := range tuple.Exprs {
		out = append(out, e.Range())
	}
	return out
}

// keys gives the places of a map attribute's keys; none of those that are computed.
func (d *decoding) keys(name string) map[string]hcl.Range {
	object, ok := d.expression(name).(*hclsyntax.ObjectConsExpr)
	if !ok {
		return nil
	}
	out := map[string]hcl.Range{}
	for _, item := range object.Items {
		if key, diags := item.KeyExpr.Value(nil); !diags.HasErrors() && key.Type() == cty.String && key.IsKnown() && !key.IsNull() {
			out[key.AsString()] = item.KeyExpr.Range()
		}
	}
	return out
}

// expression is what an attribute of the block is set to; nil for one that it has not.
func (d *decoding) expression(name string) hclsyntax.Expression {
	start := hcl.Pos{Line: max(d.cfg.StartLine, 1), Column: max(d.cfg.StartColumn, 1), Byte: d.cfg.StartByte}
	file, _ := hclsyntax.ParseConfig(d.cfg.Source, d.cfg.Filename, start) // it was decoded before
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok || body.Attributes[name] == nil {
		return nil
	}
	return body.Attributes[name].Expr
}

// program gives the path on the nodes of what argv0 names: the block's trainer or artifact for the trainer, an absolute path as it is, a program
// beside the plugin or in $PATH by the path that it has here.
func (s settings) program(self, argv0 string) (string, error) {
	if filepath.Base(argv0) == trainerName {
		switch {
		case s.trainer != "":
			return s.trainer, nil
		case s.artifact != nil:
			return filepath.Join(s.artifact.cache, s.artifact.sha256), nil
		}
	}
	if filepath.IsAbs(argv0) {
		return argv0, nil
	}
	return backend.LookProgram(self, argv0)
}
