package replay

import "testing"

// A day of the synthetic week under each policy in its paper setting.
func BenchmarkDay(b *testing.B) {
	c := week(b, 1, Options{World: PaperRestart()})
	for _, name := range Policies() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := c.play(b.Context(), PaperSetting(name), 0, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A day of the oracle, with outages and live (the search of the toll included).
func BenchmarkOracleDay(b *testing.B) {
	b.Run("restart", func(b *testing.B) {
		c := week(b, 1, Options{World: PaperRestart()})
		for b.Loop() {
			c.playOracle(b.Context(), 0, restartGrid(c.j.SLO.MaxLag, c.o.World), nil)
		}
	})
	b.Run("live", func(b *testing.B) {
		c := week(b, 1, Options{World: LiveRescale()})
		for b.Loop() {
			c.playLiveOracle(b.Context(), 0, liveGrid(c.j.SLO.MaxLag), -1, nil)
		}
	})
}
