package job

import (
	"math"
	"strconv"
	"time"
)

// attribute is one line of a block: its name, how it is read, what holds when it is left out, and what it means.
type attribute struct {
	name     string
	others   []string // what people call it, who know it from elsewhere, or from another block
	field    field
	fallback string            // default, as it would be written in the file; "" with required unset: none
	byLabel  map[string]string // defaults that depend on the block's label
	derived  string            // how the default follows from other values, for the reference
	later    string            // not built yet: what it waits for
	required bool
	spared   func(*Job) bool // what stands before it makes it not required; may be nil
	doc      string
}

// block is one kind of block. The tree of blocks below drives decoding, defaults, suggestions and Reference, so that
// they cannot disagree.
type block struct {
	name     string
	doc      string
	labels   []string // the labels it may have; nil with labelled: any
	label    string   // the label when the block is left out
	labelled bool
	required bool // must be written
	optional bool // left out means absent: no defaults are set
	raw      bool // the body belongs to a plugin
	params   bool // the body holds the numbers of the job's policy: policy.go
	attrs    []attribute
	blocks   []*block
	begin    func(j *Job, label string)
}

const (
	forever = math.MaxInt64 * time.Nanosecond
	day     = 24 * time.Hour
	mib     = int64(1) << 20
	tib     = int64(1) << 40
	many    = 1 << 20
)

// notYet says what a value waits for, so that nobody searches for a mistake of his own.
var notYet = map[string]string{
	"sync":   `Synchronous training needs steps that are applied as a whole on every server, which is not built yet. Use mode = "async".`,
	"ratio":  "Servers cannot be added or removed while training goes on yet. Use count.",
	"weight": "Records cannot be weighted yet: each counts once.",
}

// schema is the body of a job block.
var schema = &block{
	name: "job", labelled: true, required: true,
	doc:    "One training job; a file holds one. Its name is lower-case letters, digits and dashes.",
	begin:  func(j *Job, label string) { j.Name = label },
	blocks: []*block{sloBlock, streamBlock, featuresBlock, modelBlock, workersBlock, serversBlock, throughputBlock, forecastBlock, autoscaleBlock, checkpointBlock, networkBlock, backendBlock},
}

var sloBlock = &block{
	name: "slo", doc: "What the job promises.",
	attrs: []attribute{
		{name: "max_lag", field: duration(func(j *Job) *time.Duration { return &j.SLO.MaxLag }, 100*time.Millisecond, forever), fallback: `"20m"`,
			doc: "The oldest record that waits for training may be this old (Kale §4.1)."},
	},
}

var streamBlock = &block{
	name: "stream", labelled: true, labels: []string{"kafka"}, required: true, doc: "Where records come from.",
	begin: func(j *Job, label string) { j.Stream.Kind = label },
	attrs: []attribute{
		{name: "brokers", others: []string{"servers", "bootstrap_servers", "addresses"}, field: texts(func(j *Job) *[]string { return &j.Stream.Brokers }, "host:port each", checkBroker), required: true,
			doc: "Brokers to begin with; the others are learnt from them."},
		{name: "topic", field: text(func(j *Job) *string { return &j.Stream.Topic }, "a Kafka topic name", CheckTopic), required: true,
			doc: "The topic to train on. It must not be compacted."},
		{name: "start", field: start(func(j *Job) *Start { return &j.Stream.Start }), fallback: `"latest"`,
			doc: "Where a job without a checkpoint begins; later it continues from its checkpoint."},
		{name: "on_lost", field: choice(func(j *Job) *string { return &j.Stream.OnLost }, []string{OnLostStop, OnLostSkip}, nil), fallback: `"stop"`,
			doc: "When retention removed records that were not trained yet: stop the partition until an operator decides, or skip them, counted and reported. skip also lets a job go on that stood at a log whose end was cut off, past what is trained."},
		{name: "dead_letter", field: text(func(j *Job) *string { return &j.Stream.DeadLetter }, "a Kafka topic name", CheckTopic),
			doc: "Topic for records that cannot be decoded; while it takes none, partitions stand still at them. Without it on_undecodable says what becomes of them."},
		{name: "on_undecodable", field: choice(func(j *Job) *string { return &j.Stream.OnUndecodable }, []string{OnLostStop, OnLostSkip}, nil), fallback: `"stop"`,
			doc: "When a record cannot be decoded and there is no dead_letter: stop its partition there until an operator decides, or skip it, counted and logged by its offset."},
	},
	blocks: []*block{
		{name: "tls", optional: true, doc: "Encrypt the connection to the brokers. An empty block uses the system's certificate authorities.",
			begin: func(j *Job, _ string) { j.Stream.TLS = &TLS{} },
			attrs: []attribute{
				{name: "ca_file", field: path(func(j *Job) *string { return &j.Stream.TLS.CAFile }, true), doc: "Certificate authorities, PEM."},
				{name: "cert_file", field: path(func(j *Job) *string { return &j.Stream.TLS.CertFile }, true), doc: "Client certificate, PEM; needs key_file."},
				{name: "key_file", field: path(func(j *Job) *string { return &j.Stream.TLS.KeyFile }, true), doc: "Client key, PEM; needs cert_file."},
				{name: "server_name", field: text(func(j *Job) *string { return &j.Stream.TLS.ServerName }, "", nil), doc: "Name expected in the brokers' certificates, where it is not the host's."},
				{name: "insecure_skip_verify", field: boolean(func(j *Job) *bool { return &j.Stream.TLS.InsecureSkipVerify }), fallback: "false", doc: "Accept any certificate. For trials only."},
			}},
		{name: "sasl", optional: true, doc: "Authenticate to the brokers.",
			begin: func(j *Job, _ string) { j.Stream.SASL = &SASL{} },
			attrs: []attribute{
				{name: "mechanism", field: choice(func(j *Job) *string { return &j.Stream.SASL.Mechanism }, []string{"plain", "scram-sha-256", "scram-sha-512"}, nil), required: true, doc: "How the password is shown to the broker."},
				{name: "username", field: text(func(j *Job) *string { return &j.Stream.SASL.Username }, "", nil), required: true, doc: "User name."},
				{name: "password", field: secret(func(j *Job) *Secret { return &j.Stream.SASL.Password }), required: true, doc: `Password; take it from env("NAME") or file("path").`},
			}},
	},
}

