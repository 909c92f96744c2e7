package traffic

import (
	"strings"
	"testing"
	"time"
)

// TestDeadSeed: a bootstrap broker that refuses connections keeps nothing from being read while another answers.
func TestDeadSeed(t *testing.T) {
	brokers := fake(t)
	now := time.Now().Truncate(time.Minute)
	x := newTopic(t, brokers, "past", 2, nil)
	for m := range 3000 { // no two minutes are alike, so that every one is asked for
		x.write(int32(m%2), 1+m%3, now.Add(time.Duration(m-3000)*time.Minute))
	}
	x.flush()
	for round := range 3 {
		seeds := []string{"127.0.0.1:1", brokers[0]}
		if round%2 == 1 {
			seeds = []string{"127.0.0.1:1", brokers[0], "127.0.0.1:2", "127.0.0.1:3"}
		}
		c, err := NewClient(ClientOptions{Brokers: seeds, Topic: "past"})
		if err != nil {
			t.Fatal(err)
		}
		a := NewArrivals(ArrivalsOptions{Keep: 60 * time.Hour})
		if _, err := Backfill(t.Context(), c, a, BackfillOptions{Step: time.Minute, From: now.Add(-50 * time.Hour), To: now, Parallel: 32}); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		c.Close()
	}
}

// TestDeadSeedAlone: where there is no other that is said at once, with which it was.
func TestDeadSeedAlone(t *testing.T) {
	c, err := NewClient(ClientOptions{Brokers: []string{"127.0.0.1:1"}, Topic: "clicks"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	_, err = c.Ends(t.Context())
	if !Unreached(err) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Error(err)
	}
	if took := time.Since(began); took > redialFor/2 { // there is no other to wait for
		t.Errorf("it took %v", took)
	}
}
