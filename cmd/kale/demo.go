package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/cmd/kale/demo"
	"github.com/kale-sched/kale/cmd/kale/view"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/report"
)

type demoFlags struct {
	plain   bool
	report  string
	seed    uint64
	log     string
	keep    bool
	backend string
	peak    float64 // of tests, in place of the demo's own
}

func demoCommand(a *app) *cobra.Command {
	var f demoFlags
	c := &cobra.Command{
		Use: "demo", Short: "One job through a day of two minutes, on this machine",
		Long: `Starts the embedded broker with a synthetic week of clicks, one job with up to six workers whose accelerator is emulated (on this
machine's processes, or with -backend nomad or slurm on a private cluster that it starts and ends), and lets the scheduler follow a day that takes two minutes. It ends by itself with a summary computed from the broker's log, the
tablets and the decision records, and leaves nothing but a report, also where it is killed. Exit code 1 when something it is to show did not come true.`,
		Args: upTo(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), f) },
	}
	a.jsonFlag(c, "print the summary as one JSON object on standard output, everything else on standard error")
	c.Flags().BoolVar(&f.plain, "plain", false, "lines instead of a live picture")
	c.Flags().StringVar(&f.report, "report", "kale-demo.html", "where to write the report")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the traffic and the clicks")
	c.Flags().StringVar(&f.log, "log", "error", "least level of the log on standard error: "+logLevels)
	c.Flags().StringVar(&f.backend, "backend", "local", "what the job runs on: "+strings.Join(slices.Sorted(maps.Keys(demoClusters)), ", "))
	c.Flags().BoolVar(&f.keep, "keep", false, "keep the folder with the broker's data, the checkpoint and the logs")
	return c
}

func (a *app) demo(ctx context.Context, f demoFlags) error {
	lg, err := a.parseLogger(f.log)
	if err != nil {
		return usageError{err}
	}
	if f.report, err = filepath.Abs(f.report); err != nil { // while there is a working folder
		return fmt.Errorf("demo: %w", err)
	}
	if err := checkOut(f.report); err != nil {
		return err
	}
	outliveReaders()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o, err := a.demoOptions(lg, f, cancel)
	if err != nil {
		return err
	}
	guard, err := a.guardDemo(o, f)
	if err != nil {
		return errors.Join(err, os.RemoveAll(o.Dir))
	}
	defer guard.Dismiss() // the last of all
	defer func() {
		if f.keep {
			fmt.Fprintf(a.err, "kale demo: the broker's data, the checkpoint and the logs are kept in %s\n", o.Dir)
			return
		}
		if err := os.RemoveAll(o.Dir); err != nil {
			fmt.Fprintf(a.err, "kale: remove the demo's folder: %v\n", err)
		}
	}()
	began := time.Now()
	res, err := demo.Run(ctx, o)
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("the demo was interrupted; everything that it started has ended")
		}
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { _ = res.Store.Close() }() // it was only read
	sum := res.Summary
	unwritten := writeDemoReport(res, f.report)
	if sum.Report = f.report; unwritten != nil {
		sum.Report = ""
	}
	return errors.Join(a.demoResult(f, sum, time.Since(began)), unwritten)
}

// demoOptions finds the programs and makes the demo's folder.
func (a *app) demoOptions(lg *slog.Logger, f demoFlags, cancel context.CancelFunc) (demo.Options, error) {
	o := demo.Options{Seed: f.seed, Peak: f.peak, Log: lg, Env: map[string]string{}, FailedRC: exitFailed}
	var err error
	if o.Cluster, err = demoCluster(f.backend); err != nil {
		return o, err
	}
	o.Plugin = func(backend string) (string, error) { return a.program("kale-backend-"+backend, "") }
	if _, err = o.Plugin(f.backend); err != nil { // before anything is started
		return o, err
	}
	if o.Trainer, err = a.program("kale-trainer", ""); err != nil {
		return o, err
	}
	lib, err := onnx.Locate()
	if err != nil {
		return o, fmt.Errorf("demo: %w", err)
	}
	if o.Env[onnx.LibraryEnv], err = filepath.Abs(lib); err != nil {
		return o, fmt.Errorf("demo: %w", err)
	}
	if o.Dir, err = os.MkdirTemp("", "kale-demo-"); err != nil {
		return o, fmt.Errorf("demo: make a folder: %w", err)
	}
	v := &demoView{a: a, f: f, cancel: cancel, out: a.out}
	if a.asJSON {
		v.out = a.err // standard output is the summary's alone
	}
	o.Step, o.View = v.step, v.show
	return o, nil
}

