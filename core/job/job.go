package job

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/forecast/holidays"
)

// Job is one training job as its file describes it: checked, with defaults filled in, paths made absolute and units
// resolved. Durations in its JSON form are nanoseconds (`_ns`), sizes are bytes (`_bytes`).
type Job struct {
	Name       string     `json:"name"`
	File       string     `json:"file"` // the job file's path, as it was given to Load
	Dir        string     `json:"dir"`  // absolute folder of the job file; relative paths start here
	SLO        SLO        `json:"slo"`
	Stream     Stream     `json:"stream"`
	Features   Features   `json:"features"`
	Model      Model      `json:"model"`
	Workers    Workers    `json:"workers"`
	Servers    Servers    `json:"servers"`
	Throughput Throughput `json:"throughput"`
	Forecast   Forecast   `json:"forecast"`
	Autoscale  Autoscale  `json:"autoscale"`
	Checkpoint Checkpoint `json:"checkpoint"`
	Network    Network    `json:"network,omitzero"`
	Backend    Backend    `json:"backend"`

	ranges map[string]hcl.Range // path ("stream.topic", "features.sparse[1]") → where its value stands
}

// SLO is what the job promises (Kale §4.1 counts the share of time in which lag is over 20 minutes).
type SLO struct {
	MaxLag time.Duration `json:"max_lag_ns"`
}

// Stream says where records come from.
type Stream struct {
	Kind    string   `json:"kind"` // "kafka"
	Brokers []string `json:"brokers"`
	Topic   string   `json:"topic"`
	Start   Start    `json:"start"`
	OnLost  string   `json:"on_lost"` // OnLostStop or OnLostSkip
	// OnUndecodable is OnLostStop or OnLostSkip: what becomes of records that cannot be decoded where DeadLetter is empty.
	OnUndecodable string `json:"on_undecodable"`
	DeadLetter    string `json:"dead_letter,omitempty"` // topic; empty: none
	TLS           *TLS   `json:"tls,omitempty"`         // nil: plain text
	SASL          *SASL  `json:"sasl,omitempty"`        // nil: no authentication
	// NoCommit keeps the job from committing offsets. No file sets it: a job that only measures has it (kale profile).
	NoCommit bool `json:"no_commit,omitempty"`
}

// What happens when retention removed records that were not trained yet.
const (
	OnLostStop = "stop" // the partition stops until an operator marks the range lost
	OnLostSkip = "skip" // the range is marked lost, counted and reported, and training goes on
)

// Start says where a job without a checkpoint begins to read. Exactly one of its forms holds: Kind "latest" or
// "earliest", Kind "ago" with Ago, Kind "time" with Time.
type Start struct {
	Kind string        `json:"kind"`
	Ago  time.Duration `json:"ago_ns,omitempty"`
	Time time.Time     `json:"time,omitzero"`
}

// Kinds of Start.
const (
	StartLatest   = "latest"
	StartEarliest = "earliest"
	StartAgo      = "ago"
	StartTime     = "time"
)

// At returns the moment that Start names, seen from now. ok is false for latest and earliest, which are positions of
// the log and not moments.
func (s Start) At(now time.Time) (at time.Time, ok bool) {
	switch s.Kind {
	case StartAgo:
		return now.Add(-s.Ago), true
	case StartTime:
		return s.Time, true
	default:
		return time.Time{}, false
	}
}

// TLS is the encryption of the connection to the brokers. Its files are absolute paths.
type TLS struct {
	CAFile             string `json:"ca_file,omitempty"`
	CertFile           string `json:"cert_file,omitempty"`
	KeyFile            string `json:"key_file,omitempty"`
	ServerName         string `json:"server_name,omitempty"`
	InsecureSkipVerify bool   `json:"insecure_skip_verify,omitempty"`
}

// SASL is the identity shown to the brokers. Mechanism is "plain", "scram-sha-256" or "scram-sha-512".
type SASL struct {
	Mechanism string `json:"mechanism"`
	Username  string `json:"username"`
	Password  Secret `json:"password"`
}

// Secret is a string that no formatting, logging or JSON shows. Reveal gives it to the one who needs it.
type Secret struct{ value string }

const hidden = "(hidden)"

// NewSecret wraps a secret value.
func NewSecret(value string) Secret { return Secret{value} }

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return s.value }

// Format hides the secret under every verb.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// String says only whether there is a secret.
func (s Secret) String() string {
	if s.value == "" {
		return ""
	}
	return hidden
}

// MarshalJSON hides the secret.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// LogValue hides the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Features names the fields of a record.
type Features struct {
	Format string   `json:"format"` // FormatJSON or FormatTFExample
	Label  string   `json:"label"`
	Sparse []string `json:"sparse"` // categorical fields: one embedding row for each value
	Dense  []string `json:"dense"`  // numeric fields
}

// Formats of a record.
const (
	FormatJSON      = "json"
	FormatTFExample = "tfexample"
)

