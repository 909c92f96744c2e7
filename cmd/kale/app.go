package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/kale-sched/kale/cmd/kale/view"
	"github.com/kale-sched/kale/core/job"
)

// Exit codes of all commands.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// app is what all commands share: where they read and write, and what they know of their surroundings. Tests make their own.
type app struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	exe      string        // this program's own path, links resolved; empty: not known
	args     []string      // the command line as it was given, to be repeated to the user
	patience time.Duration // how long a scheduler that is there may take to answer before its job is looked at without it
	// answerWithin is how long one answer of a model file that is measured may take; 0: as long as forecast.ONNXOptions has it.
	answerWithin time.Duration

	stateDir string // flag -state-dir
	asJSON   bool   // flag -json, of a command that has it
	plugins  string // flag -plugin-dir, of a command that reads no job file but that of a job's last run
	printed  *printed
	unheard  func() []string  // of kale run: that its output cannot be written
	ongoing  bool             // what the command prints is no result: it does not fail where that cannot be written
	judged   *judged          // with -json, what is wrong with job files
	silent   map[string]error // by the list of brokers: that they have not answered this command
	takesUp  []string         // jobs that this command, a kale run, is about to take up or has taken up
	given    invocation       // the job file that the command line names, absolute, and its variables: of a job that has not run with this state folder
}

func newApp(in io.Reader, out, err io.Writer) *app {
	a := &app{in: in, out: out, err: err, getenv: os.Getenv, patience: 2 * time.Second}
	if exe, e := os.Executable(); e == nil {
		if real, e := filepath.EvalSymlinks(exe); e == nil {
			exe = real
		}
		a.exe = exe
	}
	return a
}

// run carries out one command line and gives its exit code.
func (a *app) run(ctx context.Context, args []string) int {
	a.args = args
	a.printed = &printed{w: a.out}
	a.out = a.printed
	args = dashes(args)
	if completing(args) {
		args = a.completeOneDash(args)
	}
	root := rootCommand(a)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil && !a.ongoing {
		err = a.printed.err
	}
	if err == nil {
		return exitDone
	}
	return a.fail(ctx, cmd, args, err)
}

// completing says that a shell asks what a command line may go on with.
func completing(args []string) bool {
	return len(args) > 1 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
}

// completeOneDash lets a shell offer flags as we write them, save to somebody who has typed two dashes.
func (a *app) completeOneDash(args []string) []string {
	word := a.args[len(args)-1]
	if !strings.HasPrefix(word, "-") || strings.HasPrefix(word, "--") {
		return args
	}
	a.out = oneDashed{a.out}
	return append(args[:len(args)-1:len(args)-1], "-"+word)
}

// oneDashed takes a dash from each line that begins with two.
type oneDashed struct{ io.Writer }

func (w oneDashed) Write(line []byte) (int, error) {
	if !bytes.HasPrefix(line, []byte("--")) {
		return w.Writer.Write(line)
	}
	n, err := w.Writer.Write(line[1:])
	return n + 1, err
}

// behind is an output itself, for what draws on a terminal.
func behind(w io.Writer) io.Writer {
	switch w := w.(type) {
	case *printed:
		return behind(w.w)
	case *headed:
		return behind(w.w)
	case *outlet:
		return w.w
	}
	return w
}

// complaint is an error as a command ends with it, wrapped on a terminal.
func (a *app) complaint(err error) string {
	width, _ := terminal(a.err)
	return folded(fmt.Sprintf("kale: %v\n", err), width)
}

// advise says something to the user that is no result, wrapped on a terminal.
func (a *app) advise(format string, args ...any) {
	width, _ := terminal(a.err)
	fmt.Fprint(a.err, folded(fmt.Sprintf(format, args...), width))
}

// adviseAll is advise for several notes, each in lines of its own.
func (a *app) adviseAll(notes []string) {
	for _, n := range notes {
		a.advise("%s\n", n)
	}
}

// answer prints a result in words, wrapped to the terminal.
func (a *app) answer(format string, args ...any) {
	width, _ := terminal(a.out)
	fmt.Fprint(a.out, folded(fmt.Sprintf(format, args...), width))
}

// usageError says that the command line is wrong: exit code 2.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errShown says that what went wrong has been printed already, such as diagnostics.
var errShown = errors.New("failed, as said above")

// dashes lets flags be written with one dash or two, as Go's other tools do: -var and --var are the same. Flags of one letter are left alone,
// and so is everything after "--".
func dashes(args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		if arg == "--" {
			copy(out[i:], args[i:])
			break
		}
		out[i] = arg
		if len(arg) > 2 && arg[0] == '-' && letter(arg[1]) && letter(arg[2]) {
			out[i] = "-" + arg
		}
	}
	return out
}

func letter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// oneDash shows flags as we write them.
func oneDash(s string) string {
	return strings.NewReplacer(", --", ", -", ": --", ": -", " --", " -", "\"--", "\"-").Replace(s)
}

func flagError(c *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "-"+f.Name) })
		given := "-" + unknown.GetSpecifiedName()
		return usagef("unknown flag: %s. %s", given, cmp.Or(strings.TrimSpace(job.DidYouMean(given, names)), "There are: "+strings.Join(names, ", ")))
	}
	var number *strconv.NumError
	if errors.As(err, &number) { // strconv names its own functions
		why := "it is not a whole number"
		switch {
		case errors.Is(number, strconv.ErrRange):
			why = "it is beyond what can be given here"
		case number.Func == "ParseFloat":
			why = "it is not a number"
		}
		return usageError{errors.New(strings.Replace(oneDash(err.Error()), number.Error(), why, 1))}
	}
	return usageError{errors.New(oneDash(err.Error()))}
}

// exactly asks for n arguments, named for the message.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef("%s is missing", names[len(args)])
		case len(args) > len(names):
			return unexpected(c, args[len(names)])
		}
		return nil
	}
}

// atLeast asks for one argument or more, named for the message.
func atLeast(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("%s is missing", name)
		}
		return nil
	}
}

// upTo allows at most n arguments.
func upTo(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > n {
			return unexpected(c, args[n])
		}
		return nil
	}
}

// unexpected says of an argument that there is no room for it, and what the command takes.
func unexpected(c *cobra.Command, arg string) error {
	what := "no arguments"
	if _, takes, _ := strings.Cut(c.Use, " "); takes != "" && !strings.HasPrefix(takes, "[-") {
		what = "only " + takes
	}
	return usagef("unexpected argument %q: %s takes %s", arg, c.CommandPath(), what)
}

// terminal says whether w is a terminal, and how wide.
func terminal(w io.Writer) (width int, is bool) {
	f, ok := behind(w).(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}
	return width, true
}

// coloured says whether w may have colours: a terminal that is not dumb, and a user who has not said no (no-color.org).
func (a *app) coloured(w io.Writer) bool {
	return a.pictured(w) && a.getenv("NO_COLOR") == ""
}

// pictured says whether w can show what renews itself: a terminal that is not dumb, and that is ours.
func (a *app) pictured(w io.Writer) bool {
	_, is := terminal(w)
	return is && a.getenv("TERM") != "dumb" && view.Foreground(behind(w).(*os.File))
}

// textWidth is the width to which advice for people is wrapped.
func textWidth(w io.Writer) int {
	if width, is := terminal(w); is {
		return min(width, 120)
	}
	return 100
}