var featuresBlock = &block{
	name: "features", required: true, doc: "The fields of a record that are trained on.",
	attrs: []attribute{
		{name: "format", field: choice(func(j *Job) *string { return &j.Features.Format }, []string{FormatJSON, FormatTFExample}, nil), fallback: `"json"`,
			doc: "A record is a JSON object, or a tf.train.Example in protobuf."},
		{name: "label", field: text(func(j *Job) *string { return &j.Features.Label }, "a field", nil), required: true, doc: "The field to predict: 0 or 1."},
		{name: "sparse", field: names(func(j *Job) *[]string { return &j.Features.Sparse }, "fields"), fallback: "[]", doc: "Categorical fields; each value has a row of the embedding."},
		{name: "dense", field: names(func(j *Job) *[]string { return &j.Features.Dense }, "fields"), fallback: "[]", doc: "Numeric fields. They enter the model as they are. A record with a value beyond ±1e13 is taken for one that cannot be decoded."},
		{name: "weight", later: notYet["weight"]},
	},
}

var modelBlock = &block{
	name: "model", doc: "What is trained.",
	attrs: []attribute{
		{name: "kind", field: choice(func(j *Job) *string { return &j.Model.Kind }, []string{ModelLR, ModelDeepFM, ModelCounting}, nil), fallback: `"deepfm"`,
			doc: "Logistic regression, or DeepFM (factorisation machine and a deep part over shared embeddings). Diagnostic: \"counting\" trains nothing and proves exactly-once delivery; each record adds one to a counter of its own and to one of every tablet."},
		{name: "embedding_dim", field: integer(func(j *Job) *int { return &j.Model.EmbeddingDim }, 1, 4096), fallback: "16", doc: "Width of an embedding row. Not used by lr and counting."},
		{name: "hidden", field: integers(func(j *Job) *[]int { return &j.Model.Hidden }, 1, 65536), fallback: "[64, 32]", doc: "Widths of the deep part's layers. Not used by lr and counting."},
		{name: "batch", field: integer(func(j *Job) *int { return &j.Model.Batch }, 1, many), fallback: "1024", doc: "Records per worker and step; a multiple of workers.chunk."},
		{name: "mode", field: choice(func(j *Job) *string { return &j.Model.Mode }, []string{"async"}, map[string]string{"sync": notYet["sync"]}), fallback: `"async"`,
			doc: "Workers push gradients without waiting for each other."},
		{name: "linger", field: duration(func(j *Job) *time.Duration { return &j.Model.Linger }, 0, time.Hour), fallback: `"50ms"`, doc: "A batch that is not full is trained after this long."},
		{name: "l2", field: number(func(j *Job) *float64 { return &j.Model.L2 }, bound{least: 0, most: 0.99}), fallback: "0", doc: "Weight decay."},
		{name: "seed", field: integer(func(j *Job) *int64 { return &j.Model.Seed }, 0, 1<<53), fallback: "1", doc: "Seed of the initial weights."},
		{name: "tablets", field: integer(func(j *Job) *int { return &j.Model.Tablets }, 1, 4096), fallback: "64",
			doc: "Pieces that parameters are cut into; at least as many as there may ever be servers. Fixed for the life of a checkpoint."},
	},
	blocks: []*block{{
		name: "optimiser", labelled: true, labels: []string{"adagrad", "adam", "sgd"}, label: "adagrad", doc: "How gradients change parameters. Not used by counting.",
		begin: func(j *Job, label string) { j.Model.Optimiser.Kind = label },
		attrs: []attribute{
			{name: "learning_rate", field: number(func(j *Job) *float64 { return &j.Model.Optimiser.LearningRate }, bound{least: 1e-12, most: 100}),
				byLabel: map[string]string{"adagrad": "0.05", "adam": "0.001", "sgd": "0.1"}, doc: "Step size. Adagrad's epsilon is 1e-10; Adam's betas are 0.9 and 0.999, its epsilon 1e-8."},
		},
	}},
}