// Model is what is trained.
type Model struct {
	Kind         string        `json:"kind"` // ModelLR, ModelDeepFM or ModelCounting
	EmbeddingDim int           `json:"embedding_dim"`
	Hidden       []int         `json:"hidden"`
	Optimiser    Optimiser     `json:"optimiser"`
	Batch        int           `json:"batch"` // records per worker and step
	Mode         string        `json:"mode"`  // "async"
	Linger       time.Duration `json:"linger_ns"`
	L2           float64       `json:"l2"`
	Seed         int64         `json:"seed"`
	Tablets      int           `json:"tablets"`
}

// Kinds of Model.
const (
	ModelLR     = "lr"
	ModelDeepFM = "deepfm"
	// ModelCounting is a diagnostic: it trains nothing. Each record adds one to a counter of its own and to a dense counter in every
	// tablet, as integers, so that records that were lost or trained twice show (EXACTLY_ONCE rule 20). Features, embeddings, layers
	// and the optimiser are not used.
	ModelCounting = "counting"
)

// Optimiser is the rule by which tablets apply gradients.
type Optimiser struct {
	Kind         string  `json:"kind"` // "adagrad", "adam" or "sgd"
	LearningRate float64 `json:"learning_rate"`
}

// Workers bounds the elastic part of a job and says what one worker is.
type Workers struct {
	Min         int           `json:"min"`
	Max         int           `json:"max"`
	GPUs        int           `json:"gpus"`         // per worker; 0: a slot without a GPU
	CPU         float64       `json:"cpu"`          // cores per worker
	Memory      int64         `json:"memory_bytes"` // per worker
	EmulateStep time.Duration `json:"emulate_step_ns"`
	Chunk       int           `json:"chunk"` // records: the unit of forwarding and of progress (C)
	Queue       int           `json:"queue"` // records in a worker's local queue
	Forward     string        `json:"forward"`
}

// Ways of forwarding between workers (Kale §3.5).
const (
	ForwardAdvanced = "advanced"
	ForwardBasic    = "basic"
	ForwardNone     = "none"
)

// Servers is the parameter server's side of a job.
type Servers struct {
	Count  int     `json:"count"`
	CPU    float64 `json:"cpu"`          // cores per server
	Memory int64   `json:"memory_bytes"` // per server
}

// Throughput is the prior of the throughput model: what is believed until saturated intervals were measured.
type Throughput struct {
	Form   string    `json:"form"`  // as in throughput.form
	Theta  []float64 `json:"theta"` // seconds per record (async) or per step (sync), in the order of the equation
	Batch  int       `json:"batch"` // M, records per step over all workers; only forms that need it
	Source string    `json:"source,omitempty"`
}

// SourceProfile is the source of a throughput that kale profile measured: form and theta come from what it stored, and those of the file hold only until
// there is one.
const SourceProfile = "profile"

// Forecast says how traffic is foreseen. Model is ForecastSeasonal, ForecastEnsemble or the absolute path of an .onnx file.
type Forecast struct {
	Interval      time.Duration   `json:"interval_ns"`
	Horizon       time.Duration   `json:"horizon_ns"`
	Season        []time.Duration `json:"season_ns"`          // ascending
	Timezone      string          `json:"timezone,omitempty"` // "": clocks are not put forward or back
	History       time.Duration   `json:"history_ns"`
	Model         string          `json:"model"`
	GateWindow    time.Duration   `json:"gate_window_ns"`
	GateTolerance float64         `json:"gate_tolerance"`
	Retrain       time.Duration   `json:"retrain_ns,omitempty"` // 0: never
	Events        []Event         `json:"events,omitempty"`
	EventsFade    bool            `json:"events_fade"` // an event is taken as it comes
	Holidays      []holidays.Rule `json:"holidays,omitempty"`
	// HolidaysExcept are names of holidays that are none here. HolidaysLike is a weekday, and HolidaysLearn says that past holidays tell too.
	HolidaysExcept []string `json:"holidays_except,omitempty"`
	HolidaysLike   string   `json:"holidays_like"`
	HolidaysLearn  bool     `json:"holidays_learn"`
}

