package view

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKeyboard(t *testing.T) {
	for _, tt := range []struct {
		name   string
		chunks []string
		want   string
	}{
		{"keys", []string{"aq", "\x03"}, "aq\x03"},
		{"arrows and function keys", []string{"\x1b[A\x1bOq\x1b[15~x\x1b[1;5C"}, "x"},
		{"Alt", []string{"\x1bqz"}, "z"},
		{"Escape alone", []string{"\x1b", "q"}, "q"},
		{"pasted text, over two reads", []string{"\x1b[200~q\x03\x1b[31m", "q\x1b[201~c"}, "c"},
		{"half a sequence", []string{"\x1b["}, ""},
	} {
		var k keyboard
		got := ""
		for _, c := range tt.chunks {
			got += string(k.keys([]byte(c)))
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Only what has changed is written, and nothing of an older screen stays.
func TestCanvasWritesWhatChanged(t *testing.T) {
	var out bytes.Buffer
	c := newCanvas(nil, &out)
	shows := func(screen string) string {
		t.Helper()
		out.Reset()
		if err := c.draw(func(width, height int) string { return screen }); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	line := func(n int, text string) string { return fmt.Sprintf("\x1b[%d;1H\x1b[K%s\x1b[m", n, text) }
	for _, step := range []struct{ screen, want string }{
		{"a\nb\nc", "\x1b[2J" + line(1, "a") + line(2, "b") + line(3, "c")},
		{"a\nb\nc", ""},
		{"a\nB", line(2, "B") + line(3, "")},
		{"a\nB\n\nd", line(4, "d")},
	} {
		if diff := cmp.Diff(step.want, shows(step.screen)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", step.screen, diff)
		}
	}
	c.drawn = nil // the terminal shows something else
	if got := shows("a"); got != "\x1b[2J"+line(1, "a") {
		t.Errorf("drawn anew: %q", got)
	}
}

// Colours are written only where they are wanted.
func TestColours(t *testing.T) {
	f := at(t, newDemo(t), 30e9)
	if plain := Render(f, 100, 30); strings.Contains(plain, "\x1b") {
		t.Errorf("without colours: %q", plain)
	}
	f.Coloured = true
	for _, want := range []string{"\x1b[1mdemo\x1b[m", "\x1b[90mlag       \x1b[m", "\x1b[32m"} {
		if screen := Render(f, 100, 30); !strings.Contains(screen, want) {
			t.Errorf("no %q in %q", want, screen)
		}
	}
}
