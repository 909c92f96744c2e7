package backend

import (
	"os"
	"strings"
)

// PutBack is the command that moves a folder back to where it was, and what is there now out of its way.
func PutBack(from, to string) string {
	command := "mv -T " + Quoted(from, to)
	if _, err := os.Lstat(to); err == nil {
		command = "mv -T " + Quoted(to, to+".new") + "; " + command
	}
	return command
}

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
