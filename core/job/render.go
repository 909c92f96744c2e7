package job

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
)

// Render writes diagnostics for people: file:line:column, the line with what is meant underlined, and the advice.
// files may lack sources, whose snippets are then left out. Advice is wrapped to width characters (0: not at all).
// Passwords that stand in a file are blotted out, and words that nobody reads to their end shortened (Discreet). Of more than mostRendered it writes the first, errors before warnings, and how many are left.
// Render returns the first error of w.
func Render(w io.Writer, files Files, diags hcl.Diagnostics, width int, color bool) error {
	p := painter(color)
	left := len(diags) - mostRendered
	if left > 0 {
		diags = slices.Clone(diags)
		slices.SortStableFunc(diags, func(a, b *hcl.Diagnostic) int { return int(a.Severity) - int(b.Severity) })
		diags = diags[:mostRendered]
	}
	diags = Discreet(files, diags)
	secrets := map[string][][2]int{}
	for _, d := range diags {
		if d.Subject != nil && files[d.Subject.Filename] != nil && secrets[d.Subject.Filename] == nil {
			secrets[d.Subject.Filename] = append([][2]int{}, secretsIn(d.Subject.Filename, files[d.Subject.Filename])...)
		}
	}
	var out bytes.Buffer
	for i, d := range diags {
		if i > 0 {
			out.WriteByte('\n')
		}
		kind, paint := "error", p.red
		if d.Severity == hcl.DiagWarning {
			kind, paint = "warning", p.yellow
		}
		if d.Subject != nil {
			fmt.Fprintf(&out, "%s: ", p.bold(Place(*d.Subject)))
		}
		fmt.Fprintf(&out, "%s: %s\n", paint(kind), p.bold(oneLine(d.Summary)))
		if d.Subject != nil {
			snippet(&out, files[d.Subject.Filename], secrets[d.Subject.Filename], *d.Subject, width, paint)
		}
		for _, line := range wrap(d.Detail, width-4) {
			fmt.Fprintf(&out, "    %s\n", line)
		}
	}
	if left > 0 {
		fmt.Fprintf(&out, "\nand %d more: mend these first\n", left)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// mostRendered is how many diagnostics people are shown at once.
const mostRendered = 100

// snippet writes the first line of r and underlines what r covers of it.
// secrets are where passwords stand in the file.
func snippet(out *bytes.Buffer, file *hcl.File, secrets [][2]int, r hcl.Range, width int, paint func(string) string) {
	if file == nil || r.Start.Byte < 0 || r.Start.Byte > len(file.Bytes) || len(file.Bytes) == 0 {
		return
	}
	src := file.Bytes
	from := bytes.LastIndexByte(src[:r.Start.Byte], '\n') + 1
	to := len(src)
	if n := bytes.IndexByte(src[r.Start.Byte:], '\n'); n >= 0 {
		to = r.Start.Byte + n
	}
	end := min(max(r.End.Byte, r.Start.Byte), to)
	var secret [][2]int
	for _, s := range secrets {
		secret = append(secret, [2]int{s[0] - from, s[1] - from})
	}
	before, meant, after := blot(string(src[from:to]), secret, r.Start.Byte-from, end-from)
	if room := width - 12; width > 0 && room > 20 {
		if cut := []rune(meant); len(cut) > room {
			meant, after = string(cut[:room-1])+"…", ""
		}
		before, after = clip(before, meant, after, room)
	}
	gutter := fmt.Sprintf("%4d", r.Start.Line)
	blank := strings.Repeat(" ", len(gutter))
	line := strings.TrimRight(before+meant+after, " \t\r")
	under := blanks(before) + paint(strings.Repeat("^", max(1, utf8.RuneCountInString(meant))))
	fmt.Fprintf(out, "%s |\n%s | %s\n%s | %s\n", blank, gutter, line, blank, under)
}

// blot cuts a line at from and to and hides what lies in secret, without moving anything. Characters that a terminal would obey are replaced.
func blot(line string, secret [][2]int, from, to int) (before, meant, after string) {
	b := []byte(line)
	for _, s := range secret {
		for i := max(0, s[0]); i < min(len(b), s[1]); i++ {
			b[i] = '*'
		}
	}
	clean := func(part []byte) string {
		return strings.Map(func(r rune) rune {
			if r != '\t' && (r < ' ' || r == 0x7f) {
				return ' '
			}
			return r
		}, strings.ToValidUTF8(string(part), "?"))
	}
	return clean(b[:from]), clean(b[from:to]), clean(b[to:])
}

// clip shortens a line to room characters around what is meant.
func clip(before, meant, after string, room int) (string, string) {
	head, tail := []rune(before), []rune(after)
	if spare := room - len(head) - utf8.RuneCountInString(meant); spare < len(tail) {
		keep := max(spare, 8)
		if keep < len(tail) {
			tail = append(tail[:keep:keep], '…')
		}
	}
	if most := max(room-utf8.RuneCountInString(meant)-len(tail), 8); len(head) > most {
		head = append([]rune{'…'}, head[len(head)-most:]...)
	}
	return string(head), string(tail)
}

// blanks returns the width of s in blanks, its tabs kept.
func blanks(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return '\t'
		}
		return ' '
	}, s)
}

// wrap breaks text into lines of at most width characters (width below 20: not at all). Line breaks in text are kept.
func wrap(text string, width int) []string {
	var lines []string
	for _, paragraph := range strings.Split(strings.TrimSpace(text), "\n") {
		if width < 20 {
			lines = append(lines, strings.TrimSpace(paragraph))
			continue
		}
		line := ""
		for _, word := range strings.Fields(paragraph) {
			if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
				lines = append(lines, line)
				line = ""
			}
			if line != "" {
				line += " "
			}
			line += word
		}
		lines = append(lines, line)
	}
	if len(lines) == 1 && lines[0] == "" {
		return nil
	}
	return lines
}

// The longest word that is shown whole, and how much of a longer one is.
const (
	longestWord = 300
	shownHead   = 60
	shownTail   = 20
)

// Shorten cuts out the middle of words that nobody reads to their end.
func Shorten(text string) string {
	if len(text) <= longestWord {
		return text
	}
	words := strings.FieldsFunc(text, unicode.IsSpace)
	for _, word := range words {
		if r := []rune(word); len(r) > longestWord {
			text = strings.Replace(text, word, string(r[:shownHead])+"…"+string(r[len(r)-shownTail:]), 1)
		}
	}
	return text
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// painter colours text, when it is on.
type painter bool

func (p painter) paint(code, s string) string {
	if !p {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p painter) red(s string) string    { return p.paint("1;31", s) }
func (p painter) yellow(s string) string { return p.paint("1;33", s) }
func (p painter) bold(s string) string   { return p.paint("1", s) }

// Place is where a range begins, as people and editors read it: file:line:column.
func Place(r hcl.Range) string {
	return fmt.Sprintf("%s:%d:%d", r.Filename, r.Start.Line, r.Start.Column)
}
