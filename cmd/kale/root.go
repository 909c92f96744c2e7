package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core/job"
)

// cobraGlobals sets what cobra keeps for the whole process.
var cobraGlobals = sync.OnceFunc(func() {
	cobra.AddTemplateFunc("oneDash", oneDash)
	cobra.EnableCommandSorting = false // the order of commands is that of a job's life
})

func rootCommand(a *app) *cobra.Command {
	version := false
	root := &cobra.Command{
		Use:   "kale",
		Short: "Elastic GPU scheduling for training on a stream",
		Long: `kale keeps training jobs on a Kafka stream within their lag, with the fewest GPUs and without stopping them.

A first job:

  kale broker -topic clicks:8          a broker, if there is none
  kale produce -topic clicks           traffic, if there is none
  kale init -topic clicks -o ctr.hcl   a job file from what is in the topic
  kale plan ctr.hcl                    what would happen
  kale run ctr.hcl                     let it happen`,
		SilenceUsage: true, SilenceErrors: true,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return a.version()
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&version, "version", false, "say what this program is, as kale version does")
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetIn(a.in)
	root.SetFlagErrorFunc(flagError)
	cobraGlobals()
	width := textWidth(a.out)
	root.SetUsageTemplate(usageTemplate)
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { fmt.Fprint(a.out, helpText(c, width)) })
	root.PersistentFlags().StringVar(&a.stateDir, "state-dir", "", "folder for what jobs keep on this machine (default $KALE_STATE_DIR, $XDG_STATE_HOME/kale or ~/.local/state/kale)")
	root.AddGroup(&cobra.Group{ID: groupJob, Title: "Jobs:"}, &cobra.Group{ID: groupFile, Title: "Job files:"}, &cobra.Group{ID: groupStream, Title: "Streams and forecasts:"})
	root.SetHelpCommand(helpCommand())
	for _, c := range commands(a) {
		root.AddCommand(c)
	}
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args = noSuchCommand
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			for _, shell := range c.Commands() {
				shell.Args = exactly()
			}
		}
	}
	return root
}

// Groups of commands in the help.
const (
	groupJob    = "job"
	groupFile   = "file"
	groupStream = "stream"
)

// commands are all subcommands, in the order of the help.
func commands(a *app) []*cobra.Command {
	return []*cobra.Command{
		inGroup(groupJob, runCommand(a)),
		inGroup(groupJob, stopCommand(a)),
		inGroup(groupJob, statusCommand(a)),
		inGroup(groupJob, explainCommand(a)),
		inGroup(groupJob, reportCommand(a)),
		inGroup(groupJob, auditCommand(a)),
		inGroup(groupJob, logsCommand(a)),
		inGroup(groupJob, scaleCommand(a)),
		inGroup(groupJob, pauseCommand(a)),
		inGroup(groupJob, resumeCommand(a)),
		inGroup(groupJob, forgetCommand(a)),
		inGroup(groupFile, initCommand(a)),
		inGroup(groupFile, validateCommand(a)),
		inGroup(groupFile, planCommand(a)),
		inGroup(groupFile, doctorCommand(a)),
		inGroup(groupFile, profileCommand(a)),
		inGroup(groupStream, brokerCommand(a)),
		inGroup(groupStream, produceCommand(a)),
		inGroup(groupStream, demoCommand(a)),
		inGroup(groupStream, forecastCommand(a)),
		inGroup(groupStream, replayCommand(a)),
		versionCommand(a),
		jobfileTopic(a),
	}
}

func inGroup(id string, c *cobra.Command) *cobra.Command {
	c.GroupID = id
	return c
}

// noSuchCommand is the arguments' check of a command that has only subcommands.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names, meant []string
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() && !c.IsAdditionalHelpTopicCommand() {
			continue
		}
		names = append(names, c.Name())
		if slices.Contains(c.SuggestFor, args[0]) || args[0] != "" && strings.HasPrefix(c.Name(), args[0]) {
			meant = append(meant, strconv.Quote(c.Name()))
		}
	}
	if near := job.Nearest(args[0], append(slices.Clip(names), "help")); len(meant) == 0 && near != "" {
		meant = append(meant, strconv.Quote(near))
	}
	hint := fmt.Sprintf("There are: %s", strings.Join(names, ", "))
	if len(meant) > 0 {
		hint = fmt.Sprintf("Did you mean %s?", strings.Join(meant, " or "))
	}
	return usagef("there is no command %q. %s", cmd.CommandPath()+" "+args[0], hint)
}

// helpText is what a command's help says, for a terminal of a width.
func helpText(c *cobra.Command, width int) string {
	says := c.Long
	if says == "" {
		says = c.Short
	}
	text := reflowed(strings.TrimSpace(says), width) + "\n"
	if c.Runnable() || c.HasSubCommands() {
		text += "\n" + folded(c.UsageString(), width)
	}
	return text
}

// usageTemplate is cobra's, with flags as we write them.
const usageTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}{{$cmds := .Commands}}{{range $group := .Groups}}

{{.Title}}{{range $cmds}}{{if (and (eq .GroupID $group.ID) .IsAvailableCommand)}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{if not .AllChildCommandsHaveGroup}}

{{if .Groups}}Other:{{else}}Commands:{{end}}{{range $cmds}}{{if (and (eq .GroupID "") .IsAvailableCommand)}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | oneDash | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Flags of every command:
{{.InheritedFlags.FlagUsages | oneDash | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableSubCommands}}

"{{.CommandPath}} COMMAND -help" says more about one.{{if not .HasParent}} "kale help jobfile" lists all that a job file can say.{{end}}{{end}}
`
