package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// runTogether runs the schedulers of several jobs in one process, on one pool of GPUs where -pool names one. None is started before all could be. One that
// ends, stopped or by a failure, leaves the others alone.
func (a *app) runTogether(ctx context.Context, args []string, f runFlags) error {
	if _, err := a.parseLogger(f.log); err != nil {
		return usageError{err}
	}
	if f.live && len(args) > 1 {
		return usagef("-live shows one job; kale status -watch JOB shows one of several")
	}
	if len(args) > 1 {
		var mu sync.Mutex
		shared := *a
		shared.out, shared.err = &lines{mu: &mu, w: a.out}, &lines{mu: &mu, w: a.err}
		a = &shared
	}
	var starts []*starting
	defer func() {
		for _, s := range starts {
			s.end()
		}
	}()
	begin := func(l *loaded) error {
		if err := a.takeUp(ctx, l); err != nil {
			return err
		}
		starts = append(starts, l.start)
		return nil
	}
	jobs, pool, err := a.loadTogether(ctx, args, f.jobFlags, f.pool, begin, func(l *loaded, diags hcl.Diagnostics) error {
		if l.Job != nil && l.draft.Known("name") && !f.takeOver {
			if err := a.taken(ctx, l); err != nil {
				return err
			}
		}
		if f.pool == "" {
			diags = append(diags, a.poolless(ctx, l, args, true)...)
		}
		_, more, err := a.askAround(ctx, l, inspection{recordFlags: f.recordFlags}, diags.HasErrors())
		if ctx.Err() != nil && l.Job != nil {
			return a.interrupted(l)
		}
		return a.besides(a.tell(l, inOrder(append(diags, more...))), err)
	})
	if err != nil {
		return err
	}
	for _, l := range jobs {
		if pool != nil {
			l.how.Pool, l.how.With = f.pool, namesOf(jobs)
		}
	}
	return a.serveTogether(ctx, &together{args: args, jobs: jobs, pool: pool, gone: map[string]bool{}}, f)
}

// loadTogether reads job files, which must name different jobs, and holds the pool file, if there is one, against them; begin is told of each whose
// name is known; then judge is asked about each. Mistakes in one file, or between them, do not keep the others from being looked at.
func (a *app) loadTogether(ctx context.Context, args []string, f jobFlags, poolFile string, begin func(*loaded) error, judge func(*loaded, hcl.Diagnostics) error) (jobs []*loaded, pool *core.Pool, err error) {
	files := map[string]string{}
	var among company
	var found []hcl.Diagnostics
	for _, arg := range args {
		how, err := a.invocation(arg, f)
		if err != nil {
			return nil, nil, err
		}
		l, diags, err := a.read(how)
		if err != nil {
			return nil, nil, err
		}
		named := l.Job != nil && l.draft.Known("name")
		if first, twice := files[l.nameIf(named)]; twice {
			if among.told = a.tell(l, inOrder(append(diags, l.twice(first, arg)))); !errors.Is(among.told, errShown) {
				return nil, nil, among.told
			}
			continue
		}
		jobs, found = append(jobs, l), append(found, diags)
		if among.add(l, named, diags); !named {
			continue
		}
		files[l.Name] = arg
		if err := begin(l); err != nil {
			return nil, nil, err
		}
	}
	if poolFile != "" {
		pool, err = a.holdPool(ctx, poolFile, args, jobs, among)
	}
	if err = cmp.Or(err, among.told); err != nil && !errors.Is(err, errShown) {
		return nil, nil, err
	}
	for i, l := range jobs {
		if wrong := judge(l, found[i]); wrong != nil {
			if !errors.Is(wrong, errShown) {
				return nil, nil, wrong
			}
			err = wrong
		}
	}
	return jobs, pool, err
}

// company is what is known of jobs that are to run together.
type company struct {
	all      []*job.Job // whose names are known
	sound    []*job.Job // those of them on which a pool may be held
	doubtful []string   // the names of the others
	unnamed  bool       // there are others still
	wrong    bool       // there are mistakes in their files
	told     error      // of two files of one job, that they are: errShown
}

// add adds a job. One with mistakes counts for a pool like any other where what a pool looks at is without.
func (c *company) add(l *loaded, named bool, diags hcl.Diagnostics) {
	c.wrong = c.wrong || diags.HasErrors()
	switch {
	case !named:
		c.unnamed = true
		return
	case !diags.HasErrors(), l.draft.Sound("workers") && l.draft.Sound("autoscale.tick") && l.draft.Sound("backend"):
		c.sound = append(c.sound, l.Job)
	default:
		c.doubtful = append(c.doubtful, l.Name)
	}
	c.all = append(c.all, l.Job)
}

// nameIf is the job's name, where it is known.
func (l *loaded) nameIf(known bool) string {
	if !known {
		return ""
	}
	return l.Name
}

