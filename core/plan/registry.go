package plan

// Info describes a policy, for help texts, job files and reports.
type Info struct {
	Name string `json:"name"`
	// Mark says where the algorithm comes from: MarkCode, MarkPaper or MarkOurs.
	Mark string `json:"mark"`
	// Doc is one sentence on what it does.
	Doc    string  `json:"doc"`
	Params []Param `json:"params,omitempty"`
	Needs  Needs   `json:"-"`
}

// The marks of Info.
const (
	MarkCode  = "code"  // read in the project's source
	MarkPaper = "paper" // read in the paper
	MarkOurs  = "ours"  // ours, or a labelled reconstruction
)

// Param is one number that a policy accepts.
type Param struct {
	Name    string  `json:"name"`
	Default float64 `json:"default"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	// Whole says that it is a count or a switch.
	Whole bool `json:"whole,omitempty"`
	// Unit is UnitMinutes or "" for a plain number.
	Unit string `json:"unit,omitempty"`
	Doc  string `json:"doc"`
}

// UnitMinutes is the unit of a parameter that is a time.
const UnitMinutes = "min"

// Needs says what a policy looks at beyond what every observation holds. The
// shell leaves out what is not needed: a forecast's spread is long.
type Needs struct {
	Forecast bool // a forecast
	Spread   bool // quantiles and scenarios of it
	Beyond   bool // Forecast.Beyond
}

// entry is one policy in the registry.
type entry struct {
	Info
	build func(Params) planner
}

// guardParam is a parameter of every policy; see [guarded].
var guardParam = Param{Name: "guard", Default: 1, Min: 0, Max: 1, Whole: true, Doc: "1: also Kale's rules for a safe scale-in and the job's cooldowns; 0: the policy's own machinery alone"}

const (
	week      = 7 * 24 * 60.0 // minutes
	unlimited = 65536
)

func minutes(name string, def, most float64, doc string) Param {
	return Param{Name: name, Default: def, Max: most, Unit: UnitMinutes, Doc: doc}
}

// registry lists the policies, in the order in which they are shown.
var registry = []entry{
	{Info{Name: "kale", Mark: MarkPaper, Doc: "Eq. 10 and Algorithm 1 on the forecast, with the fallback on lag and utilisation (Kale §3.4); rho, tau, cooldowns, thresholds and headroom are the job's, and keep workers to spare; where these cost too much, take cost", Needs: Needs{Forecast: true}, Params: []Param{
		{Name: "multiple", Default: 1, Min: 1, Max: unlimited, Whole: true, Doc: "workers come and go by so many at once; the paper's plots show 2"},
	}}, func(p Params) planner { return kale{multiple: int(p["multiple"])} }},
	{Info{Name: "cost", Mark: MarkOurs, Doc: "the course of least expected cost over the coming hours: GPU-hours, lag, violations, and what rescales cost", Needs: Needs{Forecast: true, Spread: true, Beyond: true}, Params: []Param{
		{Name: "lag", Default: 18, Max: 1e6, Doc: "what a lag as long as slo.max_lag costs, in GPUs; a shorter one in proportion"},
		{Name: "over", Default: 60, Max: 1e9, Doc: "what a lag over slo.max_lag costs besides, in GPUs"},
		{Name: "rescale", Default: 0.5, Max: 1e6, Doc: "what a rescale costs besides its outage, in GPU-hours, where half an hour or more is looked ahead, and in proportion less else; as little as a quarter where rescales are limited, as live ones are in a replay, and many are left"},
		{Name: "model_error", Max: 1, Doc: "relative error that the throughput model is assumed to have at least"},
	}}, func(p Params) planner { return newCost(p) }},
	{Info{Name: "static", Mark: MarkPaper, Doc: "always the same number of workers: \"adequate resources\" in Kale Table 3", Params: []Param{
		{Name: "workers", Max: unlimited, Whole: true, Doc: "how many; 0: the maximum"},
	}}, func(p Params) planner { return static{workers: int(p["workers"])} }},
	{Info{Name: "follow", Mark: MarkOurs, Doc: "the last measured rate plus a margin", Params: []Param{
		{Name: "margin", Default: 0.03, Max: 10, Doc: "added to the rate, as a fraction"},
	}}, func(p Params) planner { return follow{margin: p["margin"]} }},
	{Info{Name: "hpa", Mark: MarkCode, Doc: "Kubernetes' HorizontalPodAutoscaler on the workers' busy share", Params: append([]Param{
		{Name: "target", Default: 0.8, Min: 0.01, Max: 1, Doc: "busy share aimed at"},
		demandParam,
	}, hpaParams...)}, func(p Params) planner {
		return hpa{target: p["target"], demand: p["demand"] != 0, behaviour: hpaBehaviour(p)}
	}},
	{Info{Name: "keda", Mark: MarkCode, Doc: "KEDA's Kafka scaler: backlog over a threshold, through the HPA's machinery", Params: append([]Param{
		{Name: "lag_threshold", Default: 10, Min: 1e-3, Max: 1e15, Doc: "records of backlog for each worker"},
		{Name: "allow_idle", Max: 1, Whole: true, Doc: "1: more workers than partitions are allowed (allowIdleConsumers)"},
	}, hpaParams...)}, func(p Params) planner {
		return keda{threshold: p["lag_threshold"], allowIdle: p["allow_idle"] != 0, behaviour: hpaBehaviour(p)}
	}},
	{Info{Name: "autopilot", Mark: MarkPaper, Doc: "Google Autopilot, horizontal: the peak usage of the last three days over a target", Params: []Param{
		{Name: "target", Default: 0.8, Min: 0.01, Max: 1, Doc: "usage of a worker aimed at (r*)"},
		minutes("window", 72*60, 4*week, "how far back usage counts (T)"),
		{Name: "percentile", Default: 1, Min: 0.01, Max: 1, Doc: "the statistic S over the window: 1 is the maximum, 0.95 the 95th percentile"},
		{Name: "margin", Max: 10, Doc: "added to the usage, as a fraction"},
		minutes("defer", 60, week, "a fall below the largest wish of this long is put off (T_d)"),
		demandParam,
	}}, func(p Params) planner { return newAutopilot("autopilot", p) }},
	{Info{Name: "autopilot-short", Mark: MarkOurs, Doc: "Autopilot with a window short enough to follow the day, as the Kale paper's plots show it", Params: []Param{
		{Name: "target", Default: 1, Min: 0.01, Max: 1, Doc: "usage of a worker aimed at (r*)"},
		minutes("window", 60, 4*week, "how far back usage counts (T)"),
		{Name: "percentile", Default: 0.95, Min: 0.01, Max: 1, Doc: "the statistic S over the window"},
		{Name: "margin", Default: 0.10, Max: 10, Doc: "added to the usage, as a fraction"},
		minutes("defer", 10, week, "a fall below the largest wish of this long is put off (T_d)"),
		demandParam,
	}}, func(p Params) planner { return newAutopilot("autopilot-short", p) }},
	{Info{Name: "madu", Mark: MarkOurs, Doc: "Madu: the mean forecast plus z standard deviations, on a capacity taken for proportional", Needs: Needs{Forecast: true, Spread: true}, Params: []Param{
		{Name: "z", Default: 1.28, Max: 10, Doc: "standard deviations on top of the mean"},
		{Name: "target", Default: 0.8, Min: 0.01, Max: 1, Doc: "utilisation aimed at (u*)"},
		minutes("every", 30, week, "time from one plan to the next"),
	}}, func(p Params) planner { return madu{z: p["z"], target: p["target"], every: inMinutes(p["every"])} }},
	{Info{Name: "flink", Mark: MarkCode, Doc: "Flink's autoscaler (DS2): true processing rate against input, backlog and restart", Params: []Param{
		{Name: "target", Default: 0.7, Min: 0.01, Max: 1, Doc: "utilisation aimed at (u*)"},
		{Name: "boundary", Default: 0.3, Max: 1, Doc: "distance from the target at which it acts"},
		minutes("catch_up", 30, week, "time within which backlog and restart are caught up"),
		minutes("restart", 5, week, "assumed restart; 0: as measured (restart tracking)"),
		minutes("window", 15, week, "metrics window; it must be full before a decision"),
		minutes("stabilisation", 5, week, "time after a rescale in which nothing is measured"),
		minutes("down_interval", 60, week, "a scale-in waits this long, and takes the largest wish meanwhile"),
		{Name: "max_down", Default: 0.6, Max: 1, Doc: "most of the workers that one scale-in may take away"},
	}}, func(p Params) planner { return newFlink(p) }},
	{Info{Name: "quantile", Mark: MarkPaper, Doc: "the fewest workers that carry the largest load of a window but for a small risk: MagicScaler, OptScaler, RobustScaler", Needs: Needs{Forecast: true, Spread: true}, Params: []Param{
		{Name: "epsilon", Default: 0.1, Min: 1e-3, Max: 0.999, Doc: "accepted risk that the load of the window is larger"},
		minutes("horizon", 20, week, "length of the window; no less than the lead"),
	}}, func(p Params) planner { return quantile{epsilon: p["epsilon"], horizon: inMinutes(p["horizon"])} }},
}
