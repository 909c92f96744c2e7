package job

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
)

func renderOne(t *testing.T, src string, from, to, width int, color bool) string {
	t.Helper()
	position := func(offset int) hcl.Pos {
		return hcl.Pos{Line: 1 + strings.Count(src[:offset], "\n"), Column: offset - strings.LastIndex(src[:offset], "\n"), Byte: offset}
	}
	d := at(hcl.DiagError, hcl.Range{Filename: "f", Start: position(from), End: position(to)}, "Summary", "One two three four five six seven eight nine ten.")
	var out bytes.Buffer
	if err := Render(&out, Files{"f": {Bytes: []byte(src)}}, hcl.Diagnostics{d}, width, color); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestRenderUnderlinesWhatIsMeant(t *testing.T) {
	for _, c := range []struct {
		name, src, meant, line, under string
	}{
		{"plain", "a = 1\nb = 22\nc = 3\n", "22", "   2 | b = 22", "     |     ^^"},
		{"tabs", "\tx\t= 22\n", "22", "   1 | \tx\t= 22", "     | \t \t  ^^"},
		{"no end of line", "b = 22", "22", "   1 | b = 22", "     |     ^^"},
		{"wide letters", "é = 22", "22", "   1 | é = 22", "     |     ^^"},
		{"over several lines", "b = [\n1,\n]\n", "[\n1,\n]", "   1 | b = [", "     |     ^"},
		{"nothing", "b = \n", "", "   1 | b =", "     | ^"},
		{"escape sequences", "b = \"\x1b[31m\"", "b", "   1 | b = \" [31m\"", "     | ^"},
	} {
		t.Run(c.name, func(t *testing.T) {
			from := strings.Index(c.src, c.meant)
			got := renderOne(t, c.src, from, from+len(c.meant), 0, false)
			if !strings.Contains(got, c.line+"\n"+c.under+"\n") {
				t.Errorf("got\n%s\nwant in it\n%s\n%s", got, c.line, c.under)
			}
		})
	}
}

// A word of thousands of characters is not shown whole, neither in the words nor in the line.
func TestRenderShortensLongWords(t *testing.T) {
	name := strings.Repeat("n", 5000)
	_, files, diags := Parse([]byte(strings.Replace(minimal, `job "ctr"`, `job "`+name+`"`, 1)), "job.hcl", Options{})
	var out bytes.Buffer
	if err := Render(&out, files, diags, 100, false); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, `Unsuitable job name "nnn`) || strings.Contains(got, strings.Repeat("n", 100)) || len(got) > 800 {
		t.Errorf("%d characters:\n%s", len(got), got)
	}
	for _, d := range Discreet(files, diags) {
		if strings.Contains(d.Summary+d.Detail, strings.Repeat("n", 100)) {
			t.Errorf("%d characters: %s", len(d.Summary+d.Detail), d.Summary)
		}
	}
	if whole := "a path of " + strings.Repeat("x", 300); Shorten(whole) != whole {
		t.Errorf("shortened to %q", Shorten(whole))
	}
}

func TestRenderBlotsPasswords(t *testing.T) {
	const src = `sasl { password = "open\"sesame" }`
	got := renderOne(t, src, 0, 4, 0, false)
	if strings.Contains(got, "sesame") || strings.Contains(got, "open") {
		t.Error(got)
	}
	if got := renderOne(t, `password = "${var.password}"`, 0, 4, 0, false); !strings.Contains(got, "${var.password}") {
		t.Errorf("a reference is no secret:\n%s", got)
	}
}

func TestRenderKeepsToTheWidth(t *testing.T) {
	long := "before_before_before_before_before_before = [" + strings.Repeat("1, ", 100) + "22]"
	from := strings.Index(long, "22")
	for _, width := range []int{40, 60, 80} {
		got := renderOne(t, long, from, from+2, width, false)
		for _, line := range strings.Split(got, "\n") {
			if n := len([]rune(line)); n > width {
				t.Errorf("width %d: a line of %d: %q", width, n, line)
			}
		}
		lines := strings.Split(got, "\n")
		caret := len([]rune(lines[3][:strings.Index(lines[3], "^")]))
		if string([]rune(lines[2])[caret:][:2]) != "22" {
			t.Errorf("width %d: the caret is off:\n%s", width, got)
		}
	}
}

// Of thousands of mistakes the first are shown, the errors before warnings, and how many are left.
func TestRenderManyMistakes(t *testing.T) {
	src := strings.Repeat("x = 1\n", 5000)
	var diags hcl.Diagnostics
	for i := range 5000 {
		severity := hcl.DiagWarning
		if i == 4000 {
			severity = hcl.DiagError
		}
		diags = append(diags, at(severity, hcl.Range{Filename: "f", Start: hcl.Pos{Line: i + 1, Column: 1, Byte: 6 * i}, End: hcl.Pos{Line: i + 1, Column: 2, Byte: 6*i + 1}}, "Odd", ""))
	}
	var out bytes.Buffer
	if err := Render(&out, Files{"f": {Bytes: []byte(src)}}, diags, 80, false); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	if !strings.HasPrefix(got, "f:4001:1: error: Odd") || strings.Count(got, ": Odd\n") != 100 || !strings.HasSuffix(got, "\nand 4900 more: mend these first\n") {
		t.Errorf("%d shown:\n%.200s\n…\n%s", strings.Count(got, ": Odd\n"), got, got[len(got)-200:])
	}
	if diags[0].Severity != hcl.DiagWarning {
		t.Error("the caller's diagnostics were put in another order")
	}
}

func TestRenderColours(t *testing.T) {
	if got := renderOne(t, "a = 1", 0, 1, 0, true); !strings.Contains(got, "\x1b[1;31merror\x1b[0m") {
		t.Errorf("%q", got)
	}
	if got := renderOne(t, "a = 1", 0, 1, 0, false); strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
}

func TestRenderWithoutSource(t *testing.T) {
	elsewhere := hcl.Range{Filename: "gone", Start: hcl.Pos{Line: 7, Column: 3, Byte: 99}, End: hcl.Pos{Line: 7, Column: 4, Byte: 100}}
	diags := hcl.Diagnostics{{Severity: hcl.DiagWarning, Summary: "No\nplace"}, at(hcl.DiagError, elsewhere, "Elsewhere", "Advice.")}
	for _, files := range []Files{nil, {"gone": {Bytes: []byte("short")}}, {"gone": {}}} {
		if got, want := rendered(files, diags), "warning: No place\n\ngone:7:3: error: Elsewhere\n    Advice.\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if err := Render(brokenWriter{}, nil, diags, 0, false); !errors.Is(err, errBroken) {
		t.Errorf("a failed write gives %v", err)
	}
}

var errBroken = errors.New("broken")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }
