package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/forecast"
)

// trainBounds bound the process that trains a forecast model anew: its memory, in bytes, and the time that it may compute, in seconds at least.
type trainBounds struct {
	memory uint64
	cpu    time.Duration
}

var retrainBounds = trainBounds{memory: 1 << 30, cpu: 30 * time.Minute}

// traceSuffix ends the name of the file, beside the model that it is to become, of the arrivals that a training learns from.
const traceSuffix = ".csv"

// trainAnew is core.Options.TrainForecast: kale forecast train in a process of its own, on one core, at the lowest priority, with a bound of memory and of time
// (bound). It ends with this process.
func (a *app) trainAnew(ctx context.Context, t core.ForecastTraining) (core.ForecastTrained, error) {
	return a.trainWithin(ctx, t, retrainBounds)
}

func (a *app) trainWithin(ctx context.Context, t core.ForecastTraining, most trainBounds) (out core.ForecastTrained, err error) {
	trace := t.Out + traceSuffix // where a scheduler that is killed leaves it the next training finds it
	defer func() {
		if e := os.Remove(trace); !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}()
	if err := writeTrace(trace, t.History); err != nil {
		return out, err
	}
	args := []string{"forecast", "train", "-json", "-trace", trace, "-counter=false", "-interval", job.FormatDuration(t.History.Step), "-o", t.Out, "-model", t.Kind,
		"-horizon", job.FormatDuration(time.Duration(t.Horizon) * t.History.Step)}
	for _, s := range t.Seasons {
		args = append(args, "-season", job.FormatDuration(s))
	}
	if t.Input > 0 {
		args = append(args, "-input", strconv.Itoa(t.Input))
	}
	if t.Current != "" {
		args = append(args, "-against", t.Current)
	}
	var said, trouble bytes.Buffer
	cmd := exec.CommandContext(ctx, a.exe, args...)
	if nice, err := exec.LookPath("nice"); err == nil {
		cmd = exec.CommandContext(ctx, nice, append([]string{"-n", "19", a.exe}, args...)...)
	}
	cmd.Env = append(backend.CleanEnviron(), "GOMAXPROCS=1", fmt.Sprintf("GOMEMLIMIT=%d", most.memory*3/4))
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &said, &trouble, time.Second
	if err := runBound(cmd, most); err != nil {
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		if beyond := most.passed(cmd.ProcessState, trouble.String()+said.String()); beyond != "" {
			return out, errors.New(beyond)
		}
		return out, failedAnew(err, said.Bytes(), trouble.String())
	}
	return trainedAnew(said.Bytes())
}

// runBound runs a process within its bounds, from a thread that lives for as long as it does: with that one's end the process ends too.
func runBound(cmd *exec.Cmd, most trainBounds) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	bound(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := limit(cmd.Process.Pid, most); err != nil {
		_ = cmd.Process.Kill()
		return errors.Join(err, cmd.Wait())
	}
	return cmd.Wait()
}

// unmapped are what ONNX Runtime, and the loader of its library, say where there is no more memory, and exhausted what Go and C say as they end for want of it.
var (
	unmapped  = []string{"failed to map segment from shared object", "std::bad_alloc", "bad allocation", "Failed to allocate memory"}
	exhausted = []string{"out of memory", "cannot allocate memory", "pthread_create failed"}
)

// passed says by what it has said which bound ended a process that failed, and what helps; "": none did.
func (b trainBounds) passed(ended *os.ProcessState, trouble string) string {
	const helps = "use a model that is smaller, or set forecast.history shorter"
	says := func(text string) bool { return strings.Contains(trouble, text) }
	died := ended != nil && (!ended.Exited() || ended.ExitCode() == 2) // 2: of a Go program that has no more memory
	switch {
	case slices.ContainsFunc(unmapped, says), died && slices.ContainsFunc(exhausted, says):
		return fmt.Sprintf("it needs more than %d MiB of memory, which is all that it may have: %s", b.memory>>20, helps)
	case died && !ended.Exited() && ended.UserTime()+ended.SystemTime() >= b.cpu*3/4:
		return fmt.Sprintf("it was ended after %s of computing, which is all that it may take: %s", job.FormatDuration(b.cpu), helps)
	}
	return ""
}

