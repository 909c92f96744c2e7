package backend

import "strings"

// Quoted writes arguments so that a shell reads them back: for the commands that people are told to give.
func Quoted(args ...string) string {
	out := make([]string, len(args))
	for i, s := range args {
		if s == "" || strings.ContainsFunc(s, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("0123456789-_./:=,@%+", r)
		}) {
			s = "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
		}
		out[i] = s
	}
	return strings.Join(out, " ")
}
