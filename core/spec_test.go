package core

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/forecast"
)

// Only saturated intervals teach the throughput model: all members busy with full batches, at every look, for long enough.
func TestOnlySaturatedIntervalsTeach(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	rates := func(saturated bool) {
		r.chief.with(func(s *rpc.JobStatus) {
			for _, m := range s.Members {
				m.RecordsPerSecond, m.Metrics.Saturated = 300, saturated
			}
		})
	}
	learnt := func() float64 { return r.s.online.Model().Throughput(2, 2) }
	prior := learnt()
	rates(false)
	r.beats(40)
	if got := learnt(); got != prior {
		t.Fatalf("members that wait for records taught %v", got)
	}
	rates(true)
	for range 10 { // one that waits now and then begins the interval anew
		r.beats(3)
		rates(false)
		r.beat()
		rates(true)
	}
	if got := learnt(); got != prior {
		t.Fatalf("members that wait now and then taught %v", got)
	}
	r.beats(60)
	if got := learnt(); math.Abs(got-600) > 60 {
		t.Errorf("F(2) = %v after 60 s of 600 records/s, prior %v", got, prior)
	}
	r.reopen()
	if got := learnt(); math.Abs(got-600) > 60 {
		t.Errorf("F(2) = %v after a restart", got)
	}
}

// An emulated accelerator stands in for the GPUs that a job asks for: on a cluster with fake ones nothing could compute on them.
func TestEmulatedAcceleratorComputesOnTheCPU(t *testing.T) {
	for emulate, want := range map[string]string{"0s": "cuda", "80ms": "cpu"} {
		r := newRig(t, rigOptions{change: func(text string) string {
			return strings.Replace(text, "gpus = 1", "gpus = 1\n    emulate_step = \""+emulate+"\"", 1)
		}})
		if got := TrainSpec(r.job, "").GetWorker().GetDevice(); got != want {
			t.Errorf("emulate_step %s: device %q, want %q", emulate, got, want)
		}
	}
}

func TestTrainSpecCarriesTheJob(t *testing.T) {
	r := newRig(t, rigOptions{change: func(text string) string {
		text = strings.Replace(text, `start   = "earliest"`, "start = \"-6h\"\n dead_letter = \"dead\"\n on_lost = \"skip\"\n tls {\n server_name = \"kafka\"\n }\n sasl {\n mechanism = \"plain\"\n username = \"u\"\n password = \"secret\"\n }", 1)
		return strings.Replace(text, `kind = "lr"`, "kind = \"deepfm\"\n hidden = [8, 4]\n embedding_dim = 3\n", 1)
	}})
	s := TrainSpec(r.job, "tok")
	want := &rpc.TrainSpec{
		Job: "ctr", Fingerprint: r.job.Fingerprint(), Token: "tok", CheckpointDir: r.job.Checkpoint.Dir,
		Stream: &rpc.StreamSpec{
			Brokers: []string{r.broker.Addr()}, Topic: rigTopic, Start: "-6h0m0s", OnLost: "skip", OnUndecodable: "stop", DeadLetter: "dead",
			Tls: &rpc.TLSSpec{ServerName: "kafka"}, Sasl: &rpc.SASLSpec{Mechanism: "plain", Username: "u", Password: "secret"},
		},
		Features: &rpc.FeatureSpec{Format: "json", Label: "click", Sparse: []string{"user"}},
		Model:    &rpc.ModelSpec{Kind: "deepfm", EmbeddingDim: 3, Hidden: []int32{8, 4}, Batch: 1024, Seed: 1, Optimiser: "adagrad", LearningRate: 0.05},
		Servers:  2, Tablets: 64, SnapshotEveryMs: 600_000, SnapshotKeep: 2,
		Worker:         &rpc.WorkerSpec{Chunk: 64, Queue: 4096, Window: windowRecords, LingerMs: 50, Threads: 1, Forward: "advanced", Device: "cuda"},
		LeaseTimeoutMs: leaseTimeout.Milliseconds(), BeatMs: beat.Milliseconds(), GraceMs: grace.Milliseconds(),
	}
	if !proto.Equal(s, want) {
		t.Errorf("specification\n%s\nwant\n%s", protojson.Format(s), protojson.Format(want))
	}
	for _, w := range []struct {
		argv  string
		files map[string][]byte
	}{
		{strings.Join(r.s.loads.worker(3, 7).Argv, " "), r.s.loads.worker(3, 7).Files},
		{strings.Join(r.s.loads.server(1, 2).Argv, " "), r.s.loads.server(1, 2).Files},
	} {
		if strings.Contains(w.argv, "secret") || strings.Contains(w.argv, r.s.want.Token) {
			t.Errorf("a secret shows in the process list: %s", w.argv)
		}
		back := &rpc.TrainSpec{}
		if err := protojson.Unmarshal(w.files[specFile], back); err != nil || back.GetToken() != r.s.want.Token {
			t.Errorf("%s: its specification has the token %q, %v", w.argv, back.GetToken(), err)
		}
	}
	for kind, want := range map[string]job.Start{
		"latest": {Kind: job.StartLatest}, "2026-01-31T06:00:00Z": {Kind: job.StartTime, Time: time.Date(2026, 1, 31, 7, 0, 0, 0, time.FixedZone("", 3600))},
	} {
		r.job.Stream.Start = want
		if got := streamSpec(r.job).GetStart(); got != kind {
			t.Errorf("start %+v became %q, want %q", want, got, kind)
		}
	}
}

func TestKafkaOptsSayWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rubbish := write("rubbish.pem", "rubbish")
	cert, key := certificate(t)
	certFile, keyFile := write("cert.pem", cert), write("key.pem", key)
	for name, c := range map[string]struct {
		stream job.Stream
		says   string
	}{
		"plain text":     {job.Stream{}, ""},
		"system's CAs":   {job.Stream{TLS: &job.TLS{}}, ""},
		"own CA and key": {job.Stream{TLS: &job.TLS{CAFile: certFile, CertFile: certFile, KeyFile: keyFile}}, ""},
		"no CA file":     {job.Stream{TLS: &job.TLS{CAFile: filepath.Join(dir, "none")}}, "read the brokers' CA"},
		"CA is rubbish":  {job.Stream{TLS: &job.TLS{CAFile: rubbish}}, "rubbish.pem holds no PEM certificate"},
		"key is rubbish": {job.Stream{TLS: &job.TLS{CertFile: certFile, KeyFile: rubbish}}, "read the client certificate for the brokers"},
		"plain":          {job.Stream{SASL: &job.SASL{Mechanism: "plain", Username: "u", Password: job.NewSecret("p")}}, ""},
		"scram 256":      {job.Stream{SASL: &job.SASL{Mechanism: "scram-sha-256"}}, ""},
		"scram 512":      {job.Stream{SASL: &job.SASL{Mechanism: "scram-sha-512"}}, ""},
		"kerberos":       {job.Stream{SASL: &job.SASL{Mechanism: "gssapi"}}, `"gssapi": there are plain, scram-sha-256 and scram-sha-512`},
	} {
		opts, err := KafkaOpts(&job.Job{Stream: c.stream})
		if c.says == "" && (err != nil || len(opts) == 0) || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// certificate is a self-signed one and its key, PEM.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

func TestForecastOfAMoment(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	f := &foresight{last: plan.Forecast{At: at, Step: time.Second, Mean: plan.Values{1, 2, math.NaN()}, Lower: plan.Values{0.5}, Upper: plan.Values{1.5}}}
	for offset, want := range map[time.Duration]string{
		-time.Nanosecond: "<nil>", 0: "&{1 0.5 1.5}", 1500 * time.Millisecond: "&{2 2 2}", 2 * time.Second: "<nil>", time.Hour: "<nil>",
	} {
		if got := fmt.Sprint(f.at(at.Add(offset))); got != want {
			t.Errorf("after %v: %s, want %s", offset, got, want)
		}
	}
	if got := (&foresight{}).at(at); got != nil {
		t.Errorf("without a forecast: %+v", got)
	}
}

// Too little history: what happens meanwhile, until when, and what ends it; in the same words as time passes.
// A history of one season, which a job file may ask for, is enough for a forecast that is trusted: what is needed besides is looked back on too.
func TestHistoryOfOneSeason(t *testing.T) {
	j := parseJob(t, fmt.Sprintf(rigJob, "b:1", rigTopic, "live", t.TempDir()))
	j.Forecast.History = j.Forecast.Season[0]
	f, err := newForesight(slog.New(slog.DiscardHandler), j, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := forecast.Series{Start: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC), Step: j.Forecast.Interval, Values: make([]float64, 1000)}
	for i := range s.Values {
		s.Values[i] = 100 + 50*math.Sin(2*math.Pi*float64(i)*s.Step.Seconds()/j.Forecast.Season[0].Seconds())
	}
	past := pastOf(j, s, len(s.Values))
	if got := f.forecast(past.End(), past); !got.Trusted {
		t.Errorf("not trusted: %s", got.Reason)
	}
}

// An event of the job file is foreseen, and said; a season later nobody expects it again.
func TestEvents(t *testing.T) {
	j := parseJob(t, fmt.Sprintf(rigJob, "b:1", rigTopic, "live", t.TempDir())) // interval 1 s, horizon 20 s, season 1 min
	begin := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	from := begin.Add(290 * time.Second)
	j.Forecast.Events = []job.Event{{Name: "sale", From: from, To: from.Add(20 * time.Second), Uplift: 3}}
	f, err := newForesight(slog.New(slog.DiscardHandler), j, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := forecast.Series{Start: begin, Step: time.Second, Values: make([]float64, 600)}
	for i := range s.Values {
		s.Values[i] = 100
		if at := s.At(i); !at.Before(from) && at.Before(from.Add(20*time.Second)) {
			s.Values[i] = 300
		}
	}
	for _, c := range []struct {
		at     int
		events bool
	}{{280, true}, {295, true}, {345, false}, {360, false}} {
		past := s.Until(s.At(c.at))
		got := f.forecast(past.End(), past)
		for h, v := range got.Mean {
			if want := s.Values[c.at+h]; math.Abs(v-want) > 0.01*want {
				t.Errorf("at %d s, %d s ahead: %v, want %v", c.at, h+1, v, want)
			}
		}
		if !got.Trusted || strings.Contains(got.Reason, "; sale counts ×3") != c.events {
			t.Errorf("at %d s: trusted %v, %q", c.at, got.Trusted, got.Reason)
		}
	}
}

func TestTooLittleHistory(t *testing.T) {
	j := parseJob(t, fmt.Sprintf(rigJob, "b:1", rigTopic, "live", t.TempDir())) // interval 1 s, horizon 20 s, season 1 min
	f, err := newForesight(slog.New(slog.DiscardHandler), j, nil)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Date(2026, 1, 31, 12, 0, 0, 0, time.Local)
	say := func(known, later int) plan.Forecast {
		s := forecast.Series{Start: end.Add(time.Duration(later-300) * time.Second), Step: time.Second, Values: make([]float64, 300)}
		for i := range s.Values {
			s.Values[i] = 100
			if i < 300-known-later {
				s.Values[i] = math.NaN()
			}
		}
		return f.forecast(s.End(), s)
	}
	first := say(30, 0)
	for _, want := range []string{"known only since 2026-01-31 11:59", "a season of 1m needs about 1m40s", "until about 2026-01-31 12:02 workers are added as traffic demands, and none is let go", "shorter forecast.season"} {
		if first.Trusted || !strings.Contains(first.Reason, want) {
			t.Errorf("trusted %v, %q; want %q in it", first.Trusted, first.Reason, want)
		}
	}
	if again := say(30, 10); again.Reason != first.Reason {
		t.Errorf("ten seconds later it says %q, before %q", again.Reason, first.Reason)
	}
	if none := say(0, 0); none.Trusted || !strings.Contains(none.Reason, "no arrivals are known yet") || !strings.Contains(none.Reason, "none is let go") {
		t.Errorf("without any: trusted %v, %q", none.Trusted, none.Reason)
	}
	for later := range 70 { // what it scores meanwhile does not break what was said
		if got := say(30, later); got.Trusted || got.Calibrated || got.Reason != first.Reason {
			t.Fatalf("%d s later: trusted %v, calibrated %v, %q", later, got.Trusted, got.Calibrated, got.Reason)
		}
	}
	f.warm = false
	if enough := say(200, 0); !enough.Trusted || strings.Contains(enough.Reason, "let go") {
		t.Errorf("with enough: trusted %v, %q", enough.Trusted, enough.Reason)
	}
}

// A bin that is a fault is said once, when what came after has shown it to be one, and the forecast is as it was.
func TestFaultIsSaidOnce(t *testing.T) {
	var log bytes.Buffer
	j := parseJob(t, fmt.Sprintf(rigJob, "b:1", rigTopic, "live", t.TempDir()))
	f, err := newForesight(slog.New(slog.NewTextHandler(&log, nil)), j, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := forecast.Series{Start: time.Unix(1_800_000_000, 0), Step: f.step, Values: make([]float64, int(f.needed/f.step)+300)}
	for i := range s.Values {
		s.Values[i] = 100
	}
	bad := len(s.Values) - 5
	s.Values[bad] = 1e6
	for end := bad - 1; end <= len(s.Values); end++ {
		if mean := f.forecast(s.At(end), s.Until(s.At(end))).Mean; len(mean) == 0 || slices.Max(mean) > 101 || slices.Min(mean) < 99 {
			t.Errorf("%d bins after the fault %v is expected", end-bad, mean)
		}
		want := 1
		if end <= bad+1 {
			want = 0
		}
		if n := strings.Count(log.String(), "records_per_second=1e+06"); n != want {
			t.Errorf("%d bins after the fault it has been said %d times, want %d, in\n%s", end-bad, n, want, log.String())
		}
	}
}

// That another forecaster is in use than before is said with its reason, also where it is no falling back.
func TestAnotherForecasterSaysWhy(t *testing.T) {
	var log bytes.Buffer
	j := parseJob(t, fmt.Sprintf(rigJob, "b:1", rigTopic, "live", t.TempDir()))
	f, err := newForesight(slog.New(slog.NewTextHandler(&log, nil)), j, json.RawMessage(`{"Version":1,"Using":"onnx:old"}`))
	if err != nil {
		t.Fatal(err)
	}
	s := forecast.Series{Start: time.Unix(1_800_000_000, 0), Step: time.Second, Values: make([]float64, 300)}
	for i := range s.Values {
		s.Values[i] = 100
	}
	f.forecast(s.End(), s)
	if says := `msg="another forecaster is in use" using=seasonal why="forecasts are made by seasonal now, and no longer by onnx:old, which is not what the job names any more; the recent error of seasonal is 0.0 % over `; !strings.Contains(log.String(), says) {
		t.Errorf("want %s in\n%s", says, log.String())
	}
}
