package core

import "context"

// Snapshot asks the chief for a snapshot of all tablets and waits for it. It may be called from anywhere.
func (s *Scheduler) Snapshot(ctx context.Context) error {
	return s.chief.snapshot(ctx, stopSnapshotTimeout)
}

// askedSnapshot is a snapshot while it is written: the scheduler goes on looking and taking orders. The zero value has none under way. Only the scheduler's
// goroutine uses it.
type askedSnapshot struct {
	cancel context.CancelFunc
	answer chan error
}

// ask asks the chief for a snapshot, once at a time; done says that the answer, err, is there.
func (a *askedSnapshot) ask(ctx context.Context, chief *chiefLink) (done bool, err error) {
	if a.answer == nil {
		ctx, cancel := context.WithCancel(ctx)
		answer := make(chan error, 1)
		// Ends with ctx; whoever called ask reads its answer, or calls end.
		go func() { answer <- chief.snapshot(ctx, stopSnapshotTimeout) }()
		a.cancel, a.answer = cancel, answer
	}
	select {
	case err = <-a.answer:
	default:
		return false, nil
	}
	a.cancel()
	*a = askedSnapshot{}
	return true, err
}

// end gives up the snapshot that is being waited for.
func (a *askedSnapshot) end() {
	if a.answer != nil {
		a.cancel()
		<-a.answer //nolint:errcheck // only its end matters: it was given up
		*a = askedSnapshot{}
	}
}
