package job

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// policySpec is a policy that a job may name, with the numbers that its params block may set. The policies themselves are core/plan's; a test in core
// holds the two against each other.
type policySpec struct {
	name, doc string
	params    []policyParam
}

// policyParam is one number. One that is a time is written as a duration and kept in minutes.
type policyParam struct {
	name             string
	def, least, most float64
	kind             paramKind
	doc              string
}

// paramKind is what a parameter counts.
type paramKind int

const (
	anyNumber   paramKind = iota
	wholeNumber           // a count or a switch
	inMinutes             // a time
)

// policies is in the order in which they are shown.
var policies = []policySpec{
	{"kale", "Eq. 10 and Algorithm 1 on the forecast, with the fallback on lag and utilisation (Kale §3.4); rho, tau, cooldowns, thresholds and headroom are the job's, and keep workers to spare; where these cost too much, take cost", []policyParam{
		{"multiple", 1, 1, 65536, wholeNumber, "workers come and go by so many at once; the paper's plots show 2"},
	}},
	{"cost", "the course of least expected cost over the coming hours: GPU-hours, lag, violations, and what rescales cost", []policyParam{
		{"lag", 18, 0, 1e+06, anyNumber, "what a lag as long as slo.max_lag costs, in GPUs; a shorter one in proportion"},
		{"over", 60, 0, 1e+09, anyNumber, "what a lag over slo.max_lag costs besides, in GPUs"},
		{"rescale", 0.5, 0, 1e+06, anyNumber, "what a rescale costs besides its outage, in GPU-hours, where half an hour or more is looked ahead, and in proportion less else; as little as a quarter where rescales are limited, as live ones are in a replay, and many are left"},
		{"model_error", 0, 0, 1, anyNumber, "relative error that the throughput model is assumed to have at least"},
	}},
	{"static", "always the same number of workers: \"adequate resources\" in Kale Table 3", []policyParam{
		{"workers", 0, 0, 65536, wholeNumber, "how many; 0: the maximum"},
	}},
	{"follow", "the last measured rate plus a margin", []policyParam{
		{"margin", 0.03, 0, 10, anyNumber, "added to the rate, as a fraction"},
	}},
	{"hpa", "Kubernetes' HorizontalPodAutoscaler on the workers' busy share", []policyParam{
		{"target", 0.8, 0.01, 1, anyNumber, "busy share aimed at"},
		{"demand", 0, 0, 1, wholeNumber, "1: what arrives counts as usage, and not how busy the workers are, which a backlog keeps busy however many they are"},
		{"tolerance", 0.1, 0, 10, anyNumber, "a ratio this close to 1 changes nothing"},
		{"up_window", 0, 0, 10080, inMinutes, "stabilisation of a scale-out: the smallest wish of this long"},
		{"down_window", 5, 0, 10080, inMinutes, "stabilisation of a scale-in: the largest wish of this long"},
	}},
	{"keda", "KEDA's Kafka scaler: backlog over a threshold, through the HPA's machinery", []policyParam{
		{"lag_threshold", 10, 0.001, 1e+15, anyNumber, "records of backlog for each worker"},
		{"allow_idle", 0, 0, 1, wholeNumber, "1: more workers than partitions are allowed (allowIdleConsumers)"},
		{"tolerance", 0.1, 0, 10, anyNumber, "a ratio this close to 1 changes nothing"},
		{"up_window", 0, 0, 10080, inMinutes, "stabilisation of a scale-out: the smallest wish of this long"},
		{"down_window", 5, 0, 10080, inMinutes, "stabilisation of a scale-in: the largest wish of this long"},
	}},
	{"autopilot", "Google Autopilot, horizontal: the peak usage of the last three days over a target", []policyParam{
		{"target", 0.8, 0.01, 1, anyNumber, "usage of a worker aimed at (r*)"},
		{"window", 4320, 0, 40320, inMinutes, "how far back usage counts (T)"},
		{"percentile", 1, 0.01, 1, anyNumber, "the statistic S over the window: 1 is the maximum, 0.95 the 95th percentile"},
		{"margin", 0, 0, 10, anyNumber, "added to the usage, as a fraction"},
		{"defer", 60, 0, 10080, inMinutes, "a fall below the largest wish of this long is put off (T_d)"},
		{"demand", 0, 0, 1, wholeNumber, "1: what arrives counts as usage, and not how busy the workers are, which a backlog keeps busy however many they are"},
	}},
	{"autopilot-short", "Autopilot with a window short enough to follow the day, as the Kale paper's plots show it", []policyParam{
		{"target", 1, 0.01, 1, anyNumber, "usage of a worker aimed at (r*)"},
		{"window", 60, 0, 40320, inMinutes, "how far back usage counts (T)"},
		{"percentile", 0.95, 0.01, 1, anyNumber, "the statistic S over the window"},
		{"margin", 0.1, 0, 10, anyNumber, "added to the usage, as a fraction"},
		{"defer", 10, 0, 10080, inMinutes, "a fall below the largest wish of this long is put off (T_d)"},
		{"demand", 0, 0, 1, wholeNumber, "1: what arrives counts as usage, and not how busy the workers are, which a backlog keeps busy however many they are"},
	}},
	{"madu", "Madu: the mean forecast plus z standard deviations, on a capacity taken for proportional", []policyParam{
		{"z", 1.28, 0, 10, anyNumber, "standard deviations on top of the mean"},
		{"target", 0.8, 0.01, 1, anyNumber, "utilisation aimed at (u*)"},
		{"every", 30, 0, 10080, inMinutes, "time from one plan to the next"},
	}},
	{"flink", "Flink's autoscaler (DS2): true processing rate against input, backlog and restart", []policyParam{
		{"target", 0.7, 0.01, 1, anyNumber, "utilisation aimed at (u*)"},
		{"boundary", 0.3, 0, 1, anyNumber, "distance from the target at which it acts"},
		{"catch_up", 30, 0, 10080, inMinutes, "time within which backlog and restart are caught up"},
		{"restart", 5, 0, 10080, inMinutes, "assumed restart; 0: as measured (restart tracking)"},
		{"window", 15, 0, 10080, inMinutes, "metrics window; it must be full before a decision"},
		{"stabilisation", 5, 0, 10080, inMinutes, "time after a rescale in which nothing is measured"},
		{"down_interval", 60, 0, 10080, inMinutes, "a scale-in waits this long, and takes the largest wish meanwhile"},
		{"max_down", 0.6, 0, 1, anyNumber, "most of the workers that one scale-in may take away"},
	}},
	{"quantile", "the fewest workers that carry the largest load of a window but for a small risk: MagicScaler, OptScaler, RobustScaler", []policyParam{
		{"epsilon", 0.1, 0.001, 0.999, anyNumber, "accepted risk that the load of the window is larger"},
		{"horizon", 20, 0, 10080, inMinutes, "length of the window; no less than the lead"},
	}},
}

