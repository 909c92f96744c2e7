package main

import (
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/onnx"
)

// blockTrainer is what the body of a backend block of Kale's own plugins says of the trainer. The plugin decodes and checks all of it; what a trainer needs on
// this machine can only be tried with it.
type blockTrainer struct {
	Trainer      *string           `hcl:"trainer,optional"`
	TrainerRange hcl.Range         `hcl:"trainer,attr_value_range"`
	Env          map[string]string `hcl:"env,optional"`
	EnvRange     hcl.Range         `hcl:"env,attr_value_range"`
	Rest         hcl.Body          `hcl:",remain"`
}

// blockTrainer reads the job's backend block. Mistakes in it are left to the plugin: what cannot be read is not said.
func (l *loaded) blockTrainer() blockTrainer {
	var b blockTrainer
	at := l.Backend.Start
	_ = backend.DecodeBlock(backend.Config{
		Source: l.Backend.Source, Filename: l.Backend.Filename, StartLine: at.Line, StartColumn: at.Column, StartByte: at.Byte,
	}, &b)
	return b
}

// namesLibrary says that the block names ONNX Runtime's library.
func (b blockTrainer) namesLibrary() bool { return b.Env[onnx.LibraryEnv] != "" }

// mistake is an error at a value of the block.
func mistake(at hcl.Range, summary, detail string, args ...any) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(detail, args...), Subject: &at}
}

// executable is the absolute path of a program of this machine.
func executable(path string) (string, error) {
	path, err := exec.LookPath(path)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	return path, err
}