var workersBlock = &block{
	name: "workers", required: true, doc: "How many workers there may be, and what one is.",
	attrs: []attribute{
		{name: "min", field: integer(func(j *Job) *int { return &j.Workers.Min }, 1, 100000), fallback: "1", doc: "Never fewer."},
		{name: "max", field: integer(func(j *Job) *int { return &j.Workers.Max }, 1, 100000), required: true, doc: "Never more. More than the topic has partitions is fine where forward is \"advanced\"."},
		{name: "gpus", field: integer(func(j *Job) *int { return &j.Workers.GPUs }, 0, 64), fallback: "1", doc: "GPUs of one worker; 0: none, it computes on CPUs (in a pool it counts as one)."},
		{name: "cpu", field: number(func(j *Job) *float64 { return &j.Workers.CPU }, bound{least: 0, most: 4096, over: true}), fallback: "1", doc: "Cores of one worker."},
		{name: "memory", field: size(func(j *Job) *int64 { return &j.Workers.Memory }, 16*mib, 64*tib), fallback: `"2GiB"`, doc: "Memory of one worker."},
		{name: "emulate_step", field: duration(func(j *Job) *time.Duration { return &j.Workers.EmulateStep }, 0, time.Hour), fallback: `"0s"`,
			doc: "Emulated accelerator: a step takes at least this long, so that one small machine can show many workers; the model runs on the CPU, whatever GPUs are asked for. 0s: no emulation."},
		{name: "chunk", field: integer(func(j *Job) *int { return &j.Workers.Chunk }, 1, many), fallback: "64", doc: "Records that are forwarded and accounted for together."},
		{name: "queue", field: integer(func(j *Job) *int { return &j.Workers.Queue }, 1, 1<<28), derived: "4 x model.batch", doc: "Records that a worker holds ready. Of what it hands on, each other worker may have four times as many that are not trained yet."},
		{name: "forward", field: choice(func(j *Job) *string { return &j.Workers.Forward }, []string{ForwardAdvanced, ForwardBasic, ForwardNone}, nil), fallback: `"advanced"`,
			doc: "Full workers hand records to others (Kale §3.5), every worker spreads all its records evenly, or each keeps its own."},
	},
}

var serversBlock = &block{
	name: "servers", doc: "The parameter server's processes.",
	attrs: []attribute{
		{name: "count", field: integer(func(j *Job) *int { return &j.Servers.Count }, 1, 4096), fallback: "1", doc: "How many; at most model.tablets."},
		{name: "cpu", field: number(func(j *Job) *float64 { return &j.Servers.CPU }, bound{least: 0, most: 4096, over: true}), fallback: "1", doc: "Cores of one server."},
		{name: "memory", field: size(func(j *Job) *int64 { return &j.Servers.Memory }, 16*mib, 64*tib), fallback: `"2GiB"`, doc: "Memory of one server."},
		{name: "ratio", later: notYet["ratio"]},
	},
}

