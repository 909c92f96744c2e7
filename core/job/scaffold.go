package job

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
)

// ScaffoldInput is what is known about a stream before it has a job.
type ScaffoldInput struct {
	Name       string   // of the job; empty: made from the topic
	Brokers    []string // host:port
	Topic      string
	Partitions int
	Samples    [][]byte // values of records: JSON objects or tf.train.Example
	Label      string   // empty: inferred from the samples
	GPUs       int      // per worker
	// Backend is where the job runs; "": on this machine. On a cluster Checkpoint is an absolute path, and its parent folder is taken to be what the nodes share.
	Backend string
	// History is how far back the topic's records reach now, and Retention how long they stay; 0: not known, and Retention negative: for ever.
	History, Retention time.Duration
	Checkpoint         string // folder; empty: checkpoints beside the job file, in which each job has a folder of its own
}

// labelNames are the usual names of the field to predict, the surest first.
var labelNames = []string{"label", "click", "clicked", "is_click", "y", "target", "converted", "conversion", "outcome"}

// mostCategories is the number of distinct whole numbers above which a field counts as a quantity.
const mostCategories = 50

var (
	momentName   = regexp.MustCompile(`(?i)^(ts|time|timestamp|date|event_?time|created(_?at)?)$`)
	identityName = regexp.MustCompile(`(?i)(^|_)id$|Id$`)
	notInName    = regexp.MustCompile(`[^a-z0-9]+`)
)

// Scaffold writes a first job file for a stream: commented, and ready to be loaded as it is. Which field is the label,
// which are categories and which are quantities is inferred from the samples; a field that names a moment is left out,
// and a comment says so. It fails when the samples do not show a label.
func Scaffold(in ScaffoldInput) ([]byte, error) {
	s, err := look(in.Samples)
	if err != nil {
		return nil, fmt.Errorf("write a job file for topic %q: %w", in.Topic, err)
	}
	roles, err := s.roles(in.Label)
	if err != nil {
		return nil, fmt.Errorf("write a job file for topic %q: %w", in.Topic, err)
	}
	if in.Name == "" {
		in.Name = strings.Trim(notInName.ReplaceAllString(strings.ToLower(in.Topic), "-"), "-")
		in.Name = strings.Trim(in.Name[:min(len(in.Name), 63)], "-")
	}
	if in.Checkpoint == "" {
		in.Checkpoint = "checkpoints"
	}
	out := hclwrite.Format([]byte(in.file(s, roles)))
	if _, files, diags := Parse(out, in.Name+".hcl", Options{}); diags.HasErrors() {
		var why strings.Builder
		_ = Render(&why, files, diags, 0, false) // A strings.Builder takes everything.
		return nil, fmt.Errorf("write a job file for topic %q: the input does not make a valid job:\n%s", in.Topic, why.String())
	}
	return out, nil
}

// roles says what each field of a stream is for.
type roles struct {
	label                 string
	sparse, dense, moment []string
	unique                []string // those of sparse that have another value in nearly every record: maybe they name the record
}

func (s survey) roles(label string) (roles, error) {
	r := roles{label: label}
	var names, binary []string
	for _, f := range s.fields {
		names = append(names, f.name)
		if f.binary == f.seen && f.texts == 0 && few(s.samples-f.seen, s.samples) {
			binary = append(binary, f.name)
		}
	}
	switch {
	case label != "" && !slices.Contains(names, label):
		return r, fmt.Errorf("no record has the label %q. %sThe fields are %s%s", label, DidYouMean(label, names), strings.Join(names, ", "), s.unseen())
	case label != "" && !slices.Contains(binary, label):
		if len(binary) == 0 {
			return r, fmt.Errorf("the field %q cannot be the label: a label is 0 or 1 in every record, and no field is", label)
		}
		return r, fmt.Errorf("the field %q cannot be the label: a label is 0 or 1 in every record, as is %s", label, strings.Join(binary, ", "))
	case label == "":
		r.label = inferLabel(binary)
	}
	if r.label == "" && len(binary) == 0 {
		return r, fmt.Errorf("no field is 0 or 1 in every record, so there is no label to predict (the fields are %s)%s", strings.Join(names, ", "), s.unseen())
	}
	if r.label == "" {
		return r, fmt.Errorf("name the label with -label: it could be any of %s", strings.Join(binary, ", "))
	}
	for _, f := range s.fields {
		numeric := f.texts == 0
		category := f.integers == f.seen && (len(f.values) <= mostCategories || identityName.MatchString(f.name))
		switch {
		case f.name == r.label:
		case momentName.MatchString(f.name):
			r.moment = append(r.moment, f.name)
		case numeric && !category && 2*f.beyond <= f.seen: // numbers beyond what may be a quantity name something
			r.dense = append(r.dense, f.name)
		default:
			r.sparse = append(r.sparse, f.name)
			if f.unique() {
				r.unique = append(r.unique, f.name)
			}
		}
	}
	if len(r.sparse)+len(r.dense) == 0 {
		return r, errors.New("there is no field beside the label, so there is nothing to learn from")
	}
	return r, nil
}

