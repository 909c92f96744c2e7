package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/backend"
)

// Attributes of the block whose values are names that a cluster has or has not.
const (
	attrPartition   = "partition"
	attrAccount     = "account"
	attrQOS         = "qos"
	attrReservation = "reservation"
	attrClusters    = "clusters"
	attrConstraint  = "constraint"
	attrExclude     = "exclude"
	attrGRES        = "gres" // or gpus, whichever the block has
	attrTime        = "time"
	attrDirectives  = "directives"
	attrProperties  = "properties"
	attrToken       = "token_file" // or rest, where the block has no file
	attrRest        = "rest"
	attrBinDir      = "bin_dir"
	attrSharedDir   = "shared_dir"
)

// asked is what the block asks for by an attribute, and where.
type asked struct {
	value string
	at    hcl.Range
}

// mistakes gives what in the block Slurm says cannot be, each at its place: names that it does not have, and what it refused a job for.
func (j *job) mistakes(ctx context.Context, nodes []node, refusals []*refusal) backend.Diagnostics {
	var diags hcl.Diagnostics
	told := map[string]bool{} // attributes of which something was said
	add := func(attr string, at hcl.Range, summary, detail string) {
		told[attr] = true
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: detail, Subject: at.Ptr()})
	}
	for _, attr := range []string{attrPartition, attrAccount, attrQOS, attrReservation} {
		a, set := j.set.asked[attr]
		if !set {
			continue
		}
		has, known := j.names(ctx, attr)
		for _, want := range strings.Split(a.value, ",") {
			if known && !slices.Contains(has, want) {
				add(attr, a.at, "No such "+attrNoun(attr), absent(attr, want, has))
			}
		}
	}
	refusesGRES := slices.ContainsFunc(refusals, func(r *refusal) bool { return r != nil && r.attr == attrGRES })
	if a, set := j.set.asked[attrGRES]; set && j.set.gpuType != "" && !refusesGRES {
		if models := gpuModels(nodes); len(models) > 0 && !slices.Contains(models, j.set.gpuType) {
			add(attrGRES, a.at, "No such GPU", absent(attrGRES, j.set.gpuType, models))
		}
	}
	if len(j.set.named) > 0 {
		if has, known := j.names(ctx, attrProperties); known {
			for _, p := range j.set.named {
				if !slices.Contains(has, p.value) {
					add(attrProperties, p.at, "No such property", absent(attrProperties, p.value, slices.DeleteFunc(has, isOurs)))
				}
			}
		}
	}
	if a, set := j.set.asked[attrExclude]; set && j.set.excludesAll(nodes) {
		add(attrExclude, a.at, "No node is left", j.noNodeLeft())
	}
	for _, r := range refusals {
		if r == nil || told[r.attr] {
			continue
		}
		if a, set := j.set.asked[r.attr]; set {
			add(r.attr, a.at, "Slurm refuses it", fmt.Sprintf("Slurm says of %q: %s. Correct it: %s.", a.value, r.said, r.advice))
		}
		for _, d := range r.directives {
			add(attrDirectives, d.at, "Slurm refuses it", fmt.Sprintf("Slurm says of %q: %s. Correct it or take it out%s.", d.value, d.says, d.hint()))
		}
	}
	if !told[attrTime] && !told[attrPartition] {
		diags = append(diags, j.tooLong(ctx)...)
	}
	if !told[attrTime] && !told[attrQOS] {
		diags = append(diags, j.tooLongOf(ctx)...)
	}
	return backend.FromHCL(backend.Config{}, diags)
}

// tooLong warns of a time limit above that of all partitions which a job may go to: where Slurm does not refuse it, the job waits.
func (j *job) tooLong(ctx context.Context) hcl.Diagnostics {
	a, set := j.set.asked[attrTime]
	if !set {
		return nil
	}
	limits, fallback, err := j.queue.ctl.longest(ctx)
	if err != nil {
		j.lg.Warn("how long jobs may run cannot be asked", "err", err)
		return nil
	}
	var most time.Duration
	for name := range strings.SplitSeq(cmp.Or(j.set.partition, fallback), ",") {
		limit, known := limits[name]
		if !known || limit >= j.set.limit {
			return nil
		}
		most = max(most, limit)
	}
	d := backend.Mistake(a.at, "Time limit above the partition's", "time is %q, and partition %s lets jobs run for %s at most: they would wait in the queue for ever, unless a QOS of theirs lifts that. Lower time.",
		a.value, cmp.Or(j.set.partition, fallback), span(most))
	d.Severity = hcl.DiagWarning
	return hcl.Diagnostics{d}
}

