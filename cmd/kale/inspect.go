package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/cmd/kale/doctor"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/traffic"
)

// inspection says how far a job is looked at.
type inspection struct {
	recordFlags
	offline bool // ask neither brokers nor the backend's cluster
	lenient bool // brokers and a cluster that do not answer forbid nothing
	starts  bool // the job is about to be taken up: until the caller ends loaded.start, a stop waits for that
	alone   bool // the job is to be run or planned without a pool
	free    bool // whoever has the job is told before all that is wrong besides
	// all: the backend is asked even where nothing is wrong so far. Otherwise only beside mistakes, so that all are told at once: who goes on asks it anyway.
	all bool
}

// What is left out where a mistake forbids to look at it.
const (
	checkpoint = "the checkpoint folder"
	block      = "the backend block"
	room       = "whether the backend has what its block names, and room for the job"
	topic      = "the topic"
	records    = "the features against the topic's records"
	capacity   = "whether workers.max can train what arrives"
	forecasts  = "the forecast model"
	training   = "whether a worker could train here"
	cuda       = "whether a worker could train on a GPU"
)

// standIn names a job whose own name cannot be used.
const standIn = "name"

// read reads a job file as far as that goes. The job of what it gives is nil where nothing could be read.
func (a *app) read(how invocation) (*loaded, hcl.Diagnostics, error) {
	draft, files, diags := job.Read(how.File, how.Vars, how.VarFiles)
	return a.drafted(how, draft, files, diags)
}

// drafted is what a draft of a job gives here.
func (a *app) drafted(how invocation, draft *job.Draft, files job.Files, diags hcl.Diagnostics) (*loaded, hcl.Diagnostics, error) {
	l := &loaded{Job: draft.Job, files: files, how: how, draft: draft}
	if l.Job == nil {
		if draft.Torn {
			l.unchecked = []string{"what the file says, its topic and its backend"}
		}
		return l, diags, nil
	}
	named := draft.Known("name")
	if !named {
		l.Name = standIn
	}
	var err error
	if l.dir, err = a.jobDir(l.Name); err != nil {
		return nil, diags, err
	}
	if l.again = named && ranIn(l.dir); named && draft.Known("throughput") {
		found := profiled(l.Job, l.dir)
		l.profile = found.stored
		diags, l.lacking, l.unmeasured = append(diags, l.new(found.diags)...), l.new(found.lacking), l.new(found.unmeasured)
	}
	return l, diags, nil
}

// inspect reads a job and asks those who know more than its file tells: the brokers, the file system, the backend's plugin and its cluster. A mistake in one part
// keeps no other from being asked. An error is for what could not be asked; the diagnostics are whole otherwise.
func (a *app) inspect(ctx context.Context, arg string, f jobFlags, how inspection) (*loaded, job.TopicInfo, hcl.Diagnostics, error) {
	given, err := a.invocation(arg, f)
	if err != nil {
		return nil, job.TopicInfo{}, nil, err
	}
	l, diags, err := a.read(given)
	if err != nil {
		return nil, job.TopicInfo{}, diags, err
	}
	if l.Job != nil && l.draft.Known("name") {
		if how.free {
			if err := a.taken(ctx, l); err != nil {
				return l, job.TopicInfo{}, nil, err
			}
		}
		diags = append(diags, a.renamed(ctx, l, arg)...)
		if how.alone {
			diags = append(diags, a.poolless(ctx, l, []string{arg}, how.starts)...)
		}
		if how.starts {
			if err := a.takeUp(ctx, l); err != nil {
				return l, job.TopicInfo{}, nil, err
			}
		}
	}
	info, more, err := a.askAround(ctx, l, how, diags.HasErrors())
	return l, info, inOrder(append(diags, more...)), err
}

// takeUp notes that this command is about to take a job up, for others (starting); of itself it does not say so. It waits for a kale stop or forget that came first.
func (a *app) takeUp(ctx context.Context, l *loaded) error {
	err := a.awaitStopping(ctx, l.Name, l.dir)
	if err == nil {
		l.start, err = a.startUnforgotten(ctx, l.Name, l.dir)
	}
	switch {
	case err == nil:
		a.takesUp = append(a.takesUp, l.Name)
	case ctx.Err() != nil:
		err = a.interrupted(l)
	}
	return err
}

// inOrder sorts diagnostics as they stand in the file. Of an error and a warning about the same words the warning is left out.
func inOrder(diags hcl.Diagnostics) hcl.Diagnostics {
	job.InFileOrder(diags)
	return slices.DeleteFunc(diags, func(w *hcl.Diagnostic) bool {
		return w.Severity == hcl.DiagWarning && w.Subject != nil && slices.ContainsFunc(diags, func(d *hcl.Diagnostic) bool {
			return d.Severity == hcl.DiagError && d.Subject != nil && *d.Subject == *w.Subject
		})
	})
}