// inferLabel picks the label among fields that are always 0 or 1: a usual name, or the only one.
func inferLabel(binary []string) string {
	for _, usual := range labelNames {
		for _, name := range binary {
			if strings.EqualFold(name, usual) {
				return name
			}
		}
	}
	if len(binary) == 1 {
		return binary[0]
	}
	return ""
}

// file writes the job file.
func (in ScaffoldInput) file(s survey, r roles) string {
	kind := ModelDeepFM
	if len(r.sparse) == 0 {
		kind = ModelLR
	}
	o, history, clock := in.outlook(), "", ""
	if o.season%day == 0 {
		clock = "    # timezone = \"Europe/Berlin\" # when clocks are put forward or back there, so is the day's course\n"
	}
	if o.history > 0 {
		history = fmt.Sprintf("    history = %s\n", quote(FormatDuration(o.history)))
	}
	left := ""
	note := func(format string, args ...any) {
		left += "\n# " + strings.Join(wrap(fmt.Sprintf(format, args...), 110), "\n# ")
	}
	if s.bad > 0 {
		note("%s looked at could not be read (%v): a dead-letter topic keeps such, and on_undecodable = \"skip\" does without.", Count(s.bad, "record"), s.why)
	}
	for _, f := range s.fields {
		if lack := s.samples - f.seen; f.name == r.label && lack > 0 {
			note("%s looked at lack the label: they cannot be trained, and are taken for ones that cannot be decoded.", Count(lack, "record"))
		}
	}
	if len(s.nested) > 0 {
		note("Left out, because they hold lists or objects: %s. A feature is one text or one number.", strings.Join(quoteAll(s.nested), ", "))
	}
	if len(r.moment) > 0 {
		note("Left out, because they name a moment: %s.", strings.Join(quoteAll(r.moment), ", "))
	}
	if len(r.unique) > 0 {
		note("Nearly every record looked at has its own value of %s: what names the record (a request, an impression) and not what it is about teaches the model nothing and fills the servers' memory, so leave it out.",
			strings.Join(quoteAll(r.unique), ", "))
	}
	return fmt.Sprintf(`# Written by "kale init" from %s of topic %s.
# "kale help jobfile" lists every attribute and its default.

job %s {
  # No record should wait longer than this for training.
  slo {
    max_lag = "20m"
  }

  stream "kafka" {
    brokers = %s
    topic   = %s
    start   = "latest"
    # Without a dead-letter topic, a record that cannot be decoded stops its partition.
    # dead_letter = %s
  }

  # Inferred from the records: please check. sparse are categories, dense are quantities.%s
  features {
    format = %s
    label  = %s
    sparse = %s
    dense  = %s
  }

  model {
    kind  = %s
    batch = 1024
    optimiser "adagrad" {
      learning_rate = 0.05
    }
  }

  # The topic has %s.
  workers {
    min  = 1
    max  = %d
    gpus = %d
  }

  servers {
    count = 1
  }

  # A guess of 5,000 records/s for one worker. Full load corrects it as the job runs; a measured value begins better:
  # [1 / RATE, 0, 0].
  throughput {
    form   = "async"
    theta  = [0.0002, 0, 0]
    source = "a guess by kale init"
  }

%s  forecast {
    interval = %s
    horizon  = %s
    season   = %s
%s%s  }

  # "observe" decides and records, and touches nothing: a good first week.
  autoscale {
    policy = "kale"
    mode   = "live"
  }

  checkpoint {
    dir = %s
  }

%s}
`, Count(s.samples, "record"), in.Topic, quote(in.Name), quoteList(in.Brokers), quote(in.Topic), quote(in.Topic+"-dead"), left,
		quote(s.format), quote(r.label), quoteList(r.sparse), quoteList(r.dense), quote(kind),
		Count(in.Partitions, "partition"), max(1, min(in.Partitions, 8)), in.GPUs,
		comment(in.ShortSeason()), quote(FormatDuration(o.interval)), quote(FormatDuration(o.horizon)), quote(FormatDuration(o.season)), history, clock, quote(in.Checkpoint), in.backend())
}

