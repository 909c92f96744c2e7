package core

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/estimator"
)

// What was measured with workers of another kind is no measurement of those that train now. A job that was stopped and is started with slower accelerators, say, would
// otherwise be scaled in by what the faster ones trained. It is the best guess all the same, with its shape, so that it takes the place of the job file's theta.
// Where workers are set up again as some were before, what was measured with those is the prior: the guess could stay for as long as no load is full.

// taught says under which settings of the workers the throughput model has learnt what the state keeps of it.
type taught struct {
	// Settings is a digest of what bears on the speed of a worker.
	Settings string `json:"settings"`
	// File is the prior of the job file by which it was learnt.
	File estimator.Model `json:"file"`
	// Prior is what was learnt before, last at Until, nil: nothing. It holds for as long as the job file says what File is. Own: under these settings; otherwise under
	// others.
	Prior *estimator.Model `json:"prior,omitempty"`
	Until time.Time        `json:"until,omitzero"`
	Own   bool             `json:"own,omitempty"`
	// Known is what was learnt under other settings, one each, those that were left last at the end; at most knownKept.
	Known []learnt `json:"known,omitempty"`
}

// learnt is what was measured with the workers of some settings, last at Until, by the prior that the job file then stated.
type learnt struct {
	Settings string          `json:"settings"`
	File     estimator.Model `json:"file"`
	Model    estimator.Model `json:"model"`
	Until    time.Time       `json:"until,omitzero"`
}

// knownKept is for how many other settings what was measured is kept. [ours]
const knownKept = 4

// otherWorkersError is how far what was measured with other workers is off, relative: for different accelerators more than for a theta that was measured on these. [ours]
const otherWorkersError = 0.3

// slowing are the parts of the job file that bear on how fast workers train, by their paths in startedWith; a path that ends in a dot stands for all below it.
var slowing = []string{"workers.", "servers.", "model.batch", "model.linger", "features.", backendBlock}

// speedOf is a digest of what of the settings with which a worker was started bears on its speed.
func speedOf(j *job.Job, with startedWith) string {
	sum := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(with)) {
		if slices.ContainsFunc(slowing, func(p string) bool { return path == p || strings.HasSuffix(p, ".") && strings.HasPrefix(path, p) }) {
			fmt.Fprintf(sum, "%s %q ", path, with[path])
		}
	}
	model := j.Model // of which CheckCheckpoint lets nothing change while the checkpoint stays
	shape, err := json.Marshal([]any{model.Kind, model.EmbeddingDim, model.Hidden, model.Optimiser.Kind, j.Servers.Count, len(j.Features.Sparse), len(j.Features.Dense)})
	if err != nil {
		panic("core: the shape of a model: " + err.Error()) // numbers and names always have a JSON form
	}
	sum.Write(shape)
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// workersSettings is the speedOf of the workers that are wanted, or of those that would be started where none is; "": they differ, or it is not known.
func (s *Scheduler) workersSettings() string {
	says := ""
	for _, rank := range s.want.Ranks {
		id := workerID(rank, s.want.Workers[rank])
		i := slices.IndexFunc(s.want.Started, func(st started) bool { return slices.Contains(st.Processes, id) })
		if i < 0 || s.want.Started[i].With == nil {
			return ""
		}
		one := speedOf(s.job, s.want.Started[i].With)
		if says != "" && one != says {
			return ""
		}
		says = one
	}
	if says == "" {
		return speedOf(s.job, startsWith(s.job))
	}
	return says
}

// openOnline takes up what the throughput model had learnt.
func (s *Scheduler) openOnline() (err error) {
	s.prior = Prior(s.job)
	prior, opt := s.learntFrom()
	if s.online, err = estimator.NewOnline(prior, opt); err != nil {
		return err
	}
	if s.want.Throughput.Version > 0 {
		learnt, err := estimator.RestoreOnline(prior, opt, s.want.Throughput)
		if err != nil {
			s.lg.Warn("what the throughput model had learnt cannot be used; starting from the job file's", "err", err)
		} else {
			s.online = learnt
		}
	}
	return s.relearn()
}

