package view

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
)

// twenty is a text of twenty lines.
func twenty(context.Context) (string, error) {
	var out strings.Builder
	for i := range 20 {
		fmt.Fprintf(&out, "line %d\n", i+1)
	}
	return out.String(), nil
}

// typed gives pages of a size a text and then keys, as Bubbletea would.
func typed(t *testing.T, width, height int, text string, keys ...tea.KeyPressMsg) *pages {
	t.Helper()
	p := &pages{stage: newStage(nil, nil), every: time.Hour, text: func() (string, error) { return text, nil }}
	p.Init()
	p.Update(tea.WindowSizeMsg{Width: width, Height: height})
	p.stale = false
	p.Update(textMsg{text: text})
	for _, k := range keys {
		p.Update(k)
	}
	return p
}

// The beginning comes first, and what does not fit is said and reached.
func TestPagesScroll(t *testing.T) {
	text, _ := twenty(t.Context())
	down, up := tea.KeyPressMsg{Code: tea.KeyDown}, tea.KeyPressMsg{Code: tea.KeyUp}
	next, back := tea.KeyPressMsg{Code: tea.KeyPgDown}, tea.KeyPressMsg{Code: tea.KeyPgUp}
	home, end := tea.KeyPressMsg{Code: tea.KeyHome}, tea.KeyPressMsg{Code: tea.KeyEnd}
	for name, tt := range map[string]struct {
		keys        []tea.KeyPressMsg
		first, foot string
	}{
		"the beginning":      {nil, "line 1", "lines 1 to 5 of 20"},
		"a line":             {[]tea.KeyPressMsg{down, down, up}, "line 2", "lines 2 to 6 of 20"},
		"above the top":      {[]tea.KeyPressMsg{up, back, down}, "line 2", "lines 2 to 6 of 20"},
		"a page":             {[]tea.KeyPressMsg{next, next, back}, "line 5", "lines 5 to 9 of 20"},
		"the end":            {[]tea.KeyPressMsg{end}, "line 16", "lines 16 to 20 of 20"},
		"beyond the end":     {[]tea.KeyPressMsg{end, down, next, up}, "line 15", "lines 15 to 19 of 20"},
		"back from the end":  {[]tea.KeyPressMsg{end, home}, "line 1", "lines 1 to 5 of 20"},
		"keys of no meaning": {[]tea.KeyPressMsg{{Code: 'x', Text: "x"}, {Code: tea.KeyLeft}}, "line 1", "lines 1 to 5 of 20"},
	} {
		t.Run(name, func(t *testing.T) {
			shown := strings.Split(typed(t, 80, 6, text, tt.keys...).View().Content, "\n")
			if len(shown) != 6 || shown[0] != tt.first || !strings.HasPrefix(shown[5], tt.foot) || !strings.HasSuffix(shown[5], "q ends") {
				t.Errorf("it shows %q, want %q first and %q last", shown, tt.first, tt.foot)
			}
		})
	}
}

// Whatever the size of the terminal, no line is wider, there are not more of them, and the way out is named where there is room for two words.
func TestPagesFit(t *testing.T) {
	text, _ := twenty(t.Context())
	for _, size := range [][2]int{{1, 1}, {3, 2}, {7, 1}, {12, 3}, {28, 5}, {45, 21}, {60, 30}, {200, 4}} {
		shown := strings.Split(typed(t, size[0], size[1], text+strings.Repeat("wide ", 60)+"\x1b[2J").View().Content, "\n")
		if len(shown) > size[1] {
			t.Errorf("%v: %d lines", size, len(shown))
		}
		for _, l := range shown {
			if n := len([]rune(l)); n > size[0] || strings.Contains(l, "\x1b") {
				t.Errorf("%v: %q has %d columns", size, l, n)
			}
		}
		if last := shown[len(shown)-1]; size[0] >= 6 && size[1] > 1 && !strings.Contains(last, "q ends") {
			t.Errorf("%v: the last line is %q", size, last)
		}
	}
}

// One asks at a time, a terminal of another width has the text written anew, and only the newest text has the next one asked for.
func TestPagesAskOnce(t *testing.T) {
	p := typed(t, 80, 6, "one")
	old := askMsg{p.turn}
	_, ask := p.Update(tea.WindowSizeMsg{Width: 60, Height: 6})
	if ask == nil {
		t.Fatal("another width asks for nothing")
	}
	if _, again := p.Update(tea.WindowSizeMsg{Width: 50, Height: 6}); again != nil {
		t.Error("two are asked for at a time")
	}
	if _, ask = p.Update(ask()); ask == nil {
		t.Fatal("the text of another width stays")
	}
	if _, next := p.Update(ask()); next == nil {
		t.Error("no next text is asked for")
	}
	if _, ask := p.Update(old); ask != nil {
		t.Error("an older text had another one asked for")
	}
	if _, ask := p.Update(tea.WindowSizeMsg{Width: 50, Height: 9}); ask != nil {
		t.Error("another height asks for a text, which is written for a width")
	}
}

// It ends on q, on Ctrl-C and with ctx, and the terminal is as it was; a text that fails or panics ends it with the cause.
func TestPagesEnd(t *testing.T) {
	for name, key := range map[string]string{"q": "q", "Ctrl-C": "\x03", "ctx": ""} {
		t.Run(name, func(t *testing.T) {
			in, keys := io.Pipe()
			t.Cleanup(func() { _ = in.Close() })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			looks := 0
			var out bytes.Buffer
			err := leaf(ctx, in, &out, time.Millisecond, func(ctx context.Context) (string, error) {
				if looks++; looks == 3 {
					if key == "" {
						cancel()
					} else {
						go func() { _, _ = io.WriteString(keys, key) }() // ends when it is read
					}
				}
				return twenty(ctx)
			})
			if err != nil {
				t.Error(err)
			}
			restored(t, out.String())
		})
	}
	for name, text := range map[string]func(context.Context) (string, error){
		"an error": func(context.Context) (string, error) { return "", errors.New("the roof is down") },
		"a panic":  func(context.Context) (string, error) { panic("the roof is down") },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := leaf(t.Context(), nil, &out, time.Hour, text); err == nil || !strings.Contains(err.Error(), "the roof is down") {
				t.Errorf("it ends with %v", err)
			}
			restored(t, out.String())
		})
	}
}
