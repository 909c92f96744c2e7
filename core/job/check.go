package job

import (
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/hashicorp/hcl/v2"
)

// mostSteps bounds the points of a history or of a forecast, so that a slip of a unit is found here and not as a
// process that eats the memory.
const mostSteps = 50000

// check fills in defaults that depend on other values, then looks at what only shows when values are seen together.
// What could not be read is left out: it has been reported.
func (d *decoder) check() {
	j := d.job
	derive(j)
	d.checkStream(j)
	d.checkFeatures(j)
	d.checkModel(j)
	d.checkThroughput(j)
	d.checkForecast(j)
	d.checkAutoscale(j)
	d.checkNetwork(j)
	d.checkBackend(j)
}

// derive sets the defaults that the schema describes as derived.
func derive(j *Job) {
	if j.Workers.Queue == 0 {
		j.Workers.Queue = 4 * j.Model.Batch
	}
	if j.Forecast.GateWindow == 0 {
		j.Forecast.GateWindow = 4 * j.Forecast.Horizon
	}
	if j.Autoscale.Fallback.LagOver == 0 {
		j.Autoscale.Fallback.LagOver = j.SLO.MaxLag / 2
	}
}

// ok says whether the values at all these paths, and the blocks around them, could be read.
func (d *decoder) ok(paths ...string) bool {
	for _, path := range paths {
		for ; path != ""; path = parentPath(path) {
			if d.bad[path] {
				return false
			}
		}
	}
	return true
}

// must reports an error at path when the values at path and others could be read and holds is false.
func (d *decoder) must(holds bool, path string, others []string, summary, detail string, args ...any) {
	if !holds && d.ok(append(others, path)...) {
		d.fail(d.job.Range(d.written(path, others)), summary, detail, args...)
	}
}

// written returns the first of path and others that the file writes itself: a mistake against a default is the other's.
func (d *decoder) written(path string, others []string) string {
	for _, p := range append([]string{path}, others...) {
		if _, ok := d.job.ranges[p]; ok {
			return p
		}
	}
	return path
}

func (d *decoder) warn(path, summary, detail string, args ...any) {
	d.add(at(hcl.DiagWarning, d.job.Range(path), summary, fmt.Sprintf(detail, args...)))
}

func (d *decoder) checkStream(j *Job) {
	d.must(len(j.Stream.Brokers) > 0, "stream.brokers", nil, "No brokers", `Name at least one, as in ["kafka-1:9092"].`)
	d.must(j.Stream.DeadLetter == "" || j.Stream.DeadLetter != j.Stream.Topic, "stream.dead_letter", []string{"stream.topic"},
		"Dead letters would be trained again", "%q is the job's own topic: name another for records that cannot be decoded.", j.Stream.DeadLetter)
	if tls := j.Stream.TLS; tls != nil {
		d.must((tls.CertFile == "") == (tls.KeyFile == ""), "stream.tls.cert_file", []string{"stream.tls.key_file"},
			"Certificate and key belong together", "Give both cert_file and key_file, or neither.")
	}
	if sasl := j.Stream.SASL; sasl != nil && sasl.Mechanism == "plain" && j.Stream.TLS == nil && d.ok("stream.tls", "stream.sasl.mechanism") {
		d.warn("stream.sasl.mechanism", "Password in plain text", `Without a tls block, "plain" sends the password readable over the network. Add tls { }, or use "scram-sha-512".`)
	}
}

func (d *decoder) checkFeatures(j *Job) {
	some := len(j.Features.Sparse)+len(j.Features.Dense) > 0
	d.must(j.Model.Kind == ModelCounting || some || !d.ok("model.kind"), "features.sparse", []string{"features.dense"},
		"No features", "Name at least one field in sparse or dense: there is nothing to learn from.")
	seen := map[string]string{}
	for _, group := range []struct {
		path  string
		names []string
	}{{"features.sparse", j.Features.Sparse}, {"features.dense", j.Features.Dense}} {
		for i, name := range group.names {
			path := fmt.Sprintf("%s[%d]", group.path, i)
			if name == "" { // what is wrong with it was told
				continue
			}
			if name == j.Features.Label && d.ok("features.label") {
				d.fail(j.Range(path), "Label among the features", "%q is the label: a model that sees it learns nothing else.", name)
			} else if first, twice := seen[name]; twice {
				d.fail(j.Range(path), fmt.Sprintf("Feature %q twice", name), "It is already in %s: remove one.", first)
			} else {
				seen[name] = group.path
			}
		}
	}
	for path, names := range map[string]*[]string{"features.sparse": &j.Features.Sparse, "features.dense": &j.Features.Dense} {
		if !d.ok(path) {
			*names = nil // the names that it lacks have no place in it
		}
	}
}

