package forecast

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Coarsen gives the series in bins of k of its own, counted back from its end,
// each the mean of those that are known; one of which fewer than half are known is
// unknown. What is left over at the start is dropped. k of 1 or less is the
// series itself.
func (s Series) Coarsen(k int) Series {
	if k <= 1 {
		return s
	}
	n := len(s.Values) / k
	first := len(s.Values) - n*k
	out := Series{Start: s.At(first), Step: time.Duration(k) * s.Step, Values: make([]float64, n)}
	for i := range out.Values {
		bin := s.Values[first+i*k : first+(i+1)*k]
		out.Values[i] = math.NaN()
		known := 0
		for _, v := range bin {
			if v == v {
				known++
			}
		}
		if 2*known >= k {
			out.Values[i] = meanKnown(bin)
		}
	}
	return out
}

// outlookShare is the length of an outlook's bin as a share of the shortest
// season, and outlookReach how far it looks: of a day, a quarter of an hour and
// six hours.
const (
	outlookShare = 96
	outlookReach = 4
	// Its bins are others at every bin of the history, so that it is learnt each time anew.
	outlookOrigins = 128
)

// Outlook is what lies beyond a forecast's horizon: the seasonal forecast of the
// next quarter of the shortest season, in bins of a 96th of it or of the next
// shorter length that divides it into whole bins of the history. A forecast of
// many fine bins would cost more and know no better. Its Step is therefore a
// multiple of the history's. Errors are those of [NewSeasonal].
func Outlook(history Series, seasons []time.Duration) (Forecast, error) {
	const who = "outlook"
	if err := checkRequest(who, history, 1); err != nil {
		return Forecast{}, err
	}
	if len(seasons) == 0 {
		return Forecast{}, fmt.Errorf("%s: no season was given: name one, such as 24h", who)
	}
	season := slices.Min(seasons)
	bins, err := seasonBins(who, season, history.Step)
	if err != nil {
		return Forecast{}, err
	}
	coarse := history.mended(bins).Coarsen(outlookBins(season, history.Step))
	f, err := (&seasonal{seasons: seasons, origins: outlookOrigins}).Forecast(coarse, int((season/outlookReach+coarse.Step-1)/coarse.Step))
	if err != nil {
		return Forecast{}, fmt.Errorf("%s: %w", who, err)
	}
	f.Source = who
	return f, nil
}

// outlookBins is how many bins of the history make one of the outlook.
func outlookBins(season, step time.Duration) int {
	n := int(season / step)
	for k := max(n/outlookShare, 1); k > 1; k-- {
		if n%k == 0 {
			return k
		}
	}
	return 1
}
