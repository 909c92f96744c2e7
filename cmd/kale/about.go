package main

import (
	"encoding/json"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/cmd/internal/about"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/onnx"
)

func versionCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "What this program is, and whether ONNX Runtime works",
		Long: "Says what this program is, loads ONNX Runtime and computes something with it. Exit code 1: there is a library, or $KALE_ONNXRUNTIME\n" +
			"names one, and it cannot be used.",
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error { return a.version() },
	}
	a.jsonFlag(c, "print it as JSON")
	return c
}

func (a *app) version() error {
	v := about.This("", os.Getenv(onnx.LibraryEnv)) // the process's own environment, which is what the library is loaded by
	var err error
	if a.asJSON {
		err = json.NewEncoder(a.out).Encode(v)
	} else {
		var text strings.Builder
		if err = v.Write(&text, "kale"); err == nil {
			width, _ := terminal(a.out)
			_, err = io.WriteString(a.out, folded(text.String(), width))
		}
	}
	if err == nil && v.Broken {
		return errShown
	}
	return err
}

// jobfileTopic is "kale help jobfile".
func jobfileTopic(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "jobfile", Short: "Every block and attribute of a job file",
		Long: job.Reference(textWidth(a.out)),
	}
}

// helpCommand is cobra's, but a topic that does not exist is a mistake.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about a command, or about job files: help jobfile",
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			cmd, _, err := c.Root().Find(args)
			if err != nil || cmd == nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, sub := range cmd.Commands() {
				if sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
					names = append(names, sub.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			cmd, rest, err := c.Root().Find(args)
			switch {
			case err != nil || cmd == nil || cmd == c.Root() && len(rest) > 0:
				return noSuchCommand(c.Root(), args)
			case len(rest) > 0 && cmd.HasAvailableSubCommands():
				return noSuchCommand(cmd, rest)
			case len(rest) > 0:
				return usagef("%s has no commands of its own, and so none called %q", cmd.CommandPath(), rest[0])
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}