// failedAnew is why a training failed: what it says with -json, else the last that it wrote.
func failedAnew(err error, said []byte, trouble string) error {
	var why struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(said, &why) != nil || why.Error == "" {
		last := lastLine(strings.TrimSpace(trouble))
		if by := endedBy(err); by != 0 { // it had no time to say why: what it wrote last is how far it was
			return killedAnew(by, last, err)
		}
		if why.Error = last; why.Error == "" {
			return err
		}
	}
	if strings.Contains(why.Error, forecast.ErrShortHistory.Error()) {
		return shortAnew{why.Error}
	}
	return fmt.Errorf("%s (%w)", why.Error, err)
}

// killedAnew says of a training that was ended by a signal what may have sent it, and how far it was.
func killedAnew(by syscall.Signal, last string, err error) error {
	who := ""
	if by == syscall.SIGKILL {
		who = ", by the kernel for want of memory (journalctl -k says so then) or by a person"
	}
	if last != "" {
		last = fmt.Sprintf("; the last that it said was %q", last)
	}
	return fmt.Errorf("its process was ended by signal %d%s%s (%w)", int(by), who, last, err)
}

// shortAnew is forecast.ErrShortHistory of another process, in its words.
type shortAnew struct{ says string }

func (e shortAnew) Error() string { return e.says }
func (e shortAnew) Unwrap() error { return forecast.ErrShortHistory }

// endedBy is the signal that ended a process; 0: none did.
func endedBy(err error) syscall.Signal {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return ws.Signal()
	}
	return 0
}

func lastLine(text string) string { return text[strings.LastIndexByte(text, '\n')+1:] }

// trainedAnew reads what kale forecast train -json prints.
func trainedAnew(raw []byte) (core.ForecastTrained, error) {
	nan := math.NaN()
	unsure := forecast.Lead{By: nan, SE: nan}
	out := core.ForecastTrained{Model: nan, Current: nan, Seasonal: nan, Naive: nan, OverSeasonal: unsure, OverCurrent: unsure, OverNaive: unsure}
	var said struct {
		ID        string     `json:"id"`
		From      time.Time  `json:"holdout_from"`
		FallsBack *bool      `json:"gate_falls_back"`
		Silent    string     `json:"against_failed"`
		Errors    []measured `json:"errors"`
	}
	if err := json.Unmarshal(raw, &said); err != nil {
		return out, fmt.Errorf("read what kale forecast train has printed: %w", err)
	}
	out.Silent = said.Silent
	out.ID, out.From, out.FallsBack = said.ID, said.From, said.FallsBack == nil || *said.FallsBack
	for i, to := range []*float64{&out.Model, &out.Seasonal, &out.Naive, &out.Current} { // in the order of forecastTrain
		if i < len(said.Errors) && said.Errors[i].WAPE != nil {
			*to, out.Origins = *said.Errors[i].WAPE, said.Errors[i].Origins
		}
	}
	for i, to := range map[int]*forecast.Lead{1: &out.OverSeasonal, 2: &out.OverNaive, 3: &out.OverCurrent} {
		if i < len(said.Errors) && said.Errors[i].Lead != nil && said.Errors[i].LeadSE != nil {
			*to = forecast.Lead{By: *said.Errors[i].Lead, SE: *said.Errors[i].LeadSE}
		}
	}
	return out, nil
}

// writeTrace writes the known bins of a series as a trace that ParseCurve reads.
func writeTrace(path string, s forecast.Series) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	fmt.Fprintln(w, "timestamp,rate")
	for i, v := range s.Values {
		if !math.IsNaN(v) {
			fmt.Fprintf(w, "%s,%s\n", s.At(i).UTC().Format(time.RFC3339Nano), strconv.FormatFloat(v, 'g', -1, 64))
		}
	}
	return w.Flush()
}