var throughputBlock = &block{
	name: "throughput", required: true, doc: "The prior of the throughput model: what holds until full load was measured. It is refitted as the job runs.",
	attrs: []attribute{
		{name: "form", field: choice(func(j *Job) *string { return &j.Throughput.Form }, throughputForms(), nil), fallback: `"async"`,
			doc: "Kale's Eq. 9, 6, 8 or 5, of which the -wp forms tell workers from servers, the formula of Optimus, Ernest or Pollux, \"usl\", the universal scalability law, or \"mixed\", ours, for what fits none. For most jobs \"async\" is right: kale trains asynchronously."},
		{name: "source", field: text(func(j *Job) *string { return &j.Throughput.Source }, "", nil),
			doc: "Where theta comes from: shown wherever the prior is used. \"profile\": form and theta are what kale profile measured and stored on this machine; a theta beside it holds until there is one, and may be left out."},
		{name: "theta", field: numbers(func(j *Job) *[]float64 { return &j.Throughput.Theta }, bound{least: 0, most: math.MaxFloat64}), required: true,
			spared: func(j *Job) bool { return j.Throughput.Source == SourceProfile },
			doc:    "Coefficients in the equation's order: async 3 (1, 1/w, w; seconds per record), sync 4 (1, 1/w, 1/w^2, w; seconds per step), async-wp 4 (1, 1/p, p, w), sync-wp 7 (1, 1/w, 1/p, w/p, 1/(wp), p, w), optimus-async 4 (1, w/p, w, p), optimus-sync 5 (M/w, 1, w/p, w, p), ernest 4 (1, 1/w, ln w, w; seconds per record of the whole job), pollux 5 (gradient: 1, M/w; network: 1, w-2; and gamma, 1 to 10), usl 3 (1, w, w^2; seconds per record), mixed 5 (1, 1/w, ln w, w, w^2; seconds per record). One worker at 5,000 records/s: [0.0002, 0, 0]."},
		{name: "batch", field: integer(func(j *Job) *int { return &j.Throughput.Batch }, 1, 1<<30), doc: "M, records per step over all workers; only the forms sync, sync-wp, optimus-sync and pollux, and needed there."},
	},
}

var forecastBlock = &block{
	name: "forecast", doc: "How traffic is foreseen.",
	attrs: []attribute{
		{name: "interval", others: []string{"every", "step", "tick", "bin"}, field: duration(func(j *Job) *time.Duration { return &j.Forecast.Interval }, 100*time.Millisecond, day), fallback: `"1m"`, doc: "Length of one step of history and forecast."},
		{name: "horizon", field: duration(func(j *Job) *time.Duration { return &j.Forecast.Horizon }, 100*time.Millisecond, 30*day), fallback: `"30m"`, doc: "How far ahead."},
		{name: "season", field: durations(func(j *Job) *[]time.Duration { return &j.Forecast.Season }, time.Second, 366*day), fallback: `"24h"`, doc: "Length of a season; several, shortest first, as in [\"24h\", \"7d\"]."},
		{name: "timezone", field: timezone(func(j *Job) *string { return &j.Forecast.Timezone }), derived: "none: the clock is never changed",
			doc: "Where the people live whose day the traffic follows, as \"Europe/Berlin\": when their clocks are put forward or back, the course of the day is expected an hour earlier or later, from the first day on."},
		{name: "history", field: duration(func(j *Job) *time.Duration { return &j.Forecast.History }, time.Second, 5*366*day), fallback: `"72h"`, doc: "Past that is read back from the broker on start, so that the forecast begins warm."},
		{name: "model", field: forecaster(func(j *Job) *string { return &j.Forecast.Model }), fallback: `"seasonal"`, doc: "The forecaster. \"ensemble\" is the mean of \"seasonal\" and of a linear map of the last bins, which is learnt anew once a season: in the first four seasons of its history (forecast.history is to be longer) it is \"seasonal\" alone. Model files come from kale forecast train. A file is read when kale run begins: one that is written anew is told of, and used from the next start on."},
		{name: "gate_window", field: duration(func(j *Job) *time.Duration { return &j.Forecast.GateWindow }, time.Second, 30*day), derived: "4 x horizon", doc: "Recent past on which a model file, or \"ensemble\", is held against \"seasonal\"."},
		{name: "gate_tolerance", field: number(func(j *Job) *float64 { return &j.Forecast.GateTolerance }, bound{least: 0, most: 10}), fallback: "0.1", doc: "The model file may be worse by this share before \"seasonal\" takes over, and by 1 % of the traffic in any case, which moves no worker."},
		{name: "retrain", field: duration(func(j *Job) *time.Duration { return &j.Forecast.Retrain }, time.Second, 366*day), derived: "never",
			doc: "How often a model is trained anew from what has arrived, beside the scheduler, on one core and within a bound of memory: of the kind of the model file, or linear where none is in use. It takes the place of the one in use only where it is better on recent traffic that neither has seen, and never by traffic of less than 1 % of what usually arrives; kale status and kale forecast show tell of it."},
		{name: "events", field: eventList{},
			doc: "Known causes that change the traffic, such as a sale, a campaign or a maintenance: from one time to another, as 2026-11-27T18:00:00Z, or 2026-11-27T18:00 on the clock of timezone, what comes is uplift times what would come without; 0: nothing comes. Of events at once the uplifts are multiplied. The forecast heeds them ahead, and does not expect them again a season later."},
		{name: "events_fade", field: boolean(func(j *Job) *bool { return &j.Forecast.EventsFade }), fallback: "true",
			doc: "An event is taken as it comes: where what arrives in its first bins says that it did not come, or more weakly or strongly than declared, the rest of it is forecast by that. false: as declared to its end."},
		{name: "holidays", others: []string{"calendar", "public_holidays"}, field: holidayList{}, derived: "none",
			doc: "Days that are of a kind of their own, whatever weekday they fall on: public holidays of a region by its ISO 3166 code (\"us\", \"de\", \"de-by\"), with the days on which they are made up for; a day (\"2026-12-24\"), one of each year (\"12-24\"), or a stretch (\"12-24..01-02\"); an iCalendar file, by its path; or an object { name, on, like, uplift, learn }, where on is one of these. From midnight to midnight by timezone."},
		{name: "holidays_except", field: names(func(j *Job) *[]string { return &j.Forecast.HolidaysExcept }, "names of holidays"), derived: "none", doc: "Those of holidays that are ordinary days here, as \"Columbus Day\"."},
		{name: "holidays_like", field: choice(func(j *Job) *string { return &j.Forecast.HolidaysLike }, weekdays, nil), fallback: `"sunday"`,
			doc: "What a holiday is forecast like until the history has others: its course of the day is that of past holidays of its name, else the mean of all past holidays and of this weekday."},
		{name: "holidays_learn", field: boolean(func(j *Job) *bool { return &j.Forecast.HolidaysLearn }), fallback: "true", doc: "false: holidays are like holidays_like, whatever past ones were."},
	},
}