// guardParam is a number of every policy.
var guardParam = policyParam{"guard", 1, 0, 1, wholeNumber, "1: also Kale's rules for a safe scale-in and the job's cooldowns; 0: the policy's own machinery alone"}

// PolicyNumber is a parameter of a policy: its default and the range that is allowed, in minutes where it is a time. One that is Whole is a count or
// a switch.
type PolicyNumber struct {
	Name, Doc         string
	Default, Min, Max float64
	Minutes, Whole    bool
}

// PolicyNumbers are the parameters that the policy of that name has in a job file, and whether there is such a policy.
func PolicyNumbers(policy string) ([]PolicyNumber, bool) {
	spec := policyNamed(policy)
	if spec == nil {
		return nil, false
	}
	out := make([]PolicyNumber, len(spec.params))
	for i, p := range spec.params {
		out[i] = PolicyNumber{Name: p.name, Doc: p.doc, Default: p.def, Min: p.least, Max: p.most, Minutes: p.kind == inMinutes, Whole: p.kind == wholeNumber}
	}
	return out, true
}

// Policies are the names that autoscale.policy may have.
func Policies() []string {
	names := make([]string, len(policies))
	for i, p := range policies {
		names[i] = p.name
	}
	return names
}

func policyNamed(name string) *policySpec {
	for i := range policies {
		if policies[i].name == name {
			return &policies[i]
		}
	}
	return nil
}

