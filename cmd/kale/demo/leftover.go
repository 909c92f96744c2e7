package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

const (
	// leftoverEvery is how often it is looked again at what is left.
	leftoverEvery = 500 * time.Millisecond
	// leftoverLooks is how many looks in a row must find nothing: the plugin of the demo that was killed may have been starting something, and ends soon after it.
	leftoverLooks = 3
	// removeTries bounds how often the folder is removed: who has just ended may have written into it meanwhile.
	removeTries = 20
)

// EndLeftover ends whatever a demo with these options has left that was killed before it could clean up, and removes its folder unless keep says otherwise. Nothing
// else is touched: what runs is known by the folder, which was that demo's alone.
func EndLeftover(ctx context.Context, o Options, keep bool) error {
	if err := o.Cluster.EndLeftover(ctx, o); err != nil {
		return fmt.Errorf("end what the demo in %s has left: %w", o.Dir, err)
	}
	if keep {
		return nil
	}
	var err error
	for range removeTries {
		if err = os.RemoveAll(o.Dir); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(leftoverEvery):
		}
	}
	return fmt.Errorf("remove the folder of the demo: %w", err)
}

// EndLeftover implements Cluster: the job's processes are released by force, by way of the backend that has them.
func (l Local) EndLeftover(ctx context.Context, o Options) (err error) {
	place, err := l.Start(ctx, ClusterDir(o.Dir))
	if err != nil {
		return err
	}
	path := filepath.Join(o.Dir, jobFileName)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil // the job was not started yet
	}
	// Its broker is gone with the demo, and is not asked.
	j, _, diags := job.Load(path, map[string]string{"brokers": "127.0.0.1:1", "dir": place.Checkpoint}, nil)
	if diags.HasErrors() {
		return diags
	}
	program, err := o.Plugin(place.Backend)
	if err != nil {
		return err
	}
	state := stateDir(o.Dir)
	b, err := backend.Launch(ctx, o.Log, program, backend.Options{SocketDir: state})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	diags, err = core.ConfigureForAny(ctx, b, j, state)
	switch {
	case err != nil:
		return err
	case diags.HasErrors():
		return diags
	}
	return releaseAll(ctx, b, j.Name)
}

// releaseAll releases by force what runs of a job until nothing is seen to for some time.
func releaseAll(ctx context.Context, b backend.Backend, name string) error {
	for none := 0; ; {
		list, complete, err := b.List(ctx, name)
		var live []backend.ID
		for _, st := range list {
			if st.State.Live() {
				live = append(live, st.ID)
			}
		}
		switch {
		case err == nil && complete && len(live) == 0:
			none++
		case len(live) > 0:
			none, err = 0, errors.Join(err, b.Release(ctx, name, live, backend.Forced))
		}
		if none == leftoverLooks {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%d processes are left: %w", len(live), ctx.Err()), err)
		case <-time.After(leftoverEvery):
		}
	}
}