func (d *decoder) checkModel(j *Job) {
	m, w := j.Model, j.Workers
	d.must(m.Batch >= w.Chunk, "model.batch", []string{"workers.chunk"}, "Batch smaller than a chunk",
		"model.batch is %d and workers.chunk %d records: raise the batch or lower the chunk.", m.Batch, w.Chunk)
	d.must(m.Batch < w.Chunk || w.Chunk == 0 || m.Batch%w.Chunk == 0, "model.batch", []string{"workers.chunk"}, "Batch is not a whole number of chunks",
		"model.batch is %d and workers.chunk %d records: use %d or %d.", m.Batch, w.Chunk, roundDown(m.Batch, w.Chunk), roundDown(m.Batch, w.Chunk)+w.Chunk)
	d.must(w.Queue >= m.Batch, "workers.queue", []string{"model.batch"}, "Queue shorter than a batch",
		"workers.queue is %d and model.batch %d records: a full batch would never stand in the queue.", w.Queue, m.Batch)
	d.must(w.Min <= w.Max, "workers.min", []string{"workers.max"}, "min is over max", "workers.min is %d and workers.max %d.", w.Min, w.Max)
	d.must(j.Servers.Count <= m.Tablets, "servers.count", []string{"model.tablets"}, "More servers than tablets",
		"%d servers share %d tablets: a server without one has nothing to do. Raise model.tablets.", j.Servers.Count, m.Tablets)
	d.must(m.Kind != ModelDeepFM || len(m.Hidden) > 0, "model.hidden", []string{"model.kind"}, "No deep part", `DeepFM needs at least one layer, as in [64, 32]; "lr" has none.`)
	if _, written := j.ranges["model.hidden"]; written && m.Kind == ModelLR && len(m.Hidden) > 0 && d.ok("model.kind", "model.hidden") {
		d.warn("model.hidden", "A model without hidden layers", `kind is %q, which has no deep part: hidden is not used. Leave it out, or use kind = %q.`, m.Kind, ModelDeepFM)
	}
	d.must(m.Kind != ModelDeepFM || len(j.Features.Sparse) > 0 || len(j.Features.Dense) == 0, "features.sparse", []string{"model.kind", "features.dense"},
		"DeepFM needs sparse features", `Its factorisation machine works on embeddings. Name categorical fields in sparse, or use kind = "lr".`)
	d.checkModelSize(j)
}

// What one model of one step may be at most, as in trainer/model, which the job file's reader may not import (cmd/kale holds that whatever passes here passes there).
const (
	maxLayers = 64
	maxFields = 1 << 14
	maxFloats = 1 << 30 // in one tensor
)