// ScaffoldBackends are the backends for which Scaffold writes a block.
var ScaffoldBackends = []string{BackendLocal, "nomad", "slurm"}

// backend writes the backend block.
func (in ScaffoldInput) backend() string {
	shared := filepath.Dir(in.Checkpoint)
	const program = `    # Where the nodes have the trainer, and ONNX Runtime for it:
    # trainer = "/opt/kale/kale-trainer"
    # env     = { KALE_ONNXRUNTIME = "/opt/kale/libonnxruntime.so" }
`
	switch in.Backend {
	case "slurm":
		return fmt.Sprintf(`  # The nodes and this machine mount %s at the same path.
  backend "slurm" {
    shared_dir   = %s
    shared_paths = %s
%s    # partition = "gpu"
  }
`, shared, quote(filepath.Join(shared, "kale")), quoteList([]string{shared}), program)
	case "nomad":
		return fmt.Sprintf(`  # The nodes and this machine mount %s at the same path. NOMAD_ADDR and NOMAD_TOKEN say how Nomad is reached.
  backend "nomad" {
    shared_paths = %s
%s  }
`, shared, quoteList([]string{shared}), program)
	}
	return "  backend \"local\" {\n  }\n"
}

// outlook is how a first job file foresees traffic.
type outlook struct{ season, interval, horizon, history time.Duration }

// outlooks, the best first. A season shorter than a day repeats nothing that traffic does by itself; it only lets forecasts begin soon.
var outlooks = []outlook{
	{season: 24 * time.Hour, interval: time.Minute, horizon: 30 * time.Minute},
	{season: time.Hour, interval: time.Minute, horizon: 30 * time.Minute},
	{season: 20 * time.Minute, interval: 10 * time.Second, horizon: 10 * time.Minute, history: 6 * time.Hour},
}

// needs is about how much history an outlook wants before its forecasts can be judged: a season and two horizons.
func (o outlook) needs() time.Duration { return o.season + 2*o.horizon }

// outlook is the best for which there is history enough and retention enough; without, the last.
func (in ScaffoldInput) outlook() outlook {
	for _, o := range outlooks {
		if (in.History == 0 || in.History >= o.needs()) && (in.Retention <= 0 || in.Retention >= o.needs()) {
			return o
		}
	}
	return outlooks[len(outlooks)-1]
}

// ShortSeason says why the job file has another season than a day, and when to change it; "" where it has not.
func (in ScaffoldInput) ShortSeason() string {
	day, o := outlooks[0], in.outlook()
	switch {
	case o == day:
		return ""
	case in.Retention > 0 && in.Retention < day.needs():
		return fmt.Sprintf("The topic keeps records for %s, so the season is %s. With a retention of %s or more, a season of %s forecasts days.",
			FormatDuration(in.Retention), FormatDuration(o.season), FormatDuration(day.needs()), FormatDuration(day.season))
	}
	return fmt.Sprintf("The topic's records reach back %s, so the season is %s. Once they reach back %s, a season of %s forecasts days.",
		FormatDuration(in.History.Round(time.Second)), FormatDuration(o.season), FormatDuration(day.needs()), FormatDuration(day.season))
}

// comment is a text as a comment in a job's block, "" for none.
func comment(text string) string {
	var out strings.Builder
	for _, line := range wrap(text, 110) {
		out.WriteString("  # " + line + "\n")
	}
	return out.String()
}

// quote writes text as an HCL string, its templates escaped.
func quote(s string) string { return string(hclwrite.TokensForValue(cty.StringVal(s)).Bytes()) }

func quoteAll(texts []string) []string {
	out := make([]string, len(texts))
	for i, s := range texts {
		out[i] = quote(s)
	}
	return out
}

func quoteList(texts []string) string { return "[" + strings.Join(quoteAll(texts), ", ") + "]" }
