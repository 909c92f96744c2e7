package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/checkpoint"
)

// A process that is cut off from the checkpoint store, and from nothing else, cannot learn that it was replaced, and answers its clients for ever: what it
// trains is lost in the end. So clients look in the store for a newer chief, and a chief that cannot look steps back. Its tablets go on serving: whoever
// follows a newer chief does not ask them.

// trustFor is how long a chief leads without having seen in the checkpoint store that nobody has taken its place.
func (p *serverProcess) trustFor() time.Duration {
	return max(6*millis(p.spec.GetLeaseTimeoutMs()), time.Second)
}

// verify looks every so often whether a newer incarnation has claimed this server's place in the store, and whether there is a newer chief. A store that hangs
// hangs only this.
func (p *serverProcess) verify(ctx context.Context) error {
	failing := false
	for pause(ctx, max(8*millis(p.spec.GetBeatMs()), 100*time.Millisecond)) == nil {
		superseded, err := p.store.Superseded(p.index, p.incarnation)
		switch {
		case err != nil && !failing:
			p.lg.Warn("cannot read the checkpoint store", "err", err)
		case superseded:
			return ErrFenced
		case err == nil:
			p.verified.Store(time.Now().UnixNano())
		}
		failing = err != nil
		info, unread := p.store.Chief()
		if unread == nil && info.Timeline == p.job.Timeline {
			p.newestChief.Store(max(p.newestChief.Load(), info.Incarnation))
		}
		older := unread == nil && info.Timeline == p.job.Timeline && info.Incarnation < p.incarnation || errors.Is(unread, checkpoint.ErrNoChief)
		switch {
		case p.index != 0 || err != nil:
		case older:
			p.noteAgain()
		default:
			p.mendJob(unread == nil && info.Incarnation == p.incarnation)
		}
	}
	return nil
}

// noteAgain writes down what the chief had written in a store that was put back from an older copy, which knows an older chief or none.
func (p *serverProcess) noteAgain() {
	err := p.saveJob(func(*checkpoint.JobState) {})
	if err == nil {
		err = p.store.PublishChief(p.chiefInfo())
	}
	if err != nil {
		p.lg.Warn("the checkpoint store does not know this chief any more, and cannot be told; trying again", "err", err)
		return
	}
	p.lg.Warn("the checkpoint store did not know this chief any more: was it put back from an older copy? It is told again", "store", p.store.Root())
}

func (p *serverProcess) chiefInfo() checkpoint.ChiefInfo {
	return checkpoint.ChiefInfo{Address: p.address, Incarnation: p.incarnation, Timeline: p.job.Timeline}
}

// unverified is for how long it has not been seen that this server's place is its own.
func (p *serverProcess) unverified() time.Duration {
	return time.Since(time.Unix(0, p.verified.Load()))
}

// trust makes the chief step back while its place is in doubt, and go on afterwards.
func (p *serverProcess) trust(ctx context.Context) error {
	if p.chief == nil {
		return nil
	}
	suspended := false
	for pause(ctx, p.trustFor()/8) == nil {
		if doubt := p.unverified() > p.trustFor(); doubt != suspended {
			suspended = doubt
			p.chief.Suspend(doubt)
			if doubt {
				p.lg.Error("the checkpoint store cannot be read, so it is not known whether another chief has taken over: stepping back until it can", "store", p.store.Root(), "for", p.unverified().Round(time.Second))
			} else {
				p.lg.Info("the checkpoint store can be read again, and this is still the chief")
			}
		}
	}
	return nil
}

// steppedDown refuses what is asked of a chief that has stepped back.
func (p *serverProcess) steppedDown(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if p.chief != nil && p.chief.Suspended() && strings.HasPrefix(info.FullMethod, "/"+rpc.Chief_ServiceDesc.ServiceName+"/") {
		return nil, status.Errorf(codes.Unavailable, "this chief (incarnation %d) has not been able to read the checkpoint store %s for %v, so it has stepped back until it can, and whether workers train on is not known here: make the store readable for it",
			p.incarnation, p.store.Root(), p.unverified().Round(time.Second))
	}
	return handler(ctx, req)
}

// behindAfter is for how long no scheduler has answered a process that began after its job was stopped when it takes itself for left behind: one that waited for a
// place while the cluster could not be told to let it go. A job that is run anew answers at once.
const behindAfter = 30 * time.Second

// watchChief looks every so often whether a newer chief has published itself: the one that this worker knows may answer for ever and lead nobody. Where the job was stopped
// since it joined its chief, or since there was one and nobody runs the job, nobody will come that it could train for (errLeftBehind).
func (w *worker) watchChief(ctx context.Context) error {
	for pause(ctx, min(max(millis(w.spec.GetLeaseTimeoutMs())/2, 200*time.Millisecond), 2*time.Second)) == nil {
		if at, err := w.findChief(); err == nil && at.Incarnation > w.newestChief.Load() {
			w.newestChief.Store(at.Incarnation)
			w.beatNow.set()
		}
		chief := w.joined.Load()
		if w.stopped == nil || chief == 0 && !w.meet.deserted() {
			continue
		}
		if chief == 0 {
			chief = w.newestChief.Load()
		}
		if stopped, err := w.stopped(chief); err == nil && stopped {
			return errLeftBehind
		}
	}
	return nil
}

// awaitRun lets a parameter server of a job that was stopped begin only once a scheduler has answered it: one that had waited for a place, and that the stop could
// not reach, would lead the job on though nobody wants it. Without a rendezvous nothing is known, and it begins.
//
// Errors: errLeftBehind after behindAfter; errAskedToEnd when ctx ends; what keeps the stop from being read.
func awaitRun(ctx context.Context, lg *slog.Logger, server int, store *checkpoint.Store, meet *rendezvous) error {
	for told := false; meet != nil; told = true {
		led, _ := store.Chief() // 0 where nobody has led, or the record is not to be read: every stop is later
		stopped, err := store.Stopped(led.Incarnation)
		if err != nil {
			return fmt.Errorf("parameter server %d: %w", server, err)
		}
		if !stopped || meet.runs() {
			return nil
		}
		if meet.deserted() {
			return fmt.Errorf("parameter server %d: %w", server, errLeftBehind)
		}
		if !told {
			lg.Info("the job was stopped; waiting for a scheduler that runs it again", "scheduler", meet.address, "up_to", meet.behindAfter)
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return errAskedToEnd
		}
	}
	return nil
}