// tooLongOf warns of a time limit above that of the QOS.
func (j *job) tooLongOf(ctx context.Context) hcl.Diagnostics {
	a, set := j.set.asked[attrTime]
	qos, has := j.set.asked[attrQOS]
	if !set || !has {
		return nil
	}
	limit, known, err := j.queue.ctl.longestOf(ctx, qos.value)
	if err != nil {
		j.lg.Warn("how long jobs of a QOS may run cannot be asked", "qos", qos.value, "err", err)
	}
	if !known || limit >= j.set.limit {
		return nil
	}
	d := backend.Mistake(a.at, "Time limit above the QOS's", "time is %q, and QOS %s lets jobs run for %s at most: they would wait in the queue for ever. Lower time.", a.value, qos.value, span(limit))
	d.Severity = hcl.DiagWarning
	return hcl.Diagnostics{d}
}

// judged is a directive that Slurm refuses, and what it says.
type judged struct {
	asked
	says string
}

// hint is what may have been meant by it.
func (d judged) hint() string {
	if name, _ := optionName(d.value); (name == "nodelist" || name == "w") && strings.Contains(d.says, "number of nodes") {
		return ": it names all the nodes of a job, and each process is a job of one. To keep to some nodes, name the others in exclude, or use constraint"
	}
	return ""
}

// culprits gives the directives for which Slurm has refused such a job, and what it says of the job without any, nil where it would take that. While it refuses
// that too, only directives of which it says something else can be told.
func (j *job) culprits(ctx context.Context, b batch, no *slurmError) (out []judged, bare error) {
	all := b.set.directives
	if len(all) == 0 || no.said == "" {
		return nil, nil
	}
	b.set.directives = nil
	_, bare = j.queue.ctl.test(ctx, b)
	without := new(slurmError)
	if bare != nil && !errors.As(bare, &without) {
		return nil, nil // Slurm could not be asked
	}
	for _, d := range all {
		b.set.directives = []asked{d}
		var e *slurmError
		if _, err := j.queue.ctl.test(ctx, b); errors.As(err, &e) && e.said != "" && e.words() != without.words() {
			out = append(out, judged{d, e.words()})
		}
	}
	return out, bare
}

// unaskable gives what in the block is wrong where Slurm could not be asked anything for it; ok is false where it is another thing.
func (j *job) unaskable(ctx context.Context, err error, ws []backend.Workload) (report backend.Report, ok bool) {
	advice := "Give one that is good, which scontrol token prints: in the environment as SLURM_JWT, or in a file that token_file names."
	if j.set.way.tokenFile != "" {
		advice = "Write one that is good, which scontrol token prints, to that file."
	}
	token, byREST := j.set.asked[attrToken]
	no, program, socket := refused(err), lackingProgram(err), lackingSocket(err)
	var m *hcl.Diagnostic
	switch {
	case byREST && errors.Is(err, errNoToken):
		m = backend.Mistake(token.at, "The token cannot be read", "%v. %s", err, advice)
	case byREST && no != nil && no.Code == backend.Unauthorised:
		m = backend.Mistake(token.at, "Slurm refuses the token", "Slurm says: %s. %s", no.said, advice)
	case no != nil && no.attr == attrClusters, j.set.way.clusters != "" && databaseless(err):
		m = j.clusterless(ctx, no)
	case socket:
		rest := j.set.asked[attrRest]
		m = backend.Mistake(rest.at, "No such socket", "rest is %q, and there is no such socket here. Start slurmrestd, which makes it, or correct rest.", rest.value)
	case lackingConf(err) != "":
		m = backend.Mistake(hcl.Range{}, "Slurm's configuration cannot be read", "Slurm's programs say of it: %s. To mend that, %s.", lackingConf(err), adviceConf)
	case program != "" && j.set.way.binDir != "":
		m = backend.Mistake(j.set.asked[attrBinDir].at, "Slurm's programs are not there", "bin_dir is %q, and there is no %s in it. Set it to the folder of this machine with sbatch, squeue, scontrol and scancel, "+
			"or leave it out where they are in the PATH.", j.set.way.binDir, program)
	case program != "":
		m = backend.Mistake(hcl.Range{}, "Slurm's programs are not here", "There is no %s in the PATH. Install Slurm's clients on this machine, or set bin_dir to the folder that has them.", program)
	}
	if m == nil {
		return report, false
	}
	return j.impossible(m, ws), true
}