var autoscaleBlock = &block{
	name: "autoscale", doc: "Who decides the number of workers, and how.",
	attrs: []attribute{
		{name: "policy", field: choice(func(j *Job) *string { return &j.Autoscale.Policy }, Policies(), nil), fallback: `"kale"`,
			doc: "Who says how many workers are needed; params lists what each does."},
		{name: "mode", field: choice(func(j *Job) *string { return &j.Autoscale.Mode }, []string{ModeLive, ModeRestart, ModeObserve}, nil), fallback: `"live"`,
			doc: "Join and drain while training goes on, pause and restart from a checkpoint, or decide and record without touching anything (a person's kale pause, resume and stop act all the same)."},
		{name: "rho", field: integer(func(j *Job) *int { return &j.Autoscale.Rho }, 1, 100000), fallback: "1", doc: "A change of fewer workers than this is no change (Kale §3.4.2)."},
		{name: "tau", field: duration(func(j *Job) *time.Duration { return &j.Autoscale.Tau }, 0, 30*day), fallback: strconv.Quote(FormatDuration(DefaultTau)), doc: "A change that lasts less long is smoothed away (Kale §3.4.2)."},
		{name: "cooldown_out", field: duration(func(j *Job) *time.Duration { return &j.Autoscale.CooldownOut }, 0, 30*day), fallback: `"1m"`, doc: "Least time from one scale-out to the next."},
		{name: "cooldown_in", field: duration(func(j *Job) *time.Duration { return &j.Autoscale.CooldownIn }, 0, 30*day), fallback: `"5m"`, doc: "Least time from any rescale to a scale-in."},
		{name: "headroom", others: []string{"margin"}, field: number(func(j *Job) *float64 { return &j.Autoscale.Headroom }, bound{least: 0, most: 10}), fallback: "0.1", doc: "Share by which capacity is planned above the forecast. A scale-in of the policy kale leaves a quarter more of it."},
		{name: "tick", others: []string{"interval", "every"}, field: duration(func(j *Job) *time.Duration { return &j.Autoscale.Tick }, 50*time.Millisecond, day), fallback: `"60s"`, doc: "Time between decisions."},
		{name: "watch", field: duration(func(j *Job) *time.Duration { return &j.Autoscale.Watch }, 10*time.Millisecond, day), fallback: `"5s"`, doc: "Time between looks at lag and membership."},
		{name: "place_timeout", field: duration(func(j *Job) *time.Duration { return &j.Autoscale.PlaceTimeout }, time.Second, 30*day), fallback: `"10m"`,
			doc: "When a worker waits longer than this for a place in the cluster, no more are wanted than could be placed, until there is room or, after as long again, more are tried. A parameter server that waits for a minute (or for this, where it is less) gets the place of a worker. A process that its cluster has suspended for longer is ended and started again where there is room."},
	},
	blocks: []*block{{
		name: "params", optional: true, params: true, doc: "Numbers of the policy; what is left out has its default. Those of another policy are refused.",
	}, {
		name: "fallback", doc: "Thresholds that correct what is planned (Kale §3.4.3). Busy time is that of GPUs, as NVML reports it: of jobs without GPUs it is not known.",
		attrs: []attribute{
			{name: "lag_over", field: duration(func(j *Job) *time.Duration { return &j.Autoscale.Fallback.LagOver }, 10*time.Millisecond, forever), derived: "half of slo.max_lag", doc: "Scale out above this lag, whatever is forecast. Where a rescale stops training, the time that it was measured to do so is added, as far as max_lag leaves time for one more."},
			{name: "utilisation_over", field: number(func(j *Job) *float64 { return &j.Autoscale.Fallback.UtilisationOver }, bound{least: 0, most: 1, over: true}), fallback: "0.9", doc: "Scale out above this share of busy time, whatever is forecast."},
			{name: "utilisation_under", field: number(func(j *Job) *float64 { return &j.Autoscale.Fallback.UtilisationUnder }, bound{least: 0, most: 1}), fallback: "0.3", doc: "Scale in below this share of busy time, while lag is within its objective and the forecast is trusted: without one, none is let go."},
		},
	}},
}

