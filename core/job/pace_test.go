package job

import (
	"strings"
	"testing"
)

// A policy whose own times are far longer than the objective, or than the time in which the load comes and goes, is warned of where that time is set; the published
// defaults are not, at the objective and the day that they are made for.
func TestPoliciesThatAreTooSlow(t *testing.T) {
	const late, held = "warning: Too slow for max_lag", "warning: Workers go too late"
	of := func(lag, autoscale, forecast, workers string) string {
		src := strings.Replace(minimal, "workers {", "slo {\n max_lag = \""+lag+"\"\n}\nautoscale {\n"+autoscale+"\n}\nforecast {\n"+forecast+"\n}\nworkers {\n"+workers+"\n", 1)
		_, files, diags := Parse([]byte(src), "job.hcl", Options{})
		text := strings.Join(strings.Fields(rendered(files, diags)), " ") // whatever the lines
		if diags.HasErrors() {
			t.Errorf("%s: %s", src, text)
		}
		return text
	}
	const quick = "tick = \"5s\"\ncooldown_out = \"5s\"\n"
	for _, c := range []struct {
		lag, autoscale, forecast, workers string
		want                              []string
	}{
		{"30s", quick + "policy = \"autopilot\"\nparams {\n window = \"12h\"\n defer = \"10m\"\n}", "", "emulate_step = \"100ms\"", []string{"job.hcl", held, "Steps are emulated (workers.emulate_step) and slo.max_lag is 30s",
			"no fewer workers are kept than the usage of the last 12h asks for. Shorten autoscale.params.window on that scale"}},
		{"30s", quick + "policy = \"autopilot\"\nparams {\n window = \"12h\"\n defer = \"10m\"\n}", "", "", nil},
		{"30s", quick + "policy = \"autopilot\"", "season = \"10m\"\n horizon = \"10m\"\n interval = \"10s\"\n history = \"1h\"", "",
			[]string{held, "forecast.season is 10m", "the last 3d asks for; a scale-in waits until it was wanted for 1h", "Shorten autoscale.params.window and autoscale.params.defer."}},
		{"30s", quick + "policy = \"autopilot-short\"\nparams {\n window = \"12h\"\n}", "", "", []string{late, "usage that is higher counts once it has lasted for 35m (percentile)"}},
		{"30s", quick + "policy = \"flink\"", "", "", []string{late, "a backlog is to be caught up within 30m; a decision needs metrics of 15m, anew after each rescale; nothing is measured for 5m after a rescale",
			"Shorten autoscale.params.catch_up and autoscale.params.window and autoscale.params.stabilisation."}},
		{"30s", quick + "policy = \"hpa\"\nparams {\n up_window = \"5m\"\n}", "", "", []string{late, "with policy \"hpa\" a scale-out waits until it was wanted for 5m"}},
		{"30s", quick + "policy = \"madu\"", "", "", []string{late, "it is 30m from one plan to the next"}},
		{"5s", "watch = \"1s\"", "", "", []string{late, "with policy \"kale\" it is 1m from one scale-out to the next; it is 1m from one decision to the next"}},
		{"5s", "watch = \"1s\"\ntick = \"5s\"\npolicy = \"hpa\"\nparams {\n guard = 0\n}", "", "", nil}, // which heeds no cooldown
		{"1s", "watch = \"1s\"\npolicy = \"static\"", "", "", nil},
	} {
		text := of(c.lag, c.autoscale, c.forecast, c.workers)
		if c.want == nil && (strings.Contains(text, late) || strings.Contains(text, held)) {
			t.Errorf("%s: %s", c.autoscale, text)
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: it lacks %q: %s", c.autoscale, want, text)
			}
		}
	}
	for i := range policies {
		text := of("20m", "policy = \""+policies[i].name+"\"", "", "")
		if strings.Contains(text, late) || strings.Contains(text, held) {
			t.Errorf("%s by its defaults: %s", policies[i].name, text)
		}
	}
}
