package main

import (
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kale-sched/kale/core/stream"
)

// counterFlag says whether a file has a counter: without it, one is refused.
type counterFlag struct {
	given, yes bool
	of         string // the flag that names the file
}

func (c *counterFlag) register(f *pflag.FlagSet, of string) {
	c.of = of
	f.VarPF(c, "counter", "", "the values of "+of+"'s file are a counter, such as a _total of Prometheus: take what is added from row to row (=false: they are no counter, though they look like one)").NoOptDefVal = "true"
}

func (c *counterFlag) Type() string { return "bool" }

func (c *counterFlag) String() string { return strconv.FormatBool(c.yes) }

// Set implements [pflag.Value].
func (c *counterFlag) Set(text string) (err error) {
	c.given = true
	c.yes, err = strconv.ParseBool(text)
	return err
}

// values are what the file is to have.
func (c *counterFlag) values() stream.Values {
	switch {
	case c.yes:
		return stream.Counter
	case c.given:
		return stream.Rates
	}
	return stream.RatesOnly
}

// useless says that there is no file of which it could say something.
func (c *counterFlag) useless() error {
	return usagef("-counter says what the values of a file are: name it with %s", c.of)
}

// traceFile says whether a -trace names a file, and not a topic.
func traceFile(trace string) bool { return trace != "" && !strings.HasPrefix(trace, "kafka://") }