var checkpointBlock = &block{
	name: "checkpoint", required: true, doc: "Where parameters are kept.",
	attrs: []attribute{
		{name: "dir", others: []string{"path", "folder", "directory"}, field: path(func(j *Job) *string { return &j.Checkpoint.Dir }, false), required: true, doc: "Folder that every node that may run a server can reach."},
		{name: "every", others: []string{"interval", "period"}, field: duration(func(j *Job) *time.Duration { return &j.Checkpoint.Every }, 100*time.Millisecond, 7*day), fallback: `"10m"`, doc: "Time between snapshots of a tablet (Kale §5). A server that has just started writes its first after 15 s, and doubles the time up to this."},
		{name: "keep", others: []string{"history", "generations"}, field: integer(func(j *Job) *int { return &j.Checkpoint.Keep }, 1, 1000), fallback: "2", doc: "Generations that are kept."},
	},
}

var networkBlock = &block{
	name: "network", doc: "How the job's processes reach each other and the scheduler where they run on several machines. Without it a job on backend \"local\" stays on the loopback interface, and others find their addresses by the machines' routes.",
	attrs: []attribute{
		{name: "interface", field: text(func(j *Job) *string { return &j.Network.Interface }, "a name such as ib0, or a network such as 10.0.0.0/8", checkInterface),
			doc: "Trainers listen on the address that their machine has there; otherwise on the source address of their route to the scheduler, else to a broker."},
		{name: "listen", field: text(func(j *Job) *string { return &j.Network.Listen }, "host:port", checkListen), derived: `the first free port from 7700, kept; none with backend "local"`,
			doc: "Where the scheduler answers trainers that ask for the job's chief; port 0 is any, kept."},
		{name: "advertise", field: text(func(j *Job) *string { return &j.Network.Advertise }, "host:port", checkAdvertise), derived: "this machine's address on the interface, else on its route to a broker",
			doc: "The address under which the nodes reach the scheduler; port 0 is the one that it listens on."},
		{name: "ports", field: portRange(func(j *Job) *PortRange { return &j.Network.Ports }), derived: "any",
			doc: "Ports that trainers listen on, one for each process."},
	},
}

var backendBlock = &block{
	name: "backend", labelled: true, required: true, raw: true,
	doc:   `Where processes run. The label names the plugin, which reads the body: those of Kale's own are below.`,
	begin: func(j *Job, label string) { j.Backend.Name = label },
}