// all are the parameters of a policy, guard included.
func (s *policySpec) all() []policyParam {
	return append(append([]policyParam{}, s.params...), guardParam)
}

// limits names the kind of value and its range.
func (p policyParam) limits() string {
	if p.kind == inMinutes {
		return "duration: " + spans(0, p.longest())
	}
	kind := "number: "
	if p.kind == wholeNumber {
		kind = "whole number: "
	}
	return kind + bound{least: p.least, most: p.most}.String()
}

func (p policyParam) longest() time.Duration { return time.Duration(p.most * float64(time.Minute)) }

// standard is the default as it would be written.
func (p policyParam) standard() string {
	if p.kind == inMinutes {
		return strconv.Quote(FormatDuration(time.Duration(p.def * float64(time.Minute))))
	}
	return strconv.FormatFloat(p.def, 'f', -1, 64)
}

// params decodes the params block of autoscale: the numbers of the policy that the job names.
func (d *decoder) params(b *hclsyntax.Block, path string) {
	spec := policyNamed(d.job.Autoscale.Policy)
	if spec == nil || d.bad["autoscale.policy"] {
		return // which numbers there are is not known
	}
	known := spec.all()
	names := make([]string, len(known))
	for i, p := range known {
		names[i] = p.name
	}
	for _, inner := range b.Body.Blocks {
		d.fail(inner.DefRange(), fmt.Sprintf("Unknown block %q", inner.Type), "Block \"params\" has numbers only.")
	}
	for _, a := range inOrder(b.Body.Attributes) {
		i := 0
		for i < len(known) && known[i].name != a.Name {
			i++
		}
		if i == len(known) {
			d.fail(a.NameRange, fmt.Sprintf("Policy %q has no parameter %q", spec.name, a.Name), "%s", strings.TrimSpace(DidYouMean(a.Name, names)+"It has "+strings.Join(names, ", ")+"."))
			continue
		}
		d.param(known[i], a, join(path, a.Name))
	}
}

// param decodes one number.
func (d *decoder) param(p policyParam, a *hclsyntax.Attribute, path string) {
	d.job.ranges[path] = a.Expr.Range()
	value, diags := d.scope.value(a.Expr)
	d.diags = append(d.diags, diags...)
	if diags.HasErrors() || !value.IsWhollyKnown() || value.IsNull() {
		return
	}
	var v float64
	var wrong *problem
	if p.kind == inMinutes {
		var span time.Duration
		span, wrong = readDuration(0, p.longest())(d.job.Dir, value)
		v = span.Minutes()
	} else {
		v, wrong = readNumber(bound{least: p.least, most: p.most})(d.job.Dir, value)
		if wrong == nil && p.kind == wholeNumber && v != math.Trunc(v) {
			wrong = &problem{summary: "Not a whole number", detail: fmt.Sprintf("%s is %g: use %g or %g.", p.name, v, math.Floor(v), math.Ceil(v))}
		}
	}
	if wrong != nil {
		d.fail(a.Expr.Range(), wrong.summary, "%s", wrong.detail)
		return
	}
	if d.job.Autoscale.Params == nil {
		d.job.Autoscale.Params = map[string]float64{}
	}
	d.job.Autoscale.Params[p.name] = v
}

// describeParams writes the policies and their numbers for the reference.
func describeParams(out *strings.Builder, indent string, width int) {
	for i := range policies {
		fmt.Fprintf(out, "%s# %s\n", indent, policies[i].name)
		for _, line := range wrap(policies[i].doc, width-len(indent)-4) {
			fmt.Fprintf(out, "%s#   %s\n", indent, line)
		}
		for _, p := range policies[i].params {
			p.describe(out, indent, width)
		}
	}
	fmt.Fprintf(out, "%s# every policy\n", indent)
	guardParam.describe(out, indent, width)
}

func (p policyParam) describe(out *strings.Builder, indent string, width int) {
	fmt.Fprintf(out, "%s%-20s %s; default %s\n", indent, p.name, p.limits(), p.standard())
	for _, line := range wrap(strings.ToUpper(p.doc[:1])+p.doc[1:]+".", width-len(indent)-4) {
		fmt.Fprintf(out, "%s    %s\n", indent, line)
	}
}