// impossible is the report of a block by which nothing can be placed.
func (j *job) impossible(m *hcl.Diagnostic, ws []backend.Workload) (report backend.Report) {
	report.Mistakes = backend.FromHCL(j.set.begins, hcl.Diagnostics{m})
	for _, w := range ws {
		report.Placements = append(report.Placements, backend.Placement{ID: w.ID, Reason: m.Summary})
	}
	return report
}

// unusable is what is wrong with the shared folder where it cannot be made or written here, nil where it can. It leaves nothing.
func (j *job) unusable() *hcl.Diagnostic {
	dir := j.set.dir
	for {
		info, err := os.Stat(dir)
		if err == nil && !info.IsDir() {
			err = &fs.PathError{Op: "use", Path: dir, Err: unix.ENOTDIR}
		}
		if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
			dir = filepath.Dir(dir)
			continue
		}
		var tried string
		if err == nil {
			tried, err = os.MkdirTemp(dir, ".kale-try-")
		}
		if err == nil {
			err = os.Remove(tried)
		}
		if err == nil {
			return nil
		}
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err
		}
		a, what := j.set.asked[attrSharedDir], "written"
		if dir != j.set.dir {
			what = "made"
		}
		return backend.Mistake(a.at, "Shared folder cannot be used", "shared_dir is %q, and cannot be %s on this machine: %s: %v. Set it to a folder that this machine and all nodes can read and write; "+
			"is its file system mounted here?", a.value, what, dir, err)
	}
}

// databaseless says that Slurm did not answer since its database does not, or since it has none.
func databaseless(err error) bool {
	var e *slurmError
	return errors.As(err, &e) && strings.Contains(e.said, "talking to database")
}

// clusterless is what is wrong with clusters where Slurm could not be asked for it; nil where that is another thing: its database may only be away.
func (j *job) clusterless(ctx context.Context, no *refusal) *hcl.Diagnostic {
	a := j.set.asked[attrClusters]
	has, known, err := j.queue.ctl.names(ctx, attrClusters)
	if known {
		for _, want := range strings.Split(a.value, ",") {
			if !slices.Contains(has, want) {
				return backend.Mistake(a.at, "No such cluster", "%s", absent(attrClusters, want, has))
			}
		}
	}
	switch {
	case err != nil && strings.Contains(err.Error(), "supported accounting_storage"):
		return backend.Mistake(a.at, "No database of clusters", "clusters is %q, and the cluster of this machine has no database (slurmdbd), by which others are found. Leave clusters out.", a.value)
	case no != nil:
		return backend.Mistake(a.at, "Slurm refuses it", "Slurm says of %q: %s. Correct it: %s.", a.value, no.said, no.advice)
	}
	return nil
}

// noNodeLeft says that the block leaves out all nodes, and what to do.
func (j *job) noNodeLeft() string {
	return fmt.Sprintf("exclude is %q, which leaves no node of the partition. Take from it the nodes that may be used.", j.set.exclude)
}

// names gives the partitions, accounts, … that there are for this user; known is false where the cluster does not tell.
func (j *job) names(ctx context.Context, attr string) (has []string, known bool) {
	has, known, err := j.queue.ctl.names(ctx, attr)
	if err != nil {
		j.lg.Warn("what there is of it cannot be asked", "of", attr, "err", err)
		return nil, false
	}
	slices.Sort(has)
	return slices.Compact(has), known
}

func attrNoun(attr string) string {
	switch attr {
	case attrQOS:
		return "QOS"
	case attrClusters:
		return "cluster"
	}
	return attr
}

// absent says that a name is not there, which one may have been meant, and which there are.
func absent(attr, want string, has []string) string {
	what := "Slurm has no " + attrNoun(attr) + " " + fmt.Sprintf("%q", want)
	switch attr {
	case attrAccount, attrQOS:
		what += " for this user"
	case attrClusters:
		what = fmt.Sprintf("Slurm's database has no cluster %q", want)
	case attrProperties:
		what = fmt.Sprintf("slurmrestd knows no property %q of a job", want)
	case attrGRES:
		what = fmt.Sprintf("No node has GPUs of the type %q", want)
	}
	return what + backend.Alternatives(want, has)
}

func gpuModels(nodes []node) []string {
	var out []string
	for _, n := range nodes {
		for _, g := range n.gpus {
			if g.model != "" && !slices.Contains(out, g.model) {
				out = append(out, g.model)
			}
		}
	}
	slices.Sort(out)
	return out
}
