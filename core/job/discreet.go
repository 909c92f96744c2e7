package job

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// What a password is shows in the name of what it is given to. A value that refers to something else (var.password, env("PASSWORD")) is none itself.
var (
	secretName = regexp.MustCompile(`(?i)pass?w(or)?d|passphrase|(^|[_-])pass([_-]|$)|secret|token([_-]|$)|credential|api_?key|access_?key|private_?key`)
	// secretLine finds what looks like a password where a file cannot be parsed.
	secretLine = regexp.MustCompile(`(?i)(?:pass?w|passphrase|secret|token|credential|api_?key|access_?key|private_?key)[\w-]*"?[ \t]*[=:][ \t]*([^\n#]+)`)
	noFile     = regexp.MustCompile(`(?i)_(file|path|dir)$`)
	reference  = regexp.MustCompile(`^(var\.|((trimspace|chomp)\()*(env|file)\("[^"]*"[)\]}, \t]*$|"\$\{[^"}]*\}"$)`)
)

func isSecret(name string) bool { return secretName.MatchString(name) && !noFile.MatchString(name) }

// Discreet is diagnostics whose words show no password that stands in the files, and are not too long to be read (Shorten).
func Discreet(files Files, diags hcl.Diagnostics) hcl.Diagnostics {
	var secrets []string
	for name, file := range files {
		if file == nil {
			continue
		}
		for _, at := range secretsIn(name, file) {
			text := strings.TrimSpace(string(file.Bytes[at[0]:at[1]]))
			for _, s := range []string{text, strings.Trim(text, `"`)} {
				if len(s) > 2 {
					secrets = append(secrets, s)
				}
			}
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // the longest first: a part of it must not stay
	var pairs []string
	for _, s := range slices.Compact(secrets) {
		pairs = append(pairs, s, hidden)
	}
	hide := strings.NewReplacer(pairs...)
	out := make(hcl.Diagnostics, len(diags))
	for i, d := range diags {
		veiled := *d
		veiled.Summary, veiled.Detail = Shorten(hide.Replace(d.Summary)), Shorten(hide.Replace(d.Detail))
		out[i] = &veiled
	}
	return out
}

// secretsIn gives where in a file passwords stand, as bytes from and to.
func secretsIn(name string, file *hcl.File) (out [][2]int) {
	src := file.Bytes
	if variable, is := strings.CutPrefix(name, "-var "); is {
		if isSecret(variable) {
			out = append(out, [2]int{min(len(src), len(variable)+1), len(src)})
		}
		return out
	}
	for _, m := range secretLine.FindAllSubmatchIndex(src, -1) {
		value := src[m[2]:m[3]]
		key, _, _ := bytes.Cut(src[m[0]:m[2]], []byte("="))
		value = bytes.TrimRight(value, " \t\r)],")
		if v := bytes.TrimRight(value, " }"); bytes.HasSuffix(v, []byte(`"`)) {
			value = v
		}
		if !reference.Match(value) && !noFile.Match(bytes.Trim(key, " \t\":")) {
			out = append(out, inQuotes(src, m[2], m[2]+len(value)))
		}
	}
	if body, ok := file.Body.(*hclsyntax.Body); ok {
		names := map[string]bool{}
		out = append(out, secretsOf(body, src, names, false)...)
		for _, b := range body.Blocks { // what a password is taken from
			if b.Type == "variable" && len(b.Labels) == 1 && (names[b.Labels[0]] || isSecret(b.Labels[0])) {
				out = append(out, secretsOf(b.Body, src, names, true)...)
			}
		}
	}
	return out
}

// secretsOf are those of a body; all: each of its values is one, but for a variable's type and description. names gets the variables that passwords are taken from.
func secretsOf(body *hclsyntax.Body, src []byte, names map[string]bool, all bool) (out [][2]int) {
	for _, a := range body.Attributes {
		if !(isSecret(a.Name) || all && a.Name != "type" && a.Name != "description") {
			continue
		}
		refers := false
		for _, v := range a.Expr.Variables() {
			if len(v) > 1 && v.RootName() == "var" {
				if step, ok := v[1].(hcl.TraverseAttr); ok {
					names[step.Name], refers = true, true
				}
			}
		}
		r := a.Expr.Range()
		_, call := a.Expr.(*hclsyntax.FunctionCallExpr)
		switch {
		case r.End.Byte > len(src):
		case call || refers:
			out = append(out, textsIn(a.Expr)...)
		default:
			out = append(out, inQuotes(src, r.Start.Byte, r.End.Byte))
		}
	}
	for _, b := range body.Blocks {
		out = append(out, secretsOf(b.Body, src, names, all)...)
	}
	return out
}

// textsIn is where texts stand in an expression: all but the names that env and file are given.
func textsIn(expr hclsyntax.Expression) (out [][2]int) {
	names := map[hclsyntax.Node]bool{}
	_ = hclsyntax.VisitAll(expr, func(n hclsyntax.Node) hcl.Diagnostics {
		switch n := n.(type) {
		case *hclsyntax.FunctionCallExpr:
			if (n.Name == "env" || n.Name == "file") && len(n.Args) > 0 {
				_ = hclsyntax.VisitAll(n.Args[0], func(n hclsyntax.Node) hcl.Diagnostics {
					names[n] = true
					return nil
				})
			}
		case *hclsyntax.LiteralValueExpr:
			if r := n.Range(); !names[n] && n.Val.Type() == cty.String {
				out = append(out, [2]int{r.Start.Byte, r.End.Byte})
			}
		}
		return nil
	})
	return out
}

// inQuotes is what stands between the quotes, where a value is in quotes.
func inQuotes(src []byte, from, to int) [2]int {
	if to-from > 0 && src[from] == '"' {
		from++
		if to > from && src[to-1] == '"' {
			to--
		}
	}
	return [2]int{from, to}
}
