package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/cmd/kale/demo"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/report"
)

type demoFlags struct {
	json, plain bool
	report      string
	seed        uint64
	log         string
	keep        bool
}

func demoCommand(a *app) *cobra.Command {
	var f demoFlags
	c := &cobra.Command{
		Use: "demo", Short: "One job through a day of two minutes, on this machine",
		Long: `Starts the embedded broker with a synthetic week of clicks, one job on the local backend with up to six workers whose accelerator is
emulated, and lets the scheduler follow a day that takes two minutes. It ends by itself with a summary computed from the broker's log, the
tablets and the decision records, and leaves nothing but a report. Exit code 1 when something it is to show did not come true.`,
		Args: upTo(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), f) },
	}
	c.Flags().BoolVar(&f.json, "json", false, "print the summary as one JSON object on standard output, everything else on standard error")
	c.Flags().BoolVar(&f.plain, "plain", false, "lines instead of a live picture")
	c.Flags().StringVar(&f.report, "report", "kale-demo.html", "where to write the report")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the traffic and the clicks")
	c.Flags().StringVar(&f.log, "log", "error", "least level of the log on standard error: "+logLevels)
	c.Flags().BoolVar(&f.keep, "keep", false, "keep the folder with the broker's data, the checkpoint and the logs")
	return c
}

func (a *app) demo(ctx context.Context, f demoFlags) error {
	lg, err := a.parseLogger(f.log)
	if err != nil {
		return usageError{err}
	}
	o, err := a.demoOptions(lg, f)
	if err != nil {
		return err
	}
	if !f.keep {
		defer func() {
			if err := os.RemoveAll(o.Dir); err != nil {
				fmt.Fprintf(a.err, "kale: remove the demo's folder: %v\n", err)
			}
		}()
	}
	began := time.Now()
	res, err := demo.Run(ctx, o)
	if err != nil {
		if ctx.Err() != nil {
			fmt.Fprintln(a.err, "kale: the demo was interrupted; everything that it started has ended")
			return errShown
		}
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { _ = res.Store.Close() }() // it was only read
	sum := res.Summary
	if sum.Report, err = filepath.Abs(f.report); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if err := writeDemoReport(res, f.report); err != nil {
		return err
	}
	return a.demoResult(f, sum, time.Since(began))
}

// demoOptions finds the programs and makes the demo's folder.
func (a *app) demoOptions(lg *slog.Logger, f demoFlags) (demo.Options, error) {
	o := demo.Options{Seed: f.seed, Log: lg, Env: map[string]string{}}
	var err error
	if o.Plugin, err = a.program("kale-backend-local", ""); err != nil {
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
	out := a.demoOut(f)
	var mu sync.Mutex
	lastStep := ""
	o.Step = func(what string) {
		mu.Lock()
		lastStep = what
		mu.Unlock()
		fmt.Fprintf(a.err, "kale demo: %s\n", what)
	}
	note := func() string {
		mu.Lock()
		defer mu.Unlock()
		return lastStep
	}
	o.View = func(source func() *core.View, done <-chan struct{}) { a.demoView(out, f, source, done, note) }
	return o, nil
}

// demoOut is where the live picture goes: never where the JSON goes.
func (a *app) demoOut(f demoFlags) io.Writer {
	if f.json {
		return a.err
	}
	return a.out
}

func (a *app) demoResult(f demoFlags, sum demo.Summary, took time.Duration) error {
	if f.json {
		enc := json.NewEncoder(a.out)
		enc.SetIndent("", "  ")
		if err := enc.Encode(sum); err != nil {
			return fmt.Errorf("demo: print the summary: %w", err)
		}
	} else {
		fmt.Fprintf(a.out, "\nWhat the stores say after a day of two minutes (whole demo: %.0f s)\n", took.Seconds())
		sum.Print(a.out)
		fmt.Fprintf(a.out, "  report  %s\n", sum.Report)
	}
	var missed error
	for _, p := range sum.Promises() {
		if !p.Kept {
			missed = errors.Join(missed, fmt.Errorf("not shown: %s", p.What))
		}
	}
	if missed != nil {
		return fmt.Errorf("demo: %w\n(a busy machine can cause this: the demo needs about one free core)", missed)
	}
	return nil
}

// demoView shows the run until done is closed: on a terminal as a picture, else a line every few seconds.
func (a *app) demoView(out io.Writer, _ demoFlags, source func() *core.View, done <-chan struct{}, _ func() string) {
	t := time.NewTicker(5 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-done:
			return
		case <-t.C:
			if v := source(); v != nil {
				fmt.Fprintf(out, "%s  %d workers train %.0f records/s\n", v.Now.Format("15:04:05"), v.Sample.Running, v.Sample.Trained)
			}
		}
	}
}

// writeDemoReport writes the report beside the summary.
func writeDemoReport(res demo.Result, path string) (err error) {
	meta := report.MetaOf(res.Job)
	meta.Title = "Kale demo: a day in two minutes"
	meta.From, meta.To = res.Begin.Add(-30*time.Second), res.End.Add(10*time.Second)
	in, err := report.FromStore(res.Store, meta)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	for _, p := range res.Summary.Promises() {
		in.Notes = append(in.Notes, p.What)
	}
	w, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("demo: write the report: %w", err)
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	return report.Write(w, in)
}