// checkModelSize finds what no process could hold, each value of which is sound by itself.
func (d *decoder) checkModelSize(j *Job) {
	m, f := j.Model, j.Features
	for _, list := range []struct {
		path string
		len  int
	}{{"features.sparse", len(f.Sparse)}, {"features.dense", len(f.Dense)}} {
		d.must(list.len <= maxFields, list.path, nil, "Too many fields", "%d fields; there may be %d.", list.len, maxFields)
	}
	if m.Kind == ModelCounting {
		return
	}
	width := 1
	if m.Kind == ModelDeepFM {
		width += m.EmbeddingDim
		d.must(len(m.Hidden) <= maxLayers, "model.hidden", []string{"model.kind"}, "Too many layers", "%d layers; there may be %d.", len(m.Hidden), maxLayers)
	}
	size := []string{"model.embedding_dim", "model.kind", "features.sparse"}
	batch := float64(m.Batch) * float64(len(f.Sparse)) * float64(width)
	memory := batch * 4
	d.must(batch <= maxFloats, "model.batch", size, "Batch too large", "%d records of %s with rows of %d numbers are %.3g numbers, and a step may hold %d: lower batch or embedding_dim.",
		m.Batch, Count(len(f.Sparse), "sparse field"), width, batch, maxFloats)
	if batch <= maxFloats && memory > float64(j.Workers.Memory) && d.ok(append(size, "model.batch", "workers.memory")...) {
		d.warn("model.batch", "A batch larger than a worker's memory", "The embedding rows of %d records are %s, and workers.memory is %s: lower batch or embedding_dim, or raise workers.memory.",
			m.Batch, FormatSize(int64(memory)), FormatSize(j.Workers.Memory))
	}
	if m.Kind != ModelDeepFM {
		return
	}
	dense, in := 0.0, float64(len(f.Sparse)*m.EmbeddingDim+len(f.Dense))
	for _, h := range m.Hidden {
		dense, in = dense+(in+1)*float64(h), float64(h)
	}
	dense += in + 1 + float64(len(f.Dense))
	d.must(dense <= maxFloats, "model.hidden", []string{"model.embedding_dim", "model.kind", "features.sparse", "features.dense"}, "Model too large",
		"The deep part has %.3g weights, and there may be %d: make layers or embedding_dim smaller.", dense, maxFloats)
}

// forms are the throughput forms: Kale's Eqs. 9, 6, 8 and 5, then the others'.
var forms = []struct {
	name   string
	thetas int  // coefficients
	batch  bool // needs M
}{
	{"async", 3, false}, {"sync", 4, true}, {"async-wp", 4, false}, {"sync-wp", 7, true},
	{"optimus-async", 4, false}, {"optimus-sync", 5, true}, {"ernest", 4, false}, {"pollux", 5, true}, {"usl", 3, false}, {"mixed", 5, false},
}

func throughputForms() []string {
	var names []string
	for _, f := range forms {
		names = append(names, f.name)
	}
	return names
}

// The sum of a step's coefficients that can be meant, in seconds.
const leastTime, mostTime = 1e-15, 1e15

func (d *decoder) checkThroughput(j *Job) {
	t := j.Throughput
	if t.Source == SourceProfile && len(t.Theta) == 0 {
		return // form and batch come with it
	}
	form := forms[0]
	for _, f := range forms {
		if f.name == t.Form {
			form = f
		}
	}
	d.must(len(t.Theta) == form.thetas, "throughput.theta", []string{"throughput.form"}, "Wrong number of coefficients",
		"The form %q has %d coefficients; theta has %d.", t.Form, form.thetas, len(t.Theta))
	times := t.Theta
	if t.Form == "pollux" && len(times) == form.thetas {
		gamma := times[4]
		times = times[:4]
		d.must(gamma >= 1 && gamma <= 10, "throughput.theta", []string{"throughput.form"}, "Gamma out of range",
			"The last coefficient of \"pollux\" is gamma: %v, and it must be 1 to 10. 1: a step computes, then communicates; 10: both at once.", gamma)
	}
	sum := 0.0
	for _, theta := range times {
		sum += theta
	}
	d.must(len(t.Theta) == 0 || sum > leastTime, "throughput.theta", nil, "Throughput without limit",
		"With coefficients that are all 0, or next to it, a step would take no time. Measure one worker: [1/RATE, 0, 0] for async.")
	d.must(sum < mostTime, "throughput.theta", nil, "Throughput of nothing", "With coefficients that sum to %.3g s a step would never end. Measure one worker: [1/RATE, 0, 0] for async.", sum)
	if form.batch && t.Batch == 0 && d.ok("throughput.form", "throughput.batch") {
		d.fail(j.Range("throughput.form"), fmt.Sprintf("The form %q needs a batch", t.Form), "Add batch = M, the records of one step over all workers.")
	}
	d.must(form.batch || t.Batch == 0, "throughput.batch", []string{"throughput.form"}, "This form has no batch", "The form is %q: remove batch.", t.Form)
}