// Event is a time in which a known cause changes the traffic to Uplift times what would come without it.
type Event struct {
	Name   string    `json:"name"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Uplift float64   `json:"uplift"`
}

// Needed is how much history a forecast needs to be trusted: a season, so that there is something to repeat, and two horizons, so that the gate can tell how well that
// does (forecast.GateOptions).
func (f Forecast) Needed() time.Duration {
	if len(f.Season) == 0 {
		return 2 * f.Horizon
	}
	return f.Season[0] + 2*f.Horizon
}

// Zone is the time zone; nil where there is none.
func (f Forecast) Zone() *time.Location {
	if f.Timezone == "" {
		return nil
	}
	zone, err := LoadZone(f.Timezone)
	if err != nil {
		return nil // Load has refused it
	}
	return zone
}

// Past is how far back forecasts look.
func (f Forecast) Past() time.Duration { return max(f.History, f.Needed()) }

// The forecasters that need no model file: the seasonal one, and its mean with a linear map of the last bins that is learnt as traffic comes.
const (
	ForecastSeasonal = "seasonal"
	ForecastEnsemble = "ensemble"
)

// ModelFile is the path of the model file; "": the forecaster needs none.
func (f Forecast) ModelFile() string {
	if f.Model == ForecastSeasonal || f.Model == ForecastEnsemble {
		return ""
	}
	return f.Model
}

// DefaultTau is Autoscale.Tau where the file does not set it.
const DefaultTau = 10 * time.Minute

// Autoscale says who decides and how.
type Autoscale struct {
	Policy string `json:"policy"` // one of Policies
	// Params are the policy's own numbers that the file sets, times in minutes.
	Params      map[string]float64 `json:"params,omitempty"`
	Mode        string             `json:"mode"` // ModeLive, ModeRestart or ModeObserve
	Rho         int                `json:"rho"`
	Tau         time.Duration      `json:"tau_ns"`
	CooldownOut time.Duration      `json:"cooldown_out_ns"`
	CooldownIn  time.Duration      `json:"cooldown_in_ns"`
	Headroom    float64            `json:"headroom"`
	Tick        time.Duration      `json:"tick_ns"`
	Watch       time.Duration      `json:"watch_ns"`
	// PlaceTimeout is how long a worker may wait for a place before the target is lowered to what could be placed.
	PlaceTimeout time.Duration `json:"place_timeout_ns"`
	Fallback     Fallback      `json:"fallback"`
}

// Policies and modes of Autoscale.
const (
	PolicyKale   = "kale"
	PolicyStatic = "static"
	PolicyFollow = "follow"
	PolicyCost   = "cost"

	ModeLive    = "live"
	ModeRestart = "restart"
	ModeObserve = "observe"
)

// Fallback holds the thresholds that scale a job when the forecast is not trusted (Kale §3.4.3).
type Fallback struct {
	LagOver          time.Duration `json:"lag_over_ns"`
	UtilisationOver  float64       `json:"utilisation_over"`
	UtilisationUnder float64       `json:"utilisation_under"`
}

// Checkpoint says where tablets are kept. Dir is absolute and must be reachable from every node that may run a server.
type Checkpoint struct {
	Dir   string        `json:"dir"`
	Every time.Duration `json:"every_ns"`
	Keep  int           `json:"keep"`
}

// Network says how the job's processes reach each other and the scheduler; what is empty is found by the machines' routes.
type Network struct {
	Interface string    `json:"interface,omitempty"` // a name ("ib0") or a network ("10.0.0.0/8") that trainers listen on
	Listen    string    `json:"listen,omitempty"`    // host:port of the scheduler's rendezvous; the host may be empty, the port 0
	Advertise string    `json:"advertise,omitempty"` // host:port under which nodes reach it; port 0: the one that it listens on
	Ports     PortRange `json:"ports,omitzero"`      // of trainers
}

// PortRange is an inclusive range of TCP ports; the zero range means any port.
type PortRange struct {
	First int `json:"first"`
	Last  int `json:"last"`
}

// String writes the range as the job file does, "" for any port.
func (r PortRange) String() string {
	if r == (PortRange{}) {
		return ""
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// Backend is the part of the file that the backend's plugin decodes. Source is what stands between the block's braces,
// with variables and functions already replaced by their values; it begins at Start of Filename, so that the plugin's
// diagnostics point into the job file. Source may hold secrets and is left out of JSON.
type Backend struct {
	Name     string  `json:"name"`
	Source   []byte  `json:"-"`
	Filename string  `json:"filename"`
	Start    hcl.Pos `json:"start"`
}

// BackendLocal runs everything on this machine.
const BackendLocal = "local"

// Range returns where the value at path stands ("stream.topic", "workers.max", "features.sparse[1]"); for what the
// file leaves to its default, the header of the nearest block around it.
func (j *Job) Range(path string) hcl.Range { return rangeOf(j.ranges, path) }

func rangeOf(ranges map[string]hcl.Range, path string) hcl.Range {
	for {
		if r, ok := ranges[path]; ok {
			return r
		}
		if path == "" {
			return hcl.Range{}
		}
		path = parentPath(path)
	}
}

func parentPath(path string) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '.' || path[i] == '[' {
			return path[:i]
		}
	}
	return ""
}

// ErrorAt returns an error located at path, for checks that need more than the file.
func (j *Job) ErrorAt(path, summary, detail string) *hcl.Diagnostic {
	return at(hcl.DiagError, j.Range(path), summary, detail)
}

// WarningAt returns a warning located at path.
func (j *Job) WarningAt(path, summary, detail string) *hcl.Diagnostic {
	return at(hcl.DiagWarning, j.Range(path), summary, detail)
}

func at(severity hcl.DiagnosticSeverity, r hcl.Range, summary, detail string) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: severity, Summary: summary, Detail: detail, Subject: &r}
}
