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
	for _, word := range words(text) {
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

// words are those of a text; a percent sign stays with its number.
func words(text string) []string {
	var out []string
	for _, w := range strings.Fields(text) {
		if strings.HasPrefix(w, "%") && len(out) > 0 {
			out[len(out)-1] += " " + w
			continue
		}
		out = append(out, w)
	}
	return out
}

// columnEnd is the space between a column of a line and the next.
var columnEnd = regexp.MustCompile(`\S  +`)

// folded wraps the lines of a text that are wider than width (0: none): each goes on under the last of its columns that leaves
// it a third of the width or, where it has none, under its own beginning. No word is cut.
func folded(text string, width int) string {
	if width <= 0 {
		return text
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if utf8.RuneCountInString(line) <= width {
			out.WriteString(line + "\n")
			continue
		}
		head := line[:len(line)-len(strings.TrimLeft(line, " "))]
		for _, end := range columnEnd.FindAllStringIndex(line, -1) {
			if utf8.RuneCountInString(line[:end[1]]) <= 2*width/3 {
				head = line[:end[1]]
			}
		}
		out.WriteString(hang(head, strings.Repeat(" ", utf8.RuneCountInString(head)), line[len(head):], width))
	}
	if !strings.HasSuffix(text, "\n") {
		return strings.TrimSuffix(out.String(), "\n")
	}
	return out.String()
}

// reflowed wraps prose to width (0: not at all): lines that follow each other are one paragraph. Lines that are set (which begin with a space, or
// have more than one between two words) stay on their own, and are folded.
func reflowed(text string, width int) string {
	if width <= 0 {
		return text
	}
	var out, prose strings.Builder
	flush := func() {
		if prose.Len() > 0 {
			out.WriteString(hang("", "", prose.String(), width))
			prose.Reset()
		}
	}
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, " ") && !strings.Contains(line, "  ") {
			prose.WriteString(line + " ")
			continue
		}
		flush()
		out.WriteString(folded(line, width))
	}
	flush()
	return strings.TrimRight(out.String(), "\n")
}
