package main

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// hang writes a text after head, wrapped to width (0, or too narrow for it: not at all) with indent before each further line.
func hang(head, indent, text string, width int) string {
	room := width - utf8.RuneCountInString(indent)
	if width <= 0 || room < 20 {
		return head + strings.Join(strings.Fields(text), " ") + "\n"
	}
	var out strings.Builder
	line := head
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			out.WriteString(line + "\n")
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	return out.String() + line + "\n"
}

// named is a line of a table whose first column names what the second says.
var named = regexp.MustCompile(`^\S+( \S+)*  +`)

// fit wraps the lines of such a table to width (0: not at all), up to its first empty line: what follows has other columns.
func fit(table string, width int) string {
	if width <= 0 {
		return table
	}
	head, rest, _ := strings.Cut(table, "\n\n")
	var out strings.Builder
	for line := range strings.Lines(head) {
		line = strings.TrimRight(line, "\n")
		name := named.FindString(line)
		if utf8.RuneCountInString(line) <= width || name == "" {
			out.WriteString(line + "\n")
			continue
		}
		out.WriteString(hang(name, strings.Repeat(" ", utf8.RuneCountInString(name)), line[len(name):], width))
	}
	if rest != "" {
		out.WriteString("\n" + rest)
	}
	return out.String()
}