func (d *decoder) checkForecast(j *Job) {
	f := j.Forecast
	d.checkEvents(f)
	d.checkHolidays(f)
	interval := []string{"forecast.interval"}
	d.must(f.Horizon >= f.Interval, "forecast.horizon", interval, "Horizon shorter than an interval", "The horizon is %s and the interval %s: a forecast needs at least one step.", FormatDuration(f.Horizon), FormatDuration(f.Interval))
	if d.ok("forecast.interval") && f.Interval > 0 {
		d.must(f.Horizon/f.Interval <= mostSteps, "forecast.horizon", interval, "Horizon too long for its interval", "%d steps: at most %d.", f.Horizon/f.Interval, mostSteps)
		d.must(f.History/f.Interval <= mostSteps, "forecast.history", interval, "History too long for its interval",
			"%s in steps of %s are %d points: at most %d. Shorten the history or lengthen the interval.", FormatDuration(f.History), FormatDuration(f.Interval), f.History/f.Interval, mostSteps)
	}
	if f.GateWindow != 4*f.Horizon { // else it follows from the horizon, which is at fault where it is shorter than an interval
		d.must(f.GateWindow >= f.Interval, "forecast.gate_window", interval, "Gate window shorter than an interval",
			"gate_window is %s and the interval %s: use at least one interval.", FormatDuration(f.GateWindow), FormatDuration(f.Interval))
	}
	d.must(f.Retrain == 0 || f.Retrain >= f.Interval, "forecast.retrain", interval, "Retrained more often than there is news",
		"retrain is %s and the interval %s: use at least one interval.", FormatDuration(f.Retrain), FormatDuration(f.Interval))
	d.must(len(f.Season) > 0, "forecast.season", nil, "No season", `Name at least one, as in "24h".`)
	d.checkSeasons(f)
}

func (d *decoder) checkSeasons(f Forecast) {
	if !d.ok("forecast.season") || len(f.Season) == 0 {
		return
	}
	for i, season := range f.Season {
		path := fmt.Sprintf("forecast.season[%d]", i)
		d.must(season >= f.Horizon, path, []string{"forecast.season", "forecast.horizon"}, "Season shorter than the horizon",
			"The season is %s and the horizon %s: the forecast would look back on days that have not been.", FormatDuration(season), FormatDuration(f.Horizon))
		if f.Interval > 0 {
			d.must(season%f.Interval == 0, path, []string{"forecast.season", "forecast.interval"}, "Season is not a whole number of intervals",
				"The season is %s and the interval %s.", FormatDuration(season), FormatDuration(f.Interval))
		}
		d.must(i == 0 || season > f.Season[i-1], path, nil, "Seasons out of order", "Write the shortest first, each once.")
	}
	d.must(f.History >= f.Season[0], "forecast.history", []string{"forecast.season"}, "History shorter than a season",
		"The history is %s and the season %s: the forecast would begin cold.", FormatDuration(f.History), FormatDuration(f.Season[0]))
	if last := f.Season[len(f.Season)-1]; f.History >= f.Season[0] && f.History < last && d.ok("forecast.history") {
		d.warn(d.written("forecast.history", []string{"forecast.season"}), "History shorter than the longest season",
			"The season of %s counts only once that much has been seen. With history = %q it counts from the start, where the topic keeps records that long.", FormatDuration(last), FormatDuration(last))
	}
}

