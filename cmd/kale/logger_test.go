package main

import (
	"testing"
	"time"
)

func TestLeft(t *testing.T) {
	for _, tt := range []struct {
		took        time.Duration
		done, total int
		want        string
	}{
		{time.Second, 1, 10, ""}, // too early to say
		{30 * time.Second, 10, 40, ", about 1m30s left"},
		{30 * time.Second, 0, 40, ""},
		{30 * time.Second, 40, 40, ""},
	} {
		if got := left(tt.took, tt.done, tt.total); got != tt.want {
			t.Errorf("%v for %d of %d: %q, want %q", tt.took, tt.done, tt.total, got, tt.want)
		}
	}
}
