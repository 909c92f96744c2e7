package rpc

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestWords(t *testing.T) {
	refused := status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.7:4001: connect: connection refused"`)
	for want, err := range map[string]error{
		"it cannot be reached: dial tcp 10.0.0.7:4001: connect: connection refused":                    refused,
		"join at the chief: it cannot be reached: dial tcp 10.0.0.7:4001: connect: connection refused": fmt.Errorf("join at the chief: %w", refused),
		"beat: no answer in time":         fmt.Errorf("beat: %w", status.Error(codes.DeadlineExceeded, `received context error while waiting for new LB policy update: context deadline exceeded`)),
		"beat: this is not the chief":     fmt.Errorf("beat: %w", status.Error(codes.FailedPrecondition, "this is not the chief")),
		"no file":                         errors.New("no file"),
		"look: context deadline exceeded": fmt.Errorf("look: %w", context.DeadlineExceeded),
	} {
		if got := Words(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