func (d *decoder) checkAutoscale(j *Job) {
	a, lag := j.Autoscale, j.SLO.MaxLag
	span := func(v time.Duration) string { return FormatDuration(v) }
	d.must(a.Tau >= j.Forecast.Interval, "autoscale.tau", []string{"forecast.interval"}, "tau shorter than an interval",
		"tau is %s and forecast.interval %s: nothing would be smoothed. Raise autoscale.tau, or lower forecast.interval.", span(a.Tau), span(j.Forecast.Interval))
	d.must(a.Tau <= j.Forecast.Horizon, "autoscale.tau", []string{"forecast.horizon"}, "tau longer than the horizon",
		"tau is %s and forecast.horizon %s: every change would be smoothed away. Lower autoscale.tau, or raise forecast.horizon.", span(a.Tau), span(j.Forecast.Horizon))
	d.must(a.Watch <= a.Tick, "autoscale.watch", []string{"autoscale.tick"}, "watch longer than tick",
		"watch is %s and tick %s: decisions would rest on old lag.", span(a.Watch), span(a.Tick))
	d.must(lag >= a.Watch, "slo.max_lag", []string{"autoscale.watch"}, "max_lag shorter than watch",
		"max_lag is %s and autoscale.watch %s: a violation could pass unseen.", span(lag), span(a.Watch))
	if step := j.Workers.EmulateStep; step >= lag && d.ok("slo.max_lag", "workers.emulate_step") {
		d.warn(d.written("slo.max_lag", []string{"workers.emulate_step"}), "A step takes as long as max_lag", "max_lag is %s and workers.emulate_step %s: a record that is trained in the very next step is over the objective when that ends.", span(lag), span(step))
	}
	linger := j.Model.Linger
	d.must(linger < lag, "model.linger", []string{"slo.max_lag"}, "linger as long as max_lag",
		"model.linger is %s and slo.max_lag %s: a record that waits for its batch to fill would be over the objective.", span(linger), span(lag))
	if over := a.Fallback.LagOver; linger < lag && linger >= over && d.ok("model.linger", "slo.max_lag", "autoscale.fallback.lag_over") {
		d.warn(d.written("model.linger", []string{"autoscale.fallback.lag_over"}), "linger as long as lag_over",
			"model.linger is %s and autoscale.fallback.lag_over %s: while few records come, they wait for so long that workers are added.", span(linger), span(over))
	}
	d.must(a.Fallback.LagOver <= lag, "autoscale.fallback.lag_over", []string{"slo.max_lag"}, "lag_over is over max_lag",
		"lag_over is %s and slo.max_lag %s: the fallback would act after the objective is broken.", span(a.Fallback.LagOver), span(lag))
	d.must(a.Fallback.UtilisationUnder < a.Fallback.UtilisationOver, "autoscale.fallback.utilisation_under", []string{"autoscale.fallback.utilisation_over"},
		"Thresholds cross", "utilisation_under is %g and utilisation_over %g: workers would come and go without end.", a.Fallback.UtilisationUnder, a.Fallback.UtilisationOver)
	if width := j.Workers.Max - j.Workers.Min; width > 0 && a.Policy == PolicyKale {
		d.must(a.Rho <= width, "autoscale.rho", []string{"workers.max", "workers.min", "autoscale.policy"}, "rho too large",
			"rho is %d, but the number of workers can change by %d at most: nothing would ever change.", a.Rho, width)
		d.checkMultiple(j)
	}
	d.checkStatic(j)
	d.checkReach(j)
	d.checkPace(j)
	d.checkInert(j)
	if n := j.Workers.Max; n == j.Workers.Min && a.Policy != PolicyStatic && a.Policy != PolicyKale && d.ok("workers.min", "workers.max", "autoscale.policy") {
		d.warn(d.written("workers.min", []string{"workers.max", "autoscale.policy"}), "Nothing to scale",
			"workers.min and workers.max are both %d: policy %q changes nothing until they differ.", n, a.Policy)
	}
}