// learntFrom is the prior from which the model learns: what workers have taught it before, or the job file's.
func (s *Scheduler) learntFrom() (estimator.Model, estimator.OnlineOptions) {
	opt, t := onlineOptions(s.job), s.want.Taught
	if !s.learntBefore() {
		return s.prior, opt
	}
	if !t.Own {
		opt.PriorError = otherWorkersError
	}
	return *t.Prior, opt
}

// learntBefore tells whether the prior is what was learnt before, and not the job file's.
func (s *Scheduler) learntBefore() bool {
	t := s.want.Taught
	return t != nil && t.Prior != nil && t.File.Equal(s.prior)
}

// relearn makes what was measured a prior where the workers are not those any more of which it was.
func (s *Scheduler) relearn() error {
	settings, t := s.workersSettings(), s.want.Taught
	switch {
	case settings == "":
		return nil
	case t == nil: // nothing was learnt, or by an older scheduler, which did not say how
		s.want.Taught = &taught{Settings: settings, File: s.prior}
		return nil
	case t.Settings == settings:
		if t.Prior != nil && !t.File.Equal(s.prior) && len(s.online.Evidence()) > 0 { // it is learnt by a newer theta now
			t.Prior, t.Until, t.Own = nil, time.Time{}, false
		}
		if t.Prior == nil {
			t.File = s.prior
		}
		return nil
	}
	s.want.Taught = s.taughtBy(settings)
	prior, opt := s.learntFrom()
	online, err := estimator.NewOnline(prior, opt)
	if err != nil {
		return err
	}
	s.lg.Info("the workers are others than those of which throughput was measured: the model is a guess from now on, until these are measured",
		"model", prior.String(), "by", s.priorSource())
	s.online, s.want.Throughput = online, online.State()
	return nil
}

// taughtBy is what is known of workers whose settings become these: what was measured with such workers, or what was learnt last of others. A theta that was changed
// since is a newer word than either, and counts instead.
func (s *Scheduler) taughtBy(settings string) *taught {
	t, next := s.want.Taught, &taught{Settings: settings, File: s.prior}
	left, measured := s.leaves()
	next.Known = slices.Clone(t.Known)
	if measured {
		next.Known = slices.DeleteFunc(next.Known, func(l learnt) bool { return l.Settings == left.Settings })
		next.Known = append(next.Known, left)
	}
	again := slices.IndexFunc(next.Known, func(l learnt) bool { return l.Settings == settings && l.File.Equal(s.prior) })
	switch {
	case again >= 0:
		was := next.Known[again]
		next.Prior, next.Until, next.Own = &was.Model, was.Until, true
		next.Known = slices.Delete(next.Known, again, again+1) // back in it once these settings are left
	case !t.File.Equal(s.prior):
	case measured:
		next.Prior, next.Until = &left.Model, left.Until
	default:
		next.Prior, next.Until = t.Prior, t.Until
	}
	next.Known = next.Known[max(0, len(next.Known)-knownKept):] // only now: the oldest may be the one that is wanted
	return next
}

// leaves is what was measured with the workers whose settings are left, if anything ever was.
func (s *Scheduler) leaves() (left learnt, measured bool) {
	t := s.want.Taught
	left = learnt{Settings: t.Settings, File: t.File}
	switch {
	case len(s.online.Evidence()) > 0:
		left.Model, left.Until = s.online.Model(), lastMeasured(s.online)
	case t.Prior != nil && t.Own:
		left.Model, left.Until = *t.Prior, t.Until
	default:
		return left, false
	}
	return left, true
}

// lastMeasured is when the model was taught last.
func lastMeasured(o *estimator.Online) (at time.Time) {
	for _, p := range o.Points() {
		if p.Last.After(at) {
			at = p.Last
		}
	}
	return at
}

// priorSource names where the prior comes from, for people. A guess by other workers may be too low and hold workers in vain for as long as the load is never full, so
// it says what ends that.
func (s *Scheduler) priorSource() string {
	if s.learntBefore() {
		until := s.want.Taught.Until.Local().Format("2006-01-02 15:04")
		if s.want.Taught.Own {
			return "what was measured with these workers, until " + until
		}
		return "what was measured with other workers, until " + until + "; kale profile measures these"
	}
	if source := s.job.Throughput.Source; source != "" {
		return source
	}
	return "the job file's theta"
}