// twice says that an argument before this one is of the same job.
func (l *loaded) twice(first, arg string) *hcl.Diagnostic {
	const one = "a job has one scheduler; name it once"
	if first == arg {
		return l.ErrorAt("name", fmt.Sprintf("Job %q is here twice", l.Name), fmt.Sprintf("%s is named twice: %s.", arg, one))
	}
	return l.ErrorAt("name", fmt.Sprintf("Job %q is here twice", l.Name), fmt.Sprintf("%s and %s are both of job %q: %s, or give one of them another name.", first, arg, l.Name, one))
}

// holdPool reads a pool file and holds it against the jobs, as far as those can be relied on. errShown: mistakes were told, or are of a job's file, where they will be.
func (a *app) holdPool(ctx context.Context, file string, args []string, jobs []*loaded, among company) (pool *core.Pool, err error) {
	rules, sources, diags := job.DraftPool(file)
	if rules == nil {
		return nil, a.diagnose(sources, diags)
	}
	pool = core.NewPool(rules)
	var unasked error
	if diags.HasErrors() || among.wrong || among.told != nil {
		diags = append(diags, rules.CheckSome(among.sound, among.doubtful, !among.unnamed)...)
	} else {
		var unknown hcl.Diagnostics
		if unknown, unasked = a.sizePool(ctx, rules, jobs); ctx.Err() != nil {
			return nil, cmp.Or(unasked, ctx.Err())
		}
		diags = slices.Concat(diags, unknown, rules.Check(among.all))
	}
	if !among.unnamed {
		diags = append(diags, a.missing(ctx, rules, pool, file, args, among.all)...)
	}
	job.InFileOrder(diags)
	return pool, cmp.Or(a.diagnose(sources, diags), unasked)
}

// missing are jobs that were run in a pool last, run still, and are not among those that are to run in it now: what they hold would not count.
func (a *app) missing(ctx context.Context, rules *job.Pool, pool *core.Pool, file string, args []string, all []*job.Job) (diags hcl.Diagnostics) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil
	}
	for _, name := range a.members(ctx, path, func(name string) bool {
		return pool.Names(name) || slices.ContainsFunc(all, func(j *job.Job) bool { return j.Name == name })
	}) {
		diags = append(diags, rules.ErrorAt("gpus", fmt.Sprintf("Job %q holds some of the pool, and is not among the jobs", name), fmt.Sprintf(
			"Run it with them, so that one process knows what each has: kale run %s%s. Or stop it first: kale stop %s%s.",
			a.stateFlag(), quoted(append(slices.Clone(args), name, "-pool", file)), a.stateFlag(), name)))
	}
	return diags
}

// samePool says whether two paths, of which one may be "", are of one pool: of one file, or of two that give it the same name, as a copy does.
func samePool(a, b string) bool {
	if a == "" || b == "" || a == b {
		return a == b
	}
	nameOf := func(file string) string {
		rules, _, _ := job.LoadPool(file) // who runs it is told what is wrong with it
		if rules == nil {
			return ""
		}
		return rules.Name
	}
	at, err := filepath.EvalSymlinks(a)
	bt, e := filepath.EvalSymlinks(b)
	return err == nil && e == nil && (at == bt || nameOf(at) != "" && nameOf(at) == nameOf(bt))
}

// members are the jobs that were run in a pool last and run still, without those that are not asked about. What is not known is not told.
func (a *app) members(ctx context.Context, pool string, without func(name string) bool) (members []string) {
	names, _ := a.jobs() // whoever needs the state folder says what is wrong with it
	for _, name := range names {
		how, err := a.known(name)
		dir, e := a.jobDir(name)
		if err != nil || e != nil || without(name) || !samePool(how.Pool, pool) {
			continue
		}
		if want, _ := a.wanted(ctx, name, dir); want.Runs() {
			members = append(members, name)
		}
	}
	return members
}

// poolless says that a job which is to be run or planned without a pool was run in one last, of which others run still: what each has would not count for the other.
// args name the jobs that it is to be with; runs: they are to be run.
func (a *app) poolless(ctx context.Context, l *loaded, args []string, runs bool) hcl.Diagnostics {
	if l.Job == nil || !l.draft.Known("name") {
		return nil
	}
	how, err := a.known(l.Name)
	if err != nil || how.Pool == "" {
		return nil
	}
	others := a.members(ctx, how.Pool, func(name string) bool { return name == l.Name })
	if len(others) == 0 {
		return nil
	}
	add := slices.DeleteFunc(slices.Clone(others), func(name string) bool {
		other, err := a.known(name)
		return slices.ContainsFunc(args, func(arg string) bool {
			path, e := filepath.Abs(arg)
			return arg == name || err == nil && e == nil && isFile(arg) && path == other.File
		})
	})
	first, verb := ": ", "trains"
	if len(others) > 1 {
		verb = "train"
	}
	if end := a.together(l.Name); runs && end != "" {
		first = "; " + end
	}
	leave := fmt.Sprintf("kale forget %s%s", a.stateFlag(), l.Name)
	if want, _ := a.wanted(ctx, l.Name, l.dir); want.Runs() {
		leave = fmt.Sprintf("kale stop %s%s, and then %s (its checkpoint stays)", a.stateFlag(), l.Name, leave)
	}
	return hcl.Diagnostics{l.ErrorAt("name", fmt.Sprintf("Job %q was run in a pool last, and -pool is missing", l.Name), fmt.Sprintf(
		"%s of that pool %s on, and one process must know what each has%skale %s %s. To take job %q out of the pool: %s.",
		listed(others), verb, first, a.again(), quoted(append(add, "-pool", how.Pool)), l.Name, leave))}
}

