package main

import "testing"

// Of jobs that end together, what takes up several is said once, after what goes on of each.
func TestFarewells(t *testing.T) {
	both := takeUp{command: "run a b c"}
	a := farewell{says: `the scheduler of job "a" has ended; training goes on`, again: both, stop: "kale stop a"}
	b := farewell{says: `the scheduler of job "b" has ended; it stays paused`, again: both, stop: "kale stop b"}
	gone := farewell{says: `the scheduler of job "c" has ended; nothing of it runs`, again: both}
	stopped := farewell{says: `job "d" has stopped`, again: takeUp{command: "run d"}}
	early := farewell{says: "interrupted\n  kale run e\nstarts it"}
	for _, c := range []struct {
		what string
		all  []farewell
		want string
	}{
		{"none", nil, ""},
		{"one", []farewell{a}, a.says + "\n  kale run a b c\ntakes it up again,\n  kale stop a\nstops it\n"},
		{"several", []farewell{a, stopped, b, gone, early, early}, a.says + "\n" + b.says + "\n" + gone.says +
			"\n  kale run a b c\ntakes them up again,\n  kale stop a\n  kale stop b\nstops one\n" +
			"job \"d\" has stopped\n  kale run d\ntakes it up again\ninterrupted\n  kale run e\nstarts it\ninterrupted\n  kale run e\nstarts it\n"},
		{"nothing of several", []farewell{gone, gone}, gone.says + "\n" + gone.says + "\n  kale run a b c\ntakes them up again\n"},
	} {
		if got := farewells(c.all); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}
