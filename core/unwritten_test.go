package core

import "testing"

// What a stop said of its last snapshot is past when the job trains again, and holds as long as it does not.
func TestWhatWasUnwrittenIsPast(t *testing.T) {
	d := newDesired("t")
	d.Unwritten = "at noon"
	if d.open(false); d.Unwritten == "" {
		t.Error("it is forgotten before anything was trained")
	}
	if d.trains(); d.Unwritten != "" || !d.Trained {
		t.Errorf("when it trains: %+v", d)
	}
	d.Unwritten = "at one"
	if d.trains(); d.Unwritten == "" {
		t.Error("a stop's own word is forgotten by its next look")
	}
}
