package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kale-sched/kale/core/backend/backendpb"
)

// Every code crosses the wire and comes back as itself, with its field and its pause.
func TestErrorsCrossTheWire(t *testing.T) {
	seen := map[Code]bool{}
	for _, row := range codeTable {
		sent := &Error{Code: row.code, Message: "start worker-0-g1", Field: "argv", After: 3 * time.Second}
		var got *Error
		if !errors.As(fromWire(t.Context(), "ensure", toWire(fmt.Errorf("wrapped: %w", sent))), &got) {
			t.Fatalf("%v: came back without a code", row.code)
		}
		want := *sent
		want.Message = "ensure: " + sent.Message
		if diff := cmp.Diff(want, *got, cmpopts.IgnoreUnexported(Error{})); diff != "" {
			t.Errorf("%v (-want +got):\n%s", row.code, diff)
		}
		if seen[row.code] || row.code.String() == "" {
			t.Errorf("code %d is in the table twice or has no name", row.code)
		}
		seen[row.code] = true
	}
	for c := Unavailable; c <= Gone; c++ {
		if !seen[c] {
			t.Errorf("code %d is not in the table", c)
		}
	}
}

// What was attempted is said once, also by a backend that says it itself.
func TestAttemptIsSaidOnce(t *testing.T) {
	const text = "read the log of ps-1-g1 of job \"vx\": it never was"
	if err := fromWire(t.Context(), "read the log of ps-1-g1 of job \"vx\"", toWire(Errorf(Gone, "%s", text))); err.Error() != text+" (gone)" {
		t.Errorf("%q, want %q", err, text)
	}
}

func TestErrorsOfTheTransport(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		err  error
		code Code
		is   error
	}{
		{"plain error of a backend", t.Context(), toWire(errors.New("boom")), Unavailable, nil},
		{"a deadline that a backend met", t.Context(), toWire(Errorf(Unavailable, "list: %w", context.DeadlineExceeded)), Unavailable, context.DeadlineExceeded},
		{"connection lost", t.Context(), status.Error(codes.Unavailable, "EOF"), Unavailable, nil},
		{"panic inside grpc", t.Context(), status.Error(codes.Internal, "boom"), Unavailable, nil},
		{"not found, but not by the backend", t.Context(), status.Error(codes.NotFound, "no service"), Unavailable, nil},
		{"method that the plugin does not have", t.Context(), status.Error(codes.Unimplemented, "?"), Unsupported, nil},
		{"deadline", t.Context(), status.Error(codes.DeadlineExceeded, "late"), Unavailable, context.DeadlineExceeded},
		{"caller gave up", over, status.Error(codes.Canceled, "canceled"), Unavailable, context.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := fromWire(tt.ctx, "list", tt.err)
			if CodeOf(err) != tt.code {
				t.Errorf("%v has code %q, want %q", err, CodeOf(err), tt.code)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("%v is not %v", err, tt.is)
			}
		})
	}
	if toWire(nil) != nil || fromWire(t.Context(), "list", nil) != nil {
		t.Error("no error became one")
	}
}

func TestErrorText(t *testing.T) {
	cause := errors.New("disk full")
	for _, tt := range []struct {
		err  *Error
		want string
	}{
		{Errorf(NoCapacity, "start worker-0-g1: needs 2 GPUs, 1 free"), "start worker-0-g1: needs 2 GPUs, 1 free (no capacity)"},
		{Invalidf("workloads[1].argv", "no program"), "no program (invalid field workloads[1].argv)"},
		{RetryIn(2*time.Second, "busy"), "busy (retry after 2s)"},
		{Errorf(Blocked, "write: %w", cause), "write: disk full (blocked)"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
	if err := Errorf(Blocked, "write: %w", cause); !errors.Is(err, cause) {
		t.Errorf("%v hides its cause", err)
	}
}

// Who waits for less than a call may take is told how long that was.
func TestNoAnswerSaysHowLongWasWaited(t *testing.T) {
	s := &session{done: context.Background()}
	late := func(context.Context, backendpb.BackendServiceClient) (struct{}, error) {
		return struct{}{}, status.Error(codes.DeadlineExceeded, "too late")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := call(ctx, s, 30*time.Minute, "list", late); err == nil || strings.Contains(err.Error(), "30m") {
		t.Errorf("with a minute to wait: %v", err)
	}
	if _, err := call(t.Context(), s, 30*time.Minute, "list", late); err == nil || !strings.HasPrefix(err.Error(), "list: no answer from the plugin within 30m0s") {
		t.Errorf("with all the time that a call has: %v", err)
	}
}

// What is wrapped again with the same code says it once.
func TestCodeIsSaidOnce(t *testing.T) {
	full := Errorf(Blocked, "write x: no space left on device")
	for code, want := range map[Code]string{
		Blocked:     "start ps-0: write x: no space left on device (blocked)",
		Unavailable: "start ps-0: write x: no space left on device (blocked) (unavailable)",
	} {
		if got := Errorf(code, "start ps-0: %w", full).Error(); got != want {
			t.Errorf("says %q, want %q", got, want)
		}
	}
}