func (a *app) demoResult(f demoFlags, sum demo.Summary, took time.Duration) error {
	if a.asJSON {
		enc := json.NewEncoder(a.out)
		enc.SetIndent("", "  ")
		if err := enc.Encode(sum); err != nil {
			return fmt.Errorf("demo: print the summary: %w", err)
		}
	} else {
		var text strings.Builder
		fmt.Fprintf(&text, "\nWhat the stores say after a day of two minutes (whole demo: %.0f s)\n", took.Seconds())
		sum.Print(&text)
		if sum.Report != "" {
			fmt.Fprintf(&text, "  report  %s\n", sum.Report)
		}
		width, _ := terminal(a.out)
		if _, err := io.WriteString(a.out, folded(text.String(), width)); err != nil {
			return fmt.Errorf("demo: print the summary: %w", err)
		}
	}
	var missed error
	for _, p := range sum.Promises() {
		if !p.Kept {
			missed = errors.Join(missed, fmt.Errorf("not shown: %s: %s (%s)", p.Name, p.Value, p.Note))
		}
	}
	if missed != nil {
		return fmt.Errorf("demo: %w\n(a busy machine can cause this: the demo needs about one free core)", missed)
	}
	return nil
}

// demoView shows a demo: what it is doing, and the job once it runs.
type demoView struct {
	a      *app
	f      demoFlags
	out    io.Writer
	cancel context.CancelFunc

	mu      sync.Mutex
	last    string
	picture bool // it has the terminal: steps are shown in it
}

func (v *demoView) step(what string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last = what
	if !v.picture {
		v.a.advise("kale demo: %s\n", what)
	}
}

func (v *demoView) note() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.last
}

// show follows the job until done is closed: as a picture on a terminal, else as lines. Who closes the picture ends the demo.
func (v *demoView) show(s *core.Scheduler, done <-chan struct{}) {
	live := v.a.pictured(v.out) && !v.f.plain
	v.mu.Lock()
	v.picture = live
	v.mu.Unlock()
	o := view.Options{
		Title: "Kale demo: a day in two minutes", EndsWhen: done, Note: v.note, Coloured: v.a.coloured(v.out), Hint: "q or Ctrl-C ends the demo and everything it started", Every: 5 * time.Second,
		Store: s.Store(),
	}
	run := view.Plain
	if live {
		run = func(ctx context.Context, out io.Writer, source func() *core.View, o view.Options) error {
			return view.Run(ctx, v.a.in, behind(out), source, o)
		}
	}
	err := run(context.Background(), v.out, s.View, o)
	v.mu.Lock()
	v.picture = false
	v.mu.Unlock()
	select {
	case <-done:
	default:
		v.cancel()
	}
	if err != nil {
		v.step(err.Error())
	}
}

// writeDemoReport writes the report beside the summary.
func writeDemoReport(res demo.Result, path string) (err error) {
	meta := report.MetaOf(res.Job)
	meta.Title = "Kale demo: a day in two minutes"
	meta.From, meta.To = res.Begin.Add(-30*time.Second), res.End.Add(10*time.Second)
	meta.CountedFrom, meta.CountedTo = res.Begin, res.End
	in, err := report.FromStore(res.Store, meta)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	in.Summary = demoTiles(res.Summary)
	w, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("demo: write the report: %w", err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	return report.Write(w, in)
}

// demoTiles are the summary as the report shows it.
func demoTiles(s demo.Summary) []report.Tile {
	var out []report.Tile
	for _, p := range s.Promises() {
		t := report.Tile{Name: p.Name, Value: p.Value, Note: p.Note, Verdict: report.Good}
		if !p.Kept {
			t.Verdict = report.Bad
		}
		out = append(out, t)
	}
	return append(out, report.Tile{Name: "Lag", Value: fmt.Sprintf("%.2f s", s.LagP50S), Note: fmt.Sprintf("median; 99th percentile %.2f s, highest %.2f s", s.LagP99S, s.LagMaxS)},
		report.Tile{Name: "Emulated accelerators busy", Value: fmt.Sprintf("%.0f %%", s.GPUBusyPct), Note: fmt.Sprintf("a step takes as long with few records as with many; %.0f %% of what they could train was trained", s.GPUUsedPct)})
}
