package demo

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/rpc"
)

// On a machine that is busy the day begins when a worker trains, however late that is; it is as long as ever, and traffic goes on until it ends.
func TestDayBeginsWhenWorkersTrain(t *testing.T) {
	one := 1
	training := &core.View{Chief: &rpc.JobStatus{}, Sample: core.Sample{Running: &one}}
	starting := &core.View{Waits: "ps-0-g1 to start"}
	newDemo := func(begin time.Time) (*demo, *playing, *[]string) {
		var steps []string
		d := &demo{o: Options{Step: func(s string) { steps = append(steps, s) }}, written: begin.Add(-leadIn), begin: begin, end: begin.Add(day)}
		return d, &playing{until: d.end}, &steps
	}

	begin := time.Now()
	d, p, steps := newDemo(begin)
	if v, err := d.workersTrain(t.Context(), func() *core.View { return training }, nil, p); err != nil || v != training || !d.begin.Equal(begin) || !p.end().Equal(d.end) || len(*steps) > 0 {
		t.Errorf("a worker trains: %v, the day is %v to %v, steps %q", err, d.begin, d.end, *steps)
	}

	looks := 0
	late := func() *core.View {
		if looks++; looks < 4 {
			return starting
		}
		return training
	}
	if v, err := d.workersTrain(t.Context(), late, nil, p); err != nil || v != training {
		t.Fatal(err)
	}
	if !d.begin.After(begin) || d.end.Sub(d.begin) != day || !p.end().Equal(d.end) || len(*steps) != 1 || !strings.Contains((*steps)[0], "ps-0-g1 to start") {
		t.Errorf("one trains late: the day is %v to %v, traffic until %v, steps %q", d.begin.Sub(begin), d.end.Sub(begin), p.end().Sub(begin), *steps)
	}

	d, p, _ = newDemo(time.Now().Add(-leadMost))
	if _, err := d.workersTrain(t.Context(), func() *core.View { return starting }, nil, p); err == nil || !strings.Contains(err.Error(), "no worker trains 2m0s after the history was written: ps-0-g1 to start") {
		t.Errorf("none ever trains: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	d, p, _ = newDemo(time.Now())
	if _, err := d.workersTrain(ended, func() *core.View { return starting }, nil, p); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	ran := make(chan error, 1)
	ran <- errors.New("its end")
	if _, err := d.workersTrain(t.Context(), func() *core.View { return starting }, ran, p); err == nil || !strings.Contains(err.Error(), "its end") {
		t.Errorf("the scheduler ended: %v", err)
	}
}
