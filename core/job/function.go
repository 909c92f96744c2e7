package job

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// mostFile is the largest file that file() reads, in bytes.
const mostFile = 1 << 20

// functions returns what expressions may call. dir is where relative paths start; lookup reads the environment.
func functions(dir string, lookup func(string) (string, bool)) map[string]function.Function {
	return map[string]function.Function{
		"file":       fileFunction(dir),
		"env":        envFunction(lookup),
		"format":     formatFunction(),
		"abs":        stdlib.AbsoluteFunc,
		"ceil":       stdlib.CeilFunc,
		"chomp":      stdlib.ChompFunc,
		"coalesce":   stdlib.CoalesceFunc,
		"concat":     stdlib.ConcatFunc,
		"contains":   stdlib.ContainsFunc,
		"floor":      stdlib.FloorFunc,
		"join":       stdlib.JoinFunc,
		"jsondecode": stdlib.JSONDecodeFunc,
		"jsonencode": stdlib.JSONEncodeFunc,
		"keys":       stdlib.KeysFunc,
		"length":     stdlib.LengthFunc,
		"lookup":     stdlib.LookupFunc,
		"lower":      stdlib.LowerFunc,
		"max":        stdlib.MaxFunc,
		"merge":      stdlib.MergeFunc,
		"min":        stdlib.MinFunc,
		"replace":    stdlib.ReplaceFunc,
		"split":      stdlib.SplitFunc,
		"trimspace":  stdlib.TrimSpaceFunc,
		"upper":      stdlib.UpperFunc,
		"values":     stdlib.ValuesFunc,
	}
}

// fileFunction reads a text file of at most 1 MiB.
func fileFunction(dir string) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "path", Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			path, err := atHome(args[0].AsString())
			if err != nil {
				return cty.NilVal, err
			}
			if !filepath.IsAbs(path) {
				path = filepath.Join(dir, path)
			}
			content, err := readRegular(path, mostFile)
			if err != nil {
				return cty.NilVal, fmt.Errorf("%w (relative paths start at the job file's folder)", err)
			}
			return cty.StringVal(string(content)), nil
		},
	})
}

// atHome puts this user's home folder in the place of a "~" at the front of a path, as a shell does.
func atHome(path string) (string, error) {
	first, rest, _ := strings.Cut(path, "/")
	switch {
	case !strings.HasPrefix(path, "~"):
		return path, nil
	case first != "~":
		return "", fmt.Errorf("%q: of %q only the home folder of who runs kale is known, as \"~/\"; write the path in full", path, first)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("%q: which folder is home cannot be told (%w); write the path in full", path, err)
	}
	return filepath.Join(home, rest), nil
}

// readRegular reads an ordinary file of at most limit bytes: neither a device nor a pipe, which may never end.
func readRegular(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s is a folder: name a file in it", path)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not an ordinary file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("%s is larger than %d KiB", path, limit>>10)
	}
	return content, nil
}

// envFunction reads an environment variable: env("NAME"), or env("NAME", default…), the first default that is not null.
func envFunction(lookup func(string) (string, bool)) function.Function {
	return function.New(&function.Spec{
		Params:   []function.Parameter{{Name: "name", Type: cty.String}},
		VarParam: &function.Parameter{Name: "default", Type: cty.String, AllowNull: true},
		Type:     function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			name := args[0].AsString()
			if value, set := lookup(name); set {
				return cty.StringVal(value), nil
			}
			for _, fallback := range args[1:] {
				if !fallback.IsNull() {
					return fallback, nil
				}
			}
			return cty.NilVal, fmt.Errorf("environment variable %s is not set: set it, or give a default: env(%q, \"…\")", name, name)
		},
	})
}

var wideVerb = regexp.MustCompile(`%[^a-zA-Z%]*[0-9]{5}`)

// formatFunction is the usual format(), without widths that would fill the memory.
func formatFunction() function.Function {
	return function.New(&function.Spec{
		Params:   []function.Parameter{{Name: "format", Type: cty.String}},
		VarParam: &function.Parameter{Name: "args", Type: cty.DynamicPseudoType, AllowNull: true, AllowUnknown: true, AllowDynamicType: true},
		Type:     function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if wideVerb.MatchString(args[0].AsString()) {
				return cty.NilVal, errors.New("a width of more than 9999 characters")
			}
			return stdlib.FormatFunc.Call(args)
		},
	})
}
