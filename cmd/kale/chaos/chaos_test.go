package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/cmd/kale/chaos"
)

// A seed and a number are a schedule, for ever: a change here makes all seeds that people have noted worthless, and must be meant.
func TestScheduleIsAFunctionOfItsSeed(t *testing.T) {
	shares := chaos.Everywhere()
	long := chaos.Schedule(7, 200, shares)
	if diff := cmp.Diff(long, chaos.Schedule(7, 200, shares)); diff != "" {
		t.Errorf("the same seed gave another schedule:\n%s", diff)
	}
	for _, n := range []int{0, 1, 20, 27, 199} {
		if diff := cmp.Diff(long[:n], append([]chaos.Fault{}, chaos.Schedule(7, n, shares)...)); diff != "" {
			t.Errorf("%d faults are not the first of 200:\n%s", n, diff)
		}
	}
	if cmp.Equal(long, chaos.Schedule(8, 200, shares)) {
		t.Error("another seed gave the same schedule")
	}
	first := chaos.Fault{Number: 1, After: 347 * time.Millisecond, Kind: chaos.KillServer, For: 6554 * time.Millisecond, Pick: 7717149213837622623}
	if diff := cmp.Diff(first, long[0]); diff != "" {
		t.Errorf("the first fault of seed 7 was another when this was written (-then +now):\n%s", diff)
	}
}

func TestScheduleHasEveryKind(t *testing.T) {
	shares := chaos.Everywhere()
	deck := 0
	for _, s := range shares {
		deck += s.Number
	}
	for seed := range uint64(50) {
		got := map[chaos.Kind]int{}
		for i, f := range chaos.Schedule(seed, 3*deck, shares) {
			got[f.Kind]++
			if f.Number != i+1 || f.After < 0 || f.For < 0 || f.After > 3*time.Second || f.For > 10*time.Second {
				t.Fatalf("seed %d has %+v", seed, f)
			}
		}
		for _, s := range shares {
			if got[s.Kind] != 3*s.Number {
				t.Errorf("seed %d: three decks have %d of %s, want %d", seed, got[s.Kind], s.Kind, 3*s.Number)
			}
		}
	}
}

func at(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }

func TestLongestStop(t *testing.T) {
	samples := func(pairs ...float64) (out []chaos.Sample) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, chaos.Sample{At: at(pairs[i]), Applied: int64(pairs[i+1])})
		}
		return out
	}
	windows := func(pairs ...float64) (out []chaos.Window) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, chaos.Window{From: at(pairs[i]), To: at(pairs[i+1])})
		}
		return out
	}
	for _, tt := range []struct {
		name    string
		samples []chaos.Sample
		windows []chaos.Window
		began   float64
		lasted  time.Duration
	}{
		{"no sample at all", nil, nil, 0, 20 * time.Second},
		{"steady", samples(1, 1, 2, 2, 9, 3, 10, 4, 15, 5, 19, 6), nil, 2, 7 * time.Second},
		{"samples without progress", samples(1, 1, 2, 2, 3, 2, 4, 2, 9, 3, 12, 4, 16, 5, 19, 6), nil, 2, 7 * time.Second},
		{"a fault explains its window", samples(1, 1, 2, 2, 9, 3, 12, 4, 16, 5, 19, 6), windows(3, 8), 12, 4 * time.Second},
		{"a kill splits, and explains no more", samples(1, 1, 2, 2, 12, 3, 15, 4, 19, 5), windows(4, 4), 4, 8 * time.Second},
		{"windows overlap", samples(1, 1, 2, 2, 12, 3, 15, 4, 19, 5), windows(3, 11, 4, 5), 15, 4 * time.Second},
		{"what is trained again is progress", samples(1, 1, 2, 100, 5, 40, 8, 60, 12, 80, 16, 90, 19, 100), nil, 2, 6 * time.Second},
		{"it never comes back", samples(1, 1, 2, 2, 3, 3), nil, 3, 17 * time.Second},
	} {
		began, lasted := chaos.LongestStop(tt.samples, tt.windows, at(0), at(20))
		if !began.Equal(at(tt.began)) || lasted != tt.lasted {
			t.Errorf("%s: a stop of %v from %v on; want %v from %v on", tt.name, lasted, began.Sub(at(0)), tt.lasted, at(tt.began).Sub(at(0)))
		}
	}
}

