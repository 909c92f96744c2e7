package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/cmd/kale/doctor"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/traffic"
)

type initFlags struct {
	in      job.ScaffoldInput
	out     string
	force   bool
	samples int
}

func initCommand(a *app) *cobra.Command {
	var f initFlags
	c := &cobra.Command{
		Use: "init -topic TOPIC", Short: "Write a first job file from what is in a topic",
		Long: `Reads some of a topic's newest records, infers from them what they are made of (label, categories, quantities), and writes a
job file that is valid as it is. Read it before you run it: what was inferred is marked.`,
		Example: "  kale init -brokers kafka-1:9092 -topic clicks -o ctr.hcl\n  kale init -topic clicks -label clicked > ctr.hcl\n" +
			"  kale init -topic clicks -backend slurm -checkpoint /mnt/shared/checkpoints -gpus 1 -o ctr.hcl",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.in.Topic == "" {
				return usagef("-topic is missing: say which topic to train on")
			}
			if f.samples < 1 || f.samples > 100_000 {
				return usagef("-samples %d: want 1 to 100000", f.samples)
			}
			if !slices.Contains(job.ScaffoldBackends, f.in.Backend) {
				return usagef("-backend %q: want one of %s", f.in.Backend, strings.Join(job.ScaffoldBackends, ", "))
			}
			if f.in.Backend != job.BackendLocal && !filepath.IsAbs(f.in.Checkpoint) {
				return usagef("-backend %s needs -checkpoint FOLDER, the absolute path of a folder that the nodes share", f.in.Backend)
			}
			if f.in.GPUs < 0 {
				return usagef("-gpus %d: want 0 or more", f.in.GPUs)
			}
			return a.initJob(cmd.Context(), f)
		},
	}
	c.Flags().StringSliceVar(&f.in.Brokers, "brokers", []string{"127.0.0.1:9092"}, "`HOST:PORT` of Kafka brokers, separated by commas")
	c.Flags().StringVar(&f.in.Topic, "topic", "", "topic to train on")
	c.Flags().StringVar(&f.in.Name, "name", "", "name of the job (default: from -o, or else from the topic)")
	c.Flags().StringVar(&f.in.Label, "label", "", "field to predict (default: inferred)")
	c.Flags().StringVar(&f.in.Checkpoint, "checkpoint", "", "`FOLDER` for checkpoints (default: checkpoints beside the job file)")
	c.Flags().StringVar(&f.in.Backend, "backend", job.BackendLocal, "where the job runs, a `NAME`: "+strings.Join(job.ScaffoldBackends, ", "))
	c.Flags().IntVar(&f.in.GPUs, "gpus", 0, "GPUs per worker")
	c.Flags().IntVar(&f.samples, "samples", 1000, "how many records to look at")
	c.Flags().StringVarP(&f.out, "out", "o", "", "`FILE` to write (default: standard output)")
	c.Flags().BoolVar(&f.force, "force", false, "write over a file that is there")
	return c
}

func (a *app) initJob(ctx context.Context, f initFlags) error {
	if f.out != "" && !f.force && exists(f.out) {
		return fmt.Errorf("%s is there already: choose another -o, or give -force to write over it", f.out)
	}
	if f.out != "" {
		if err := checkOut(f.out); err != nil {
			return err
		}
	}
	if name, ok := strings.CutSuffix(filepath.Base(f.out), ".hcl"); ok && f.in.Name == "" && job.CheckName(name) == "" {
		f.in.Name = name
	}
	if why := job.CheckName(f.in.Name); f.in.Name != "" && why != "" {
		return usagef("-name %q: %s", f.in.Name, why)
	}
	if why := job.CheckTopic(f.in.Topic); f.in.Topic != "" && why != "" {
		return usagef("-topic %q: %s", f.in.Topic, why)
	}
	if err := a.sampleTopic(ctx, &f); err != nil {
		return err
	}
	src, err := job.Scaffold(f.in)
	if err != nil {
		return err
	}
	if why := f.in.ShortSeason(); why != "" {
		fmt.Fprintf(a.err, "warning: %s\n", why)
	}
	if f.out == "" {
		_, err := a.out.Write(src)
		return err
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if !f.force {
		flags |= os.O_EXCL
	}
	file, err := os.OpenFile(f.out, flags, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already: choose another -o, or give -force to write over it", f.out)
	}
	if err != nil {
		return fmt.Errorf("write the job file: %w", err)
	}
	_, err = file.Write(src)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write the job file: %w", err)
	}
	path := quoted([]string{f.out})
	fmt.Fprintf(a.err, "wrote %s from %s of topic %q (%s)\nread it, then see what it would do:\n  kale plan %s\n", f.out, job.Count(len(f.in.Samples), "record"), f.in.Topic, job.Count(f.in.Partitions, "partition"), path)
	return nil
}

// sampleTopic asks about a topic and reads its newest records, as many from each partition. What it finds goes into f.in.
func (a *app) sampleTopic(ctx context.Context, f *initFlags) error {
	topic := f.in.Topic
	opts := []kgo.Opt{kgo.SeedBrokers(f.in.Brokers...), kgo.ClientID("kale-init")}
	o := traffic.ClientOptions{Brokers: f.in.Brokers, Topic: topic}
	cl, err := traffic.NewClient(o)
	if err != nil {
		return err
	}
	defer cl.Close()
	info, err := a.theTopic(ctx, cl, o)
	switch {
	case err != nil:
		return err
	case info.Compacted():
		return fmt.Errorf("topic %q is compacted: records vanish from its middle, so that they cannot be trained exactly once; use one with cleanup.policy=delete", topic)
	}
	answered := a.awaitBrokers(f.in.Brokers, doctor.SampleTimeout)
	found, err := doctor.NewestRecords(ctx, cl, topic, opts, f.samples)
	answered()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("read records of topic %q: %w", topic, ctx.Err())
	case err != nil:
		return err
	case len(found.Values) == 0:
		return fmt.Errorf("topic %q is empty: write some records first, for instance with kale produce -brokers %s -topic %s -duration 10s", topic,
			quoted([]string{strings.Join(f.in.Brokers, ",")}), quoted([]string{topic}))
	}
	answered = a.awaitBrokers(f.in.Brokers, traffic.RequestTimeout)
	since, err := cl.KnownSince(ctx)
	answered()
	if err != nil {
		return err
	}
	if !since.IsZero() {
		f.in.History = max(time.Since(since), time.Second) // 0 would mean that it is not known
	}
	f.in.Partitions, f.in.Samples, f.in.Retention = info.Partitions, found.Values, info.Retention
	return nil
}