// together is jobs that one process runs. It is safe for concurrent use.
type together struct {
	args []string // what names each of jobs
	jobs []*loaded
	pool *core.Pool // nil: each is on its own

	mu   sync.Mutex
	gone map[string]bool // whose scheduler has ended, and whether the job has stopped
}

func namesOf(jobs []*loaded) (names []string) {
	for _, l := range jobs {
		names = append(names, l.Name)
	}
	return names
}

// end notes that the scheduler of a job has ended, and says how the job is taken up again. quitting: the others end too.
func (t *together) end(a *app, name string, stopped, quitting bool) takeUp {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone[name] = stopped
	var without, stay, begin []string
	for i, l := range t.jobs {
		stopped, gone := t.gone[l.Name]
		switch {
		case l.Name == name:
		case stopped && t.pool != nil && t.pool.Names(l.Name):
			begin = append(begin, l.Name)
		case stopped, !gone && !quitting && t.pool == nil:
			without = append(without, t.args[i])
		case !gone && !quitting:
			stay = append(stay, l.Name)
		}
	}
	again := takeUp{command: a.again(without...)}
	if len(stay) > 0 {
		again.first = fmt.Sprintf("; end this kale run first (Ctrl-C; training of %s goes on), then", listed(stay))
	}
	if len(begin) > 0 {
		again.also = fmt.Sprintf(", with %s, which the pool file names too", listed(begin))
	}
	return again
}

// served is a job whose scheduler is open.
type served struct {
	*loaded
	a     *app
	show  *screen
	s     *core.Scheduler
	b     backend.Backend
	close func() // more than once is once
}

// serveTogether opens all schedulers, then runs them until ctx ends or each has ended.
func (a *app) serveTogether(ctx context.Context, t *together, f runFlags) error {
	var open []served
	defer func() {
		for _, o := range open {
			o.close()
		}
	}()
	for _, l := range t.jobs {
		own := *a
		if len(t.jobs) > 1 {
			own.out = a.out.(*lines).of(l.Name)
		}
		show, err := own.newScreen(l, f)
		if err != nil {
			return err
		}
		s, b, closeAll, err := own.open(ctx, l, core.Options{Log: show.lg, Told: !show.live, Progress: show.step, Problems: own.unheard, Pool: t.pool, TrainForecast: own.trainAnew}, f.takeOver)
		if err != nil {
			show.close()
			return err
		}
		open = append(open, served{l, &own, show, s, b, sync.OnceFunc(func() { closeAll(); show.close() })})
	}
	bye := func(o served, quitting bool) farewell {
		v := o.s.View()
		return o.a.farewell(o.loaded, v, t.end(a, o.Name, v != nil && v.Stopped, quitting))
	}
	errs := make([]error, len(open))
	quit := make([]bool, len(open))
	var wg sync.WaitGroup // each ends with ctx, or when its job has stopped
	for i, o := range open {
		wg.Go(func() {
			if err := o.a.serve(ctx, o.show, o.loaded, o.b, o.s); err != nil {
				errs[i] = fmt.Errorf("run job %q: %w", o.Name, err)
				fmt.Fprintf(a.err, "kale: %v; the other jobs go on\n", errs[i])
			}
			o.close() // whoever stopped this job waits until its state is free, and not for the others
			if quit[i] = ctx.Err() != nil; !quit[i] {
				o.a.advise("%v\n", bye(o, false))
			}
		})
	}
	wg.Wait()
	var last []farewell
	for i, o := range open {
		if quit[i] {
			last = append(last, bye(o, true))
		}
	}
	a.advise("%s", farewells(last))
	return errors.Join(errs...)
}

// lines writes whole lines to w, each of them at once, after a prefix. Several may share w and mu.
type lines struct {
	mu     *sync.Mutex
	w      io.Writer
	prefix string
	rest   []byte
}

// of is l with the name of a job before each line.
func (l *lines) of(name string) *lines { return &lines{mu: l.mu, w: l.w, prefix: name + "  "} }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 {
			return len(p), nil
		}
		if _, err := l.w.Write(append([]byte(l.prefix), l.rest[:i+1]...)); err != nil {
			return 0, err
		}
		l.rest = l.rest[i+1:]
	}
}