func TestJournal(t *testing.T) {
	var out strings.Builder
	j := chaos.NewJournal(&out, 7, 2, at(0))
	f := chaos.Fault{Number: 1, Kind: chaos.CutBroker, For: 2 * time.Second, Pick: 5}
	j.Strike(at(1), f, "the broker")
	j.Note(at(1.5), "a word")
	j.Strike(at(2), chaos.Fault{Number: 2, Kind: chaos.KillChief}, "server 0")
	j.Heal(at(3), f)
	j.Heal(at(4), f) // no more than once
	want := []chaos.Window{{From: at(1), To: at(3)}, {From: at(2), To: at(9)}}
	if diff := cmp.Diff(want, j.Windows(at(9))); diff != "" {
		t.Errorf("windows (-want +got):\n%s", diff)
	}
	for _, text := range []string{"seed 7, 2 faults", "1.000s  strike   1  cut-broker", "the broker", "1.500s  a word", "3.000s  heal     1  cut-broker after 2s"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("the journal does not say %q:\n%s", text, &out)
		}
	}
}

// echo is a server that sends back what it gets.
func echo(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() }) // it ends the goroutine below
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); _, _ = io.Copy(conn, conn) }()
		}
	}()
	return ln.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a word and reads it back, within the time.
func ask(c net.Conn, word string, within time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, word); err != nil {
		return err
	}
	buf := make([]byte, len(word))
	if _, err := io.ReadFull(c, buf); err != nil {
		return err
	}
	if string(buf) != word {
		return errors.New("it said " + string(buf))
	}
	return nil
}

func TestProxy(t *testing.T) {
	p, err := chaos.OpenProxy("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.Lead(echo(t))
	c := dial(t, p.Addr())
	if err := ask(c, "hello", time.Minute); err != nil {
		t.Fatal(err)
	}

	p.Slow(30 * time.Millisecond)
	began := time.Now()
	if err := ask(c, "slowly", time.Minute); err != nil || time.Since(began) < 60*time.Millisecond {
		t.Errorf("slowed by 30 ms each way: %v after %v", err, time.Since(began))
	}
	p.Slow(0)

	p.Cut(true)
	var timeout net.Error
	if err := ask(c, "cut", 50*time.Millisecond); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("through a cut: %v, want that nothing comes", err)
	}
	fresh := dial(t, p.Addr())
	if err := ask(fresh, "new", 50*time.Millisecond); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a new connection through a cut: %v, want that nothing comes", err)
	}
	p.Cut(false)
	buf := make([]byte, 3)
	for conn, want := range map[net.Conn]string{c: "cut", fresh: "new"} {
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != want {
			t.Errorf("after the cut: %q, %v; want what was sent meanwhile, %q", buf, err, want)
		}
	}

	if err := p.Refuse(true); err != nil {
		t.Fatal(err)
	}
	if err := ask(c, "refused", time.Minute); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("on a connection that is to be reset: %v", err)
	}
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection while it refuses: %v", err)
	}
	if err := p.Refuse(false); err != nil {
		t.Fatal(err)
	}
	if err := ask(dial(t, p.Addr()), "again", time.Minute); err != nil {
		t.Error(err)
	}
	p.Cut(true)
	dial(t, p.Addr())
	p.Close() // it must not wait for what is held back
}

func TestRelay(t *testing.T) {
	var mu sync.Mutex
	done := map[string]int{} // by what was asked for
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		done[r.Method+r.URL.Path]++
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusConflict)
		}
		fmt.Fprint(w, "done")
	}))
	defer server.Close()
	r, err := chaos.OpenRelay(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	put := func(path string, within time.Duration) (int, error) {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, r.URL()+path, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if string(body) != "done" {
			t.Errorf("PUT %s gives %q", path, body)
		}
		return resp.StatusCode, err
	}
	answers := func(path string, want int) {
		t.Helper()
		if got, err := put(path, time.Minute); err != nil || got != want {
			t.Errorf("PUT %s: %d, %v; want %d", path, got, err, want)
		}
	}
	answers("/a", 200)
	r.Lose(func(r *http.Request) bool { return r.URL.Path != "/a" }, 0)
	answers("/a", 200)
	answers("/refused", 409)
	if !r.Losing() {
		t.Error("what was refused counts as lost")
	}
	if code, err := put("/b", time.Minute); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an answer came, or nothing did: %d, %v", code, err)
	}
	if r.Losing() {
		t.Error("another answer will be lost")
	}
	answers("/b", 200)
	r.Lose(func(*http.Request) bool { return true }, time.Hour)
	if code, err := put("/c", 50*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("want that nothing comes: %d, %v", code, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(map[string]int{"PUT/a": 2, "PUT/b": 2, "PUT/c": 1, "PUT/refused": 1}, done); diff != "" {
		t.Errorf("what the server did (-want +got):\n%s", diff)
	}
	if n := r.Requests(); n != 6 {
		t.Errorf("it counts %d requests, want 6", n)
	}
	server.CloseClientConnections()
	server.Close()
	if code, err := put("/a", time.Minute); err == nil {
		t.Errorf("without a server an answer comes: %d", code)
	}
}