// askAround is inspect for a job that was read, with or without mistakes.
func (a *app) askAround(ctx context.Context, l *loaded, how inspection, mistaken bool) (info job.TopicInfo, diags hcl.Diagnostics, err error) {
	if l.Job == nil {
		return info, nil, nil
	}
	if l.draft.Known("name") {
		if l.want, l.unread = a.wanted(ctx, l.Name, l.dir); l.unread != nil {
			a.advise("Not compared with what runs of job %q: %v.\n", l.Name, l.unread)
		}
	}
	l.offline = how.offline
	info, diags, err = a.preflight(ctx, l, how)
	diags = slices.Concat(l.lacking, l.unmeasured, diags)
	if !how.all && l.draft.Known("model.kind") && l.draft.Known("workers") {
		if _, _, found, e := a.trainer(ctx, a.logger("warn"), l); e == nil { // who goes on says what else is wrong
			mistaken = mistaken || found.HasErrors()
		}
	}
	if err == nil && (how.all || mistaken || l.wrongBlock || diags.HasErrors()) {
		var more hcl.Diagnostics
		if more, err = a.askBackend(ctx, l, !how.offline); l.again || how.lenient || !how.all {
			more = whileSilent(more)
		}
		diags = append(diags, more...)
	}
	return info, diags, err
}

// besides is what a command ends with that has told mistakes (errShown), and failed at something else too.
func (a *app) besides(told, err error) error {
	if told != nil && err != nil && a.asJSON {
		a.judge(diagnosticJSON{Severity: severityError, Summary: err.Error()})
		return told
	}
	if told != nil && err != nil {
		fmt.Fprint(a.err, "\n", a.complaint(err))
		return told
	}
	return cmp.Or(told, err)
}

// tell prints diagnostics, and what was not looked at for them. errShown: there are errors among them.
func (a *app) tell(l *loaded, diags hcl.Diagnostics) error {
	err := a.diagnose(l.files, diags)
	if errors.Is(err, errShown) && a.asJSON {
		a.judged.add(l)
		return err
	}
	if errors.Is(err, errShown) && len(l.unchecked) > 0 {
		a.advise("\nNot checked until this is mended: %s.\n", strings.Join(l.unchecked, "; "))
	}
	return err
}

// can says that parts of the job's file can be relied on. Otherwise something is not checked, which is noted.
func (l *loaded) can(what string, paths ...string) bool {
	if l.draft == nil {
		return true // it was read without mistakes
	}
	for _, p := range paths {
		if !l.draft.Sound(p) {
			l.omit(what)
			return false
		}
	}
	return true
}

// omit notes that something is not checked because of a mistake.
func (l *loaded) omit(what string) {
	if !slices.Contains(l.unchecked, what) {
		l.unchecked = append(l.unchecked, what)
	}
}

// new leaves out what follows from a mistake that was told already.
func (l *loaded) new(diags hcl.Diagnostics) hcl.Diagnostics {
	return slices.DeleteFunc(slices.Clone(diags), func(d *hcl.Diagnostic) bool {
		return l.draft != nil && d.Subject != nil && l.draft.Told(*d.Subject)
	})
}

