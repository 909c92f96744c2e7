package main

import (
	"strings"
	"testing"
	"testing/synctest"
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

// Where lines of progress cannot be written over, what is long and has not changed is not said again and again.
func TestProgressSaysWhatIsLongOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs buffer
		bar := (&app{err: &errs, getenv: func(string) string { return "" }}).progress()
		away := strings.Repeat("the cluster does not answer; ", 5)
		for _, waits := range []string{away, away, "it ends", "it ends", away} {
			time.Sleep(progressEvery)
			bar.show("stopping, %s: %s", "1m", waits)
		}
		const head = "stopping, 1m: "
		if want := head + away + "\n" + head + "as before\n" + head + "it ends\n" + head + "it ends\n" + head + away + "\n"; errs.String() != want {
			t.Errorf("it says\n%swant\n%s", errs.String(), want)
		}
	})
}
