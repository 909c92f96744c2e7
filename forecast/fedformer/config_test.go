package fedformer

import (
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	for _, c := range []Config{Small(96), Paper(720), func() Config { c := Small(1); c.Season, c.Marks = 96, 0; return c }()} {
		if err := c.Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for want, change := range map[string]func(*Config){
		"an input of 96 bins is shorter than one season of 1440":    func(c *Config) { c.Season = 1440 },
		"a width of 64 cannot be divided among 7 heads":             func(c *Config) { c.Heads = 7 },
		"a width of 64 cannot be divided among 0 heads":             func(c *Config) { c.Heads = 0 },
		"begins with 97 bins of the input; want 1 to all of its 96": func(c *Config) { c.Label = 97 },
		"the moving average is over 0 bins":                         func(c *Config) { c.Average = 0 },
		"the horizon, in bins, is 0; want 1 to 8192":                func(c *Config) { c.Horizon = 0 },
		"the input, in bins, is 1000000; want 2 to 8192":            func(c *Config) { c.Input = 1000000 },
		"the number of decoder layers is 0":                         func(c *Config) { c.Decoders = 0 },
		"the number of modes is -1":                                 func(c *Config) { c.Modes = -1 },
	} {
		c := Small(96)
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want it to say %q", err, want)
		}
	}
	// Everything that is wrong is said at once.
	if err := (Config{}).Validate(); err == nil || strings.Count(err.Error(), "\n") < 8 {
		t.Errorf("of no sizes at all: %v", err)
	}
}