// askBackend asks the backend's plugin about its block and, where the cluster may be asked, whether the job would find room now. It starts nothing.
func (a *app) askBackend(ctx context.Context, l *loaded, cluster bool) (diags hcl.Diagnostics, err error) {
	lg := a.logger("warn")
	o := core.Options{Job: l.Job, StateDir: l.dir, Log: lg}
	var unfit error
	if l.draft.Known("model.kind") && l.draft.Known("workers") {
		o.Trainer, o.Env, diags, unfit = a.trainer(ctx, lg, l)
		diags = l.new(diags)
	} else if l.draft.Known("backend") && l.Backend.Name == job.BackendLocal {
		l.omit(training)
	}
	if l.draft.Known("backend") && l.draft.Known("network") {
		diags = append(diags, l.new(core.CheckNetwork(l.Job))...)
	}
	held := l.can(checkpoint, "name", "checkpoint.dir")
	notTakenUp := func(list core.Lister) hcl.Diagnostics {
		if !held {
			return nil
		}
		return l.new(core.NotTakenUp(ctx, list, l.Job, l.want, l.draft.Known))
	}
	if held {
		running := core.CheckRunning(l.Job, l.want)
		if diags = append(diags, l.new(running)...); running.HasErrors() {
			l.omit(block)
			return diags, unfit
		}
		diags = append(diags, l.new(slices.Concat(core.CheckCheckpoint(l.Job), core.CheckModel(l.Job, l.want)))...)
	}
	if !l.draft.Known("backend") {
		l.omit(block)
		if cluster {
			l.omit(room)
		}
		return append(diags, notTakenUp(nil)...), unfit
	}
	path, more := a.plugin(l)
	if diags = append(diags, more...); more.HasErrors() {
		l.omit(block)
		if cluster {
			l.omit(room)
		}
		return append(diags, notTakenUp(nil)...), unfit
	}
	answered := a.awaitBackend(l.Job)
	b, err := backend.Launch(ctx, lg, path, backend.Options{SocketDir: l.dir})
	if err != nil {
		answered()
		return append(diags, notTakenUp(nil)...), errors.Join(unfit, err)
	}
	more, err = core.ConfigureBackend(ctx, b, l.Job, l.dir)
	answered()
	o.Backend = a.bounded(b, l.Job)
	diags = append(diags, slices.DeleteFunc(l.new(more), func(d *hcl.Diagnostic) bool {
		return slices.ContainsFunc(diags, func(told *hcl.Diagnostic) bool { // of the trainer, before the plugin
			return d.Subject != nil && told.Subject != nil && told.Summary == d.Summary && *told.Subject == *d.Subject
		})
	})...)
	if cluster && err == nil && !more.HasErrors() {
		diags = append(diags, notTakenUp(func(ctx context.Context) ([]backend.Status, bool, error) {
			return core.Processes(ctx, o.Backend, l.Name)
		})...)
	} else {
		diags = append(diags, notTakenUp(nil)...)
	}
	switch {
	case err != nil || !cluster:
	case more.HasErrors() || unfit == nil && o.Trainer == "": // a process without a program fits nowhere
		l.omit(room)
	case unfit == nil && l.can(room, "name", "workers", "servers", "backend"):
		more, err = core.PlacementDiagnostics(ctx, o)
		diags = append(diags, l.new(more)...)
	}
	return diags, errors.Join(unfit, err, b.Close())
}

// preflight is everything that must hold before a job is planned or run, save its backend: what the brokers say, and what this machine has. It changes nothing.
//
// Brokers that do not answer are an error to whom their answer decides (validate, the first run of a job), save for a job that ran here before: it had a
// good topic and good records, they may come back, and a scheduler that is started meanwhile holds what is. With lenient they are only a warning.
func (a *app) preflight(ctx context.Context, l *loaded, how inspection) (job.TopicInfo, hcl.Diagnostics, error) {
	var info job.TopicInfo
	var diags hcl.Diagnostics
	if !how.offline {
		var found hcl.Diagnostics
		var err error
		info, found, err = a.askBrokers(ctx, l, recordFlags{any: how.any, again: l.again})
		if err != nil {
			return info, nil, err
		}
		if info.Err != nil && (l.again || how.lenient) {
			found = warnings(found)
		}
		diags = found
	}
	if !l.again { // else its start was pinned then
		diags = append(diags, l.StartDiagnostics(time.Now())...)
	}
	if l.draft.Known("name") {
		diags = append(diags, doctor.CheckState(l.dir)...)
	}
	if l.can(checkpoint, "checkpoint.dir") {
		diags = append(diags, core.CheckFolder(l.Job)...)
	}
	if l.draft.Known("forecast.interval") {
		found := core.CheckForecast(l.Job)
		if len(found) == 0 && how.all {
			found = core.TryForecast(ctx, l.Job)
		}
		diags = append(diags, found...)
	} else if l.Forecast.ModelFile() != "" {
		l.omit(forecasts)
	}
	if l.draft.Known("workers") && l.draft.Known("throughput") && l.draft.Known("servers") && l.draft.Known("model") {
		diags = append(diags, core.CheckEmulated(l.Job)...)
		diags = append(diags, core.CheckSuperlinear(l.Job)...)
		diags = append(diags, core.CheckPeak(l.Job)...)
	}
	return info, l.new(diags), nil
}

