package nomad

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Events that come together are one hint; a heartbeat is none; and the hint at what came before a break is not lost.
func TestFollowGathersEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream, hints := make(chan *api.Events), make(chan struct{}, 1)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			follow(stream, hints)
		}()
		event, heartbeat := &api.Events{Events: make([]api.Event, 1)}, &api.Events{}
		hinted := func() bool {
			synctest.Wait()
			select {
			case <-hints:
				return true
			default:
				return false
			}
		}
		stream <- heartbeat
		if time.Sleep(time.Hour); hinted() {
			t.Error("a heartbeat was a hint")
		}
		for range 3 {
			stream <- event
			time.Sleep(gather / 4)
		}
		if hinted() {
			t.Error("a hint came before all was gathered")
		}
		if time.Sleep(gather); !hinted() {
			t.Error("three events were no hint")
		}
		if time.Sleep(time.Hour); hinted() {
			t.Error("three events were two hints")
		}
		stream <- event
		stream <- &api.Events{Err: errors.New("broken")}
		if <-ended; !hinted() {
			t.Error("an event before the break was no hint")
		}
	})
}
