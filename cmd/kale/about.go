package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/onnx"
)

// about is what kale version says.
type about struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	ONNX     string `json:"onnxruntime,omitempty"` // path of the library; empty: not found
	NoONNX   string `json:"onnxruntime_missing,omitempty"`
}

func versionCommand(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "version", Short: "What this program is, and whether it finds ONNX Runtime",
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			v := aboutThis()
			if asJSON {
				return json.NewEncoder(a.out).Encode(v)
			}
			fmt.Fprintf(a.out, "kale %s", v.Version)
			if v.Revision != "" {
				fmt.Fprintf(a.out, " (%s%s)", v.Revision, modified(v.Modified))
			}
			fmt.Fprintf(a.out, "\n%s %s\n", v.Go, v.Platform)
			if v.ONNX == "" {
				fmt.Fprintf(a.out, "ONNX Runtime: %s\n", v.NoONNX)
			} else {
				fmt.Fprintf(a.out, "ONNX Runtime: %s\n", v.ONNX)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return c
}

func aboutThis() about {
	v := about{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			v.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Revision = s.Value[:min(12, len(s.Value))]
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	path, err := onnx.Locate()
	switch {
	case err == nil:
		v.ONNX = path
	case errors.Is(err, onnx.ErrNoLibrary), errors.Is(err, onnx.ErrNoCgo):
		v.NoONNX = err.Error()
	default:
		v.NoONNX = "cannot be used: " + err.Error()
	}
	return v
}

func modified(yes bool) string {
	if yes {
		return ", modified"
	}
	return ""
}

// jobfileTopic is "kale help jobfile".
func jobfileTopic() *cobra.Command {
	return &cobra.Command{
		Use: "jobfile", Short: "Every block and attribute of a job file",
		Long: job.Reference(),
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
			if err != nil || cmd == nil || len(rest) > 0 {
				return noSuchCommand(c.Root(), args)
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}
