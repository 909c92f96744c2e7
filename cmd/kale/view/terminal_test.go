package view

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/kale-sched/kale/core"
)

// What is pasted ends nothing, whatever it says, and neither do keys that only look like one that does; the key itself then does.
func TestWhatIsNoKey(t *testing.T) {
	for _, tt := range []struct {
		name   string
		chunks []string
	}{
		{"other keys", []string{"aQ1\r\x04"}},
		{"arrows and function keys", []string{"\x1b[A\x1bOq\x1b[15~x\x1b[1;5C"}},
		{"Alt", []string{"\x1bqz"}},
		{"pasted text, over two reads", []string{"\x1b[200~q\x03\x1b[31m", "q\x1b[201~c"}},
		{"half a sequence", []string{"\x1b["}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in, keys := io.Pipe()
			read := make(chan struct{})
			go func() { // ends when all is read
				defer close(read)
				for _, c := range tt.chunks {
					_, _ = io.WriteString(keys, c)
				}
			}()
			t.Cleanup(func() { _ = in.Close() })
			src, looks := source(t), 0
			var out bytes.Buffer
			err := show(t.Context(), in, &out, func() *core.View {
				select {
				case <-read:
					looks++
				default:
				}
				if looks >= 3 {
					go func() { _, _ = io.WriteString(keys, "q") }() // ends when it is read, or when nobody will
				}
				return src()
			}, Options{})
			if err != nil || looks < 3 {
				t.Fatalf("after %d more looks it ended with %v", looks, err)
			}
			restored(t, out.String())
		})
	}
}

// What is in a file was not typed.
func TestFileIsNoKeyboard(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, _ = io.WriteString(w, "q\x03")
	_ = w.Close()
	src, looks, over := source(t), 0, make(chan struct{})
	var out bytes.Buffer
	err = show(t.Context(), r, &out, func() *core.View {
		if looks++; looks == 3 {
			close(over)
		}
		return src()
	}, Options{EndsWhen: over})
	if err != nil || looks < 3 {
		t.Errorf("after %d looks it ended with %v", looks, err)
	}
	restored(t, out.String())
}

// Whatever terminal a picture is on, it asks it nothing, and has no keyboard speak in another way.
func TestPictureAsksNothing(t *testing.T) {
	for name, env := range map[string][]string{
		"xterm": {"TERM", "xterm-256color"}, "true colours": {"TERM", "xterm-256color", "COLORTERM", "truecolor"}, "unknown": {"TERM", ""}, "kitty": {"TERM", "xterm-kitty"},
		"ghostty": {"TERM", "xterm-ghostty", "TERM_PROGRAM", "ghostty"}, "alacritty": {"TERM", "alacritty"}, "tmux": {"TERM", "tmux-256color", "TMUX", "none,1,0"},
		"Windows": {"TERM", "xterm-256color", "WT_SESSION", "1"}, "WezTerm": {"TERM", "xterm-256color", "TERM_PROGRAM", "WezTerm"},
	} {
		t.Run(name, func(t *testing.T) {
			for i := 0; i < len(env); i += 2 {
				t.Setenv(env[i], env[i+1])
			}
			in, keys := io.Pipe()
			src, looks := source(t), 0
			var out bytes.Buffer
			err := show(t.Context(), in, &out, func() *core.View {
				if looks++; looks == 3 {
					go func() { _, _ = io.WriteString(keys, "q") }() // ends when the picture has read the key
				}
				return src()
			}, Options{})
			if err != nil {
				t.Error(err)
			}
			if ask := asks.FindString(out.String()); ask != "" {
				t.Errorf("it writes %q: %q", ask, out.String())
			}
		})
	}
}

// asks are commands that a terminal answers, or that change what its keys send: CSI … c, n, p, t or u, CSI > …, and all of OSC and DCS.
var asks = regexp.MustCompile("\x1b(\\[[?>=]?[0-9;]*[$]?[cnptu]|\\[>|\\]|P)")

// Only what has changed is written.
func TestPictureWritesWhatChanged(t *testing.T) {
	const looks = 8
	src, n, over := source(t), 0, make(chan struct{})
	var out bytes.Buffer
	err := show(t.Context(), nil, &out, src, Options{EndsWhen: over, Note: func() string {
		if n++; n == looks {
			close(over)
		}
		return "look " + strconv.Itoa(n)
	}})
	if err != nil {
		t.Fatal(err)
	}
	// Once at the beginning, and perhaps once more when the size of the screen is known.
	if got := strings.Count(out.String(), "arrivals "); got < 1 || got > 2 {
		t.Errorf("a line that never changes is written %d times in %d looks: %q", got, n, out.String())
	}
	restored(t, out.String())
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