// askBrokers asks the brokers about the job's topics and their newest records, and holds the job against the answer.
func (a *app) askBrokers(ctx context.Context, l *loaded, f recordFlags) (info job.TopicInfo, diags hcl.Diagnostics, err error) {
	j := l.Job
	if !l.draft.Sound("stream", "stream.topic", "stream.start", "stream.on_lost", "stream.on_undecodable", "stream.dead_letter") || !l.draft.Known("stream.topic") {
		l.omit(topic)
		l.omit(records)
		return info, nil, nil
	}
	if diags = core.CheckConnection(j); diags.HasErrors() {
		l.omit(topic)
		l.omit(records)
		return info, diags, nil
	}
	if !l.draft.Sound("stream.dead_letter") {
		j.Stream.DeadLetter = "" // what is wrong with it was told
	}
	info, diags, err = a.checkTopics(ctx, j)
	if err != nil || info.Err != nil || !info.Exists || info.Partitions == 0 {
		if diags.HasErrors() {
			l.omit(records)
		}
		return info, diags, err
	}
	if l.want.Runs() { // it trains on whether it has a scheduler or not, and one tells what that means
		diags = butWarned(diags, job.Compacted(j.Stream.Topic))
	}
	more, err := a.askFurther(ctx, l, f)
	return info, append(diags, more...), err
}

// checkTopics is doctor.CheckTopics for brokers that may be silent: those that were for a job before are not waited for again.
func (a *app) checkTopics(ctx context.Context, j *job.Job) (info job.TopicInfo, diags hcl.Diagnostics, err error) {
	brokers := strings.Join(j.Stream.Brokers, ", ")
	if silence := a.silent[brokers]; silence != nil {
		info.Err = fmt.Errorf("ask the brokers for topic %q: %w", j.Stream.Topic, silence)
		return info, j.TopicDiagnostics(info), nil
	}
	answered := a.awaitBrokers(j.Stream.Brokers, traffic.RequestTimeout)
	defer answered()
	info, diags, err = doctor.CheckTopics(ctx, j)
	var silence traffic.Silence
	if errors.As(info.Err, &silence) {
		if a.silent == nil {
			a.silent = map[string]error{}
		}
		a.silent[brokers] = silence
	}
	return info, diags, err
}

// askFurther asks brokers that have answered for a job's topics what else they know. Once they have left a question unanswered they are asked nothing more.
func (a *app) askFurther(ctx context.Context, l *loaded, f recordFlags) (diags hcl.Diagnostics, err error) {
	j := l.Job
	var unasked []string
	silent := false
	ask := func(what string, limit time.Duration, question func() (hcl.Diagnostics, error)) {
		if silent {
			unasked = append(unasked, what)
		}
		if silent || err != nil {
			return
		}
		began, answered := time.Now(), a.awaitBrokers(j.Stream.Brokers, limit)
		var found hcl.Diagnostics
		found, err = question()
		answered()
		diags, silent = append(diags, found...), time.Since(began) >= traffic.RequestTimeout
	}
	if l.unread == nil && l.can(checkpoint, "name", "checkpoint.dir") {
		ask("whether the topic still has what is to be trained", traffic.RequestTimeout, func() (hcl.Diagnostics, error) {
			return core.CheckResume(ctx, j, l.want), nil
		})
	}
	if l.draft.Known("model.kind") && l.draft.Known("features.format") {
		ask(records, doctor.SampleTimeout, func() (hcl.Diagnostics, error) {
			_, found, err := doctor.CheckRecords(ctx, j)
			for i, d := range warnings(found) {
				if f.any || f.again && found[i].Summary != job.OtherFormat {
					found[i] = d
				}
			}
			return found, err
		})
	}
	for _, p := range []string{"model.kind", "features.format", "features.label", "features.sparse", "features.dense"} {
		if !l.draft.Known(p) { // what could be read was held against the records, where they could be
			l.omit(records)
		}
	}
	if l.can(capacity, "workers", "throughput", "servers") {
		ask(capacity, traffic.RequestTimeout, func() (hcl.Diagnostics, error) { return doctor.CheckThroughput(ctx, j, time.Now()) })
	}
	if len(unasked) > 0 && ctx.Err() == nil {
		diags = append(diags, j.WarningAt("stream.brokers", "The brokers have stopped answering", fmt.Sprintf("Not checked for that: %s.", strings.Join(unasked, "; "))))
	}
	return diags, err
}

// whileSilent are diagnostics of which that the cluster does not answer forbids nothing.
func whileSilent(diags hcl.Diagnostics) hcl.Diagnostics { return butWarned(diags, core.ClusterSilent) }

// butWarned are diagnostics of which those with a summary forbid nothing.
func butWarned(diags hcl.Diagnostics, summary string) hcl.Diagnostics {
	out := slices.Clone(diags)
	for i, d := range out {
		if d.Summary == summary {
			out[i] = warnings(hcl.Diagnostics{d})[0]
		}
	}
	return out
}

// warnings are diagnostics that forbid nothing.
func warnings(diags hcl.Diagnostics) hcl.Diagnostics {
	out := slices.Clone(diags)
	for i, d := range out {
		w := *d
		w.Severity = hcl.DiagWarning
		out[i] = &w
	}
	return out
}