// checkReach warns of decisions that look, or have to last, further ahead than forecasts reach.
func (d *decoder) checkReach(j *Job) {
	a, horizon := j.Autoscale, j.Forecast.Horizon
	if !d.ok("autoscale.policy", "forecast.horizon") {
		return
	}
	if a.Policy != PolicyStatic && a.Tick > horizon && d.ok("autoscale.tick") {
		d.warn(d.written("autoscale.tick", []string{"forecast.horizon"}), "tick longer than the horizon",
			"tick is %s and forecast.horizon %s: what comes after the end of a forecast and before the next decision is not planned for. Decide more often, or look further ahead.",
			FormatDuration(a.Tick), FormatDuration(horizon))
	}
	for _, p := range []struct{ policy, name, does string }{
		{"quantile", "horizon", "The window of the policy is"}, {"madu", "every", "A plan of the policy is to last for"},
	} {
		if v, set := a.Params[p.name]; a.Policy == p.policy && set && v > horizon.Minutes() {
			d.warn("autoscale.params."+p.name, p.name+" longer than the forecast's horizon",
				"%s %s, and forecasts end after %s (forecast.horizon), which is as far as it gets. Raise forecast.horizon, or lower %s.",
				p.does, FormatDuration(time.Duration(v*float64(time.Minute))), FormatDuration(horizon), p.name)
		}
	}
}

// checkMultiple refuses a multiple by which each number of workers that is allowed becomes workers.max.
func (d *decoder) checkMultiple(j *Job) {
	m, set := j.Autoscale.Params["multiple"]
	if !set {
		return
	}
	least := math.Ceil(float64(max(j.Workers.Min, 1))/m) * m
	d.must(least < float64(j.Workers.Max), "autoscale.params.multiple", []string{"workers.max", "workers.min"}, "multiple too large",
		"multiple is %g, and no multiple of it is from workers.min, which is %d, to below workers.max, which is %d: nothing would ever change.", m, j.Workers.Min, j.Workers.Max)
}

// checkStatic holds the number of workers that policy "static" is given against what is allowed.
func (d *decoder) checkStatic(j *Job) {
	const path = "autoscale.params.workers"
	n, set := j.Autoscale.Params["workers"]
	if j.Autoscale.Policy != PolicyStatic || !set || n == 0 { // 0 is workers.max
		return
	}
	d.must(n <= float64(j.Workers.Max), path, []string{"workers.max"}, "workers is over max",
		"The policy is to keep %g workers, and workers.max is %d: no more would ever run. Raise workers.max, or keep %d.", n, j.Workers.Max, j.Workers.Max)
	d.must(n >= float64(j.Workers.Min), path, []string{"workers.min"}, "workers is under min",
		"The policy is to keep %g workers, and workers.min is %d: no fewer would ever run. Lower workers.min, or keep %d.", n, j.Workers.Min, j.Workers.Min)
}

// Backends are the plugins that come with Kale.
var Backends = []string{BackendLocal, "nomad", "slurm"}

func (d *decoder) checkBackend(j *Job) {
	name := j.Backend.Name
	if !d.ok("backend") {
		return
	}
	switch advice, later := notYet[name]; {
	case later:
		d.bad["backend"] = true
		d.fail(j.Range("backend"), fmt.Sprintf("Backend %q is not supported yet", name), "%s", advice)
	case name == "" || !jobName.MatchString(name):
		d.bad["backend"] = true
		d.fail(j.Range("backend"), fmt.Sprintf("Unsuitable backend name %q", name), `The label names a plugin: "x" is the program kale-backend-x.`)
	case !slices.Contains(Backends, name) && Nearest(name, Backends) != "": // another's plugin is as good; a slip of the pen is not
		d.warn("backend", fmt.Sprintf("Backend %q does not come with Kale", name), "%sThe program kale-backend-%s must stand beside kale or in the PATH.", DidYouMean(name, Backends), name)
	}
}

var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// CheckTopic says what is wrong with the name of a Kafka topic, or "".
func CheckTopic(name string) string {
	if name == "." || name == ".." || !topicName.MatchString(name) {
		return "A Kafka topic name has 1 to 249 letters, digits, dots, dashes and underscores."
	}
	return ""
}

func checkBroker(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return `A broker is written host:port, as in "kafka-1:9092" or "[2001:db8::1]:9092".`
	}
	if strings.ContainsFunc(host, unicode.IsSpace) {
		return fmt.Sprintf("%q is not a host: there is a blank in it. "+`A broker is written host:port, as in "kafka-1:9092"; several are each in quotes, with commas between.`, host)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Sprintf("%q is not a port: use 1 to 65535.", port)
	}
	return ""
}

func roundDown(n, unit int) int { return n / unit * unit }
