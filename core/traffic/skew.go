package traffic

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// SkewLeast is how far clocks may differ before it counts: producers date records when they send them, and brokers give them out a little later.
	SkewLeast = 5 * time.Second
	// skewMost is how far they are taken to differ: what is dated further off is a past that somebody writes now. A clock that takes the time of its zone for UTC, or
	// summer time for winter time, is an hour off, and records are seen a little after their date.
	skewMost = time.Hour + time.Minute
	// skewWait is for how long records are waited for, whose dates tell; skewPoll how often it is looked, which is how exact the answer is.
	skewWait = time.Second
	skewPoll = 100 * time.Millisecond
	// skewRecords are so many at least. Clocks differ by the same for all; what is written late is not.
	skewRecords = 2
)

// Skew is by how much records are dated ahead of this machine's clock at the moment at which they enter; negative: behind. It is 0 where that is less than SkewLeast,
// and known is false where nothing tells: the newest record is dated otherwise, and no others come in a second, or they do not agree. Where the newest record is dated
// about now it does not wait.
func (c *Client) Skew(ctx context.Context) (skew time.Duration, known bool, err error) {
	asked := time.Now()
	newest, ends, err := c.LastStamps(ctx)
	if err != nil {
		return 0, false, fmt.Errorf("compare clocks: %w", err)
	}
	for _, stamp := range newest {
		if off := stamp.Sub(asked); off > -SkewLeast && off < SkewLeast {
			return 0, true, nil
		}
	}
	if len(newest) == 0 {
		return 0, false, nil
	}
	var off []time.Duration
	for until := asked.Add(skewWait); len(off) < skewRecords; {
		select {
		case <-ctx.Done():
			return 0, false, ctx.Err()
		case <-time.After(skewPoll):
		}
		looked := time.Now()
		now, err := c.Ends(ctx)
		if err != nil {
			return 0, false, fmt.Errorf("compare clocks: %w", err)
		}
		for _, at := range news(ends, now) {
			stamps, _ := c.Stamps(ctx, at)
			for _, stamp := range stamps {
				off = append(off, stamp.Sub(looked))
			}
		}
		if ends = now; looked.After(until) {
			break
		}
	}
	if len(off) < skewRecords {
		return 0, false, nil
	}
	slices.Sort(off)
	switch least, most := off[0], off[len(off)-1]; {
	case most-least > SkewLeast:
		return 0, false, nil
	case least > -SkewLeast && most < SkewLeast:
		return 0, true, nil
	case least < -skewMost || most > skewMost:
		return 0, false, nil
	}
	return off[len(off)/2], true, nil
}

// news are the first and the last record of each partition that entered between two looks at the ends.
func news(before, now map[int32]int64) []map[int32]int64 {
	first, last := map[int32]int64{}, map[int32]int64{}
	for p, end := range now {
		if was, known := before[p]; known && was < end {
			first[p] = was
			if was < end-1 {
				last[p] = end - 1
			}
		}
	}
	return []map[int32]int64{first, last}
}
