package view

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/kale-sched/kale/core"
)

// A signal is the caller's: it ends ctx, and the picture with it, whichever of the two is seen first.
func TestSignalEndsThePicture(t *testing.T) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT)
	defer signal.Stop(signals)
	src := source(t)
	for i := range 25 {
		ctx, cancel := context.WithCancel(t.Context())
		looked := make(chan struct{}, 1)
		go func() { // ends with the signal, which it sends itself
			<-looked
			if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
				t.Error(err)
			}
			<-signals
			cancel()
		}()
		var out bytes.Buffer
		err := show(ctx, nil, &out, func() *core.View {
			select {
			case looked <- struct{}{}:
			default:
			}
			return src()
		}, Options{})
		cancel()
		if err != nil {
			t.Fatalf("picture %d: %v", i+1, err)
		}
		restored(t, out.String())
	}
}

// A terminal that takes nothing more keeps nobody from ending, with a picture or with lines.
func TestStuckTerminal(t *testing.T) {
	for name, run := range map[string]func(context.Context, io.Writer, func() *core.View) error{
		"picture": func(ctx context.Context, out io.Writer, src func() *core.View) error {
			if err := show(ctx, nil, out, src, Options{}); !errors.Is(err, errStuck) {
				return errors.Join(errors.New("the picture was not stuck"), err)
			}
			return nil
		},
		"lines": func(ctx context.Context, out io.Writer, src func() *core.View) error {
			return Plain(ctx, out, src, Options{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, w := io.Pipe() // nobody reads it
			t.Cleanup(func() { _ = r.Close() })
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := run(ctx, w, source(t)); err != nil {
				t.Error(err)
			}
		})
	}
}
