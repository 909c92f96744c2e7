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

// taught says under which settings of the workers the throughput model has learnt what the state keeps of it.
type taught struct {
	// Settings is a digest of what bears on the speed of a worker.
	Settings string `json:"settings"`
	// File is the prior of the job file by which it was learnt.
	File estimator.Model `json:"file"`
	// Prior is what was learnt under other settings, last at Until, nil: nothing. It holds for as long as the job file says what File is.
	Prior *estimator.Model `json:"prior,omitempty"`
	Until time.Time        `json:"until,omitzero"`
}

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

// learntFrom is the prior from which the model learns: what other workers have taught it, or the job file's.
func (s *Scheduler) learntFrom() (estimator.Model, estimator.OnlineOptions) {
	opt := onlineOptions(s.job)
	if t := s.want.Taught; t != nil && t.Prior != nil && t.File.Equal(s.prior) {
		opt.PriorError = otherWorkersError
		return *t.Prior, opt
	}
	return s.prior, opt
}

// relearn makes what was measured a prior where the workers are not those any more of which it was. A theta that was changed with them is a newer word than
// that, and counts instead.
func (s *Scheduler) relearn() error {
	settings, t := s.workersSettings(), s.want.Taught
	switch {
	case settings == "":
		return nil
	case t == nil: // nothing was learnt, or by an older scheduler, which did not say how
		s.want.Taught = &taught{Settings: settings, File: s.prior}
		return nil
	case t.Settings == settings:
		if t.Prior == nil {
			t.File = s.prior
		}
		return nil
	}
	next := &taught{Settings: settings, File: s.prior}
	if t.File.Equal(s.prior) {
		next.Prior, next.Until = t.Prior, t.Until
		if len(s.online.Evidence()) > 0 {
			m := s.online.Model()
			next.Prior, next.Until = &m, lastMeasured(s.online)
		}
	}
	s.want.Taught = next
	prior, opt := s.learntFrom()
	online, err := estimator.NewOnline(prior, opt)
	if err != nil {
		return err
	}
	s.lg.Info("the workers are others than those of which throughput was measured: that is a guess from now on, until these are measured", "model", prior.String())
	s.online, s.want.Throughput = online, online.State()
	return nil
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

// priorSource names where the prior comes from, for people.
func (s *Scheduler) priorSource() string {
	if t := s.want.Taught; t != nil && t.Prior != nil && t.File.Equal(s.prior) {
		return "what was measured with other workers, until " + t.Until.Local().Format("2006-01-02 15:04")
	}
	if source := s.job.Throughput.Source; source != "" {
		return source
	}
	return "the job file's theta"
}
