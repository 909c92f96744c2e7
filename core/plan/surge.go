package plan

import (
	"fmt"
	"math"
	"time"
)

// A forecaster learns of a surge that no past has told from some bins on, and its trust, which is of many bins, falls later still. The paper's fallback waits for the lag, until half of what
// the objective allows is used up. Where bins in a row have come above all that was forecast for now, these are the better guess of the next minutes.

const (
	// surgeBins is how many bins in a row show a surge: one may be a burst, and of two in a row above a band of 95 % one in some hundreds is by chance. surgeLevel is the
	// band, and surgeLeast the share of the forecast by which it is exceeded at least. [ours]
	surgeBins  = 3
	surgeLevel = 0.99
	surgeLeast = 0.1
	// surgeLasts is which part of the most of these bins the newest has at least: a load that falls as it was foreseen lies above the forecast for now too. [ours]
	surgeLasts = 0.9
)

// surge raises a plan that goes by the forecast to what came in the last bins, where each of them was above the forecast for now, with its headroom and with its band. Without a headroom, as in the
// paper, the forecast is not second-guessed.
func (s *sheet) surge(p *proposal) {
	o := s.o
	least, most, newest, ok := s.lastBins(surgeBins)
	f := &o.Forecast
	if !ok || !(o.Headroom > 0) || newest < surgeLasts*most {
		return
	}
	now := int(o.Now.Sub(f.At) / f.Step) // there is such a step: it was planned by
	above := max(f.Mean[now], 0) * (1 + max(o.Headroom, surgeLeast))
	if q := f.Quantile(surgeLevel, now); finite(q) {
		above = max(above, q)
	}
	if least <= above {
		return
	}
	load := s.withHeadroom(most)
	w, saturated := s.curve.Smallest(load)
	s.note("surge", least, "records/s", fmt.Sprintf("the least of the last %d bins, above the %s that are forecast for now at the most", surgeBins, formatRate(above)))
	s.noteNeeded("needed for surge", w, load, "most of these bins × (1 + headroom)")
	if w <= p.want {
		return
	}
	p.want, p.load, p.source, p.saturated = w, load, "reactive", saturated
	p.reason = fmt.Sprintf("the last %d bins came at %s or more, above the %s that are forecast for now at the most; %s need %s",
		surgeBins, formatRate(least), formatRate(above), formatRate(load), s.needs(w, load))
}

// lastBins are the least, the most and the newest of the last n rates, where all were measured and the last of them just now.
func (s *sheet) lastBins(n int) (least, most, newest float64, ok bool) {
	r := s.o.Rates
	from := len(r.Values) - n
	if r.Step <= 0 || from < 0 || s.o.Now.Sub(r.Start.Add(lasts(len(r.Values), r.Step))) > r.Step+max(s.o.Interval, time.Second) {
		return 0, 0, 0, false
	}
	least = math.Inf(1)
	for _, v := range r.Values[from:] {
		if !finite(v) || v < 0 {
			return 0, 0, 0, false
		}
		least, most, newest = min(least, v), max(most, v), v
	}
	return least, most, newest, true
}
