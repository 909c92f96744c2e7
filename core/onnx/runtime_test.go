//go:build cgo

package onnx_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/onnx/onnxtest"
)

// build compiles a shared library out of C source, for a stand-in of a wrong one.
func build(t *testing.T, source string) string {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		t.Skip("needs a C compiler as cc or $CC: install gcc or clang")
	}
	dir := t.TempDir()
	in, out := filepath.Join(dir, "lib.c"), filepath.Join(dir, "lib.so")
	if err := os.WriteFile(in, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	if msg, err := exec.Command(cc, "-shared", "-fPIC", "-o", out, in).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cc, err, msg)
	}
	return out
}

// cutShort is the head of a library, as a download leaves it that broke off: the loader would end the process (SIGBUS).
func cutShort(t *testing.T) string {
	t.Helper()
	whole, err := os.ReadFile(build(t, "char big[1<<20] = {1}; int x;"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "libonnxruntime.so")
	if err := os.WriteFile(path, whole[:64<<10], 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// What Try says of a library that works.
func TestTry(t *testing.T) {
	rt := onnxtest.Library(t)
	if got, err := onnx.Try("", ""); err != nil || got != rt {
		t.Errorf("%v, %v; want the runtime that is open", got, err)
	}
	if _, err := onnx.Try("", "tpu"); err == nil || !strings.Contains(err.Error(), `"tpu"`) {
		t.Errorf("a device that is none: %v", err)
	}
	if _, err := onnx.Try(filepath.Join(t.TempDir(), "none.so"), ""); !errors.Is(err, onnx.ErrNoLibrary) {
		t.Errorf("no library: %v", err)
	}
}

const childEnv = "KALE_ONNX_TEST_LIBRARY"

// TestOpenRefusesWrongLibraries opens, each in a process of its own, files that are not what they should be. The same process can
// open the right one afterwards.
func TestOpenRefusesWrongLibraries(t *testing.T) {
	if lib := os.Getenv(childEnv); lib != "" {
		_, err := onnx.Open(onnx.Options{Library: lib})
		fmt.Println("ERROR:", err)
		if _, err := onnx.Open(onnx.Options{}); err != nil && !errors.Is(err, onnx.ErrNoLibrary) {
			t.Errorf("after a failed Open: %v", err)
		}
		return
	}
	text := filepath.Join(t.TempDir(), "libonnxruntime.so")
	if err := os.WriteFile(text, []byte("not a library"), 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, library, want string }{
		{"absent", filepath.Join(t.TempDir(), "absent.so"), "is not a file"},
		{"folder", t.TempDir(), "is not a file"},
		{"text", text, "the file cannot be loaded"},
		{"cut short", cutShort(t), "the file is cut short"},
		{"another library", build(t, "int x;"), "a library, but not ONNX Runtime"},
		{"too old", build(t, `
			static const void *api(unsigned v) { return v <= 23 ? "" : 0; }
			static const char *version(void) { return "1.23.2"; }
			static struct { const void *(*a)(unsigned); const char *(*v)(void); } base = {api, version};
			void *OrtGetApiBase(void) { return &base; }`), "is version 1.23.2; version 1.24 or newer is needed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOpenRefusesWrongLibraries$")
			cmd.Env = append(os.Environ(), childEnv+"="+tt.library)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if !strings.Contains(string(out), tt.want) || !strings.Contains(string(out), tt.library) {
				t.Errorf("got %s\nwant it to say %q and to name %s", out, tt.want, tt.library)
			}
		})
	}
}

func TestOpenIsOncePerProcess(t *testing.T) {
	rt := onnxtest.Library(t)
	again, err := onnx.Open(onnx.Options{Library: rt.Path()})
	if err != nil || again != rt {
		t.Errorf("got %p, %v; want the same runtime %p", again, err, rt)
	}
	if !strings.HasPrefix(rt.Version(), "1.") {
		t.Errorf("version %q", rt.Version())
	}
	other := filepath.Join(t.TempDir(), "other.so")
	if err := os.WriteFile(other, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := onnx.Open(onnx.Options{Library: other}); err == nil || !strings.Contains(err.Error(), "already loaded") {
		t.Errorf("got %v, want a refusal of a second library", err)
	}
}

func TestNewSessionRefuses(t *testing.T) {
	rt := onnxtest.Library(t)
	open := func(elem uint64, dims ...wire) []byte { // y = Identity(x), both of that type and shape
		node := wire(nil).bytes(1, []byte("x")).bytes(2, []byte("y")).bytes(4, []byte("Identity"))
		return file(wire(nil).bytes(1, node).bytes(2, []byte("g")).bytes(11, value("x", elem, dims...)).bytes(12, value("y", elem, dims...)))
	}
	free, three := wire(nil).bytes(2, []byte("n")), wire(nil).varint(1, 3)
	unknown := wire(nil).bytes(1, []byte("x")).bytes(2, []byte("y")).bytes(4, []byte("NoSuchOperator"))
	tests := []struct {
		name  string
		model []byte
		o     onnx.SessionOptions
		want  string
	}{
		{"garbage", []byte("garbage"), onnx.SessionOptions{}, "not a usable ONNX file"},
		{"unknown operator", file(wire(nil).bytes(1, unknown).bytes(2, []byte("g")).bytes(11, value("x", 1, three)).bytes(12, value("y", 1, three))),
			onnx.SessionOptions{}, "ONNX Runtime refuses the model"},
		{"threads", written(t), onnx.SessionOptions{Threads: -1}, "threads is -1"},
		{"device", written(t), onnx.SessionOptions{Device: "tpu"}, `device is "tpu"; want "cpu" or "cuda"`},
		{"open shape", open(1, free, three), onnx.SessionOptions{}, "input x float32[?,3] leaves its shape open"},
		{"open output", open(1, free, three), onnx.SessionOptions{Shapes: map[string][]int{"x": {2, 3}}}, "output y float32[?,3] leaves its shape open"},
		{"wrong shape", open(1, free, three), onnx.SessionOptions{Shapes: map[string][]int{"x": {2, 4}}}, `input "x": want float32[?,3], got shape [2,4]`},
		{"still open", open(1, free, three), onnx.SessionOptions{Shapes: map[string][]int{"x": {-1, 3}}}, "leaves its shape open"},
		{"shape of nothing", written(t), onnx.SessionOptions{Shapes: map[string][]int{"q": {2}}}, `"q", which the model does not have; it has x float32[4,2]`},
		{"scalar", open(1), onnx.SessionOptions{}, "is a scalar, which cannot be bound"},
		{"doubles", open(11, three), onnx.SessionOptions{}, `input "x" has elements of type double`},
		{"huge", open(1, free, free), onnx.SessionOptions{Shapes: map[string][]int{"x": {1 << 20, 1 << 20}}}, "size at most"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := rt.NewSession(tt.model, tt.o)
			if s != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to say %q", err, tt.want)
			}
		})
	}
	s, err := rt.NewSession(open(1, free, three), onnx.SessionOptions{Threads: 2, Shapes: map[string][]int{"x": {2, 3}, "y": {2, 3}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.Inputs(), s.Outputs()); got != "[x float32[2,3]] [y float32[2,3]]" {
		t.Errorf("resolved to %s", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestCUDA runs on the GPU where the library and the machine can, and otherwise wants to be told why not.
func TestCUDA(t *testing.T) {
	s, err := onnxtest.Library(t).NewSession(written(t), onnx.SessionOptions{Device: onnx.CUDA})
	if err != nil {
		if !strings.Contains(err.Error(), `device "cuda"`) || !strings.Contains(err.Error(), onnx.LibraryEnv) {
			t.Errorf("got %v, want it to name the device and what to set", err)
		}
		return
	}
	defer func() { _ = s.Close() }()
	x := float32s(t, s, "x")
	for i := range x {
		x[i] = 1
	}
	run(t, s)
	if got := float32s(t, s, "y")[0]; got != 3 {
		t.Errorf("on the GPU y[0] is %v, want 3", got)
	}
}

func TestSessionNamesMistakes(t *testing.T) {
	s := onnxtest.Session(t, written(t))
	_, unknown := s.Float32("q")
	_, mistyped := s.Float32("n")
	_, mistypedInt := s.Int64("x")
	for err, want := range map[error]string{
		unknown:     `no tensor "q"; it has x float32[4,2], n int64[4], y float32[2,4]`,
		mistyped:    "n int64[4], used as float32",
		mistypedInt: "x float32[4,2], used as int64",
		s.Feed("x", []int{2, 4}, make([]float32, 8)): `input "x": want float32[4,2], got 8 values as [2,4]`,
		s.Feed("x", []int{4, 2}, make([]float32, 7)): "got 7 values as [4,2]",
		s.Feed("y", []int{2, 4}, make([]float32, 8)): `no tensor "y"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
	if err := s.Feed("x", []int{4, 2}, []float32{1, 2, 3, 4, 5, 6, 7, 8}); err != nil {
		t.Error(err)
	}
	if x := float32s(t, s, "x"); x[7] != 8 {
		t.Errorf("Feed left %v", x)
	}
}

func TestClosedSessionAnswers(t *testing.T) {
	s := onnxtest.Session(t, written(t))
	x := float32s(t, s, "x")
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Run(); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("got %v, want an error that says that it is closed", err)
	}
	x[0] = 1 // the slices stay ours
}

func TestRunAllocatesNothing(t *testing.T) {
	s := onnxtest.Session(t, written(t))
	if n := testing.AllocsPerRun(100, func() { run(t, s) }); n != 0 {
		t.Errorf("Run allocates %v times", n)
	}
}

// TestSessionsInParallel gives each goroutine a session of its own, with the collector at work: the slices must stay where the library
// writes, and nobody may see another's numbers. Sessions dropped without Close are collected without harm.
func TestSessionsInParallel(t *testing.T) {
	rt, model := onnxtest.Library(t), written(t)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for round := range 5 {
				s, err := rt.NewSession(model, onnx.SessionOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				x, y := float32s(t, s, "x"), float32s(t, s, "y")
				for i := range 50 {
					v := float32(worker*1000 + i)
					for j := range x {
						x[j] = v
					}
					if i%10 == 0 {
						runtime.GC()
					}
					if err := s.Run(); err != nil {
						t.Error(err)
						return
					}
					if y[0] != 3*v || y[7] != 7*v {
						t.Errorf("worker %d: got %v and %v, want %v and %v", worker, y[0], y[7], 3*v, 7*v)
						return
					}
				}
				if round%2 == 0 { // the others are left to the collector
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	runtime.GC()
	runtime.GC()
}

// A Run is ended by another goroutine, and the session runs again after it. To interrupt nothing does nothing.
func TestInterrupt(t *testing.T) {
	g := onnx.NewGraph()
	const n = 512
	w := make([]float32, n*n)
	for i := range w {
		w[i] = float32(i%7) / (3 * n)
	}
	x := g.Input("x", onnx.Float32, n, n)
	y, by := x, g.Const(w, n, n)
	for range 100 {
		y = g.MatMul(y, by)
	}
	g.Output("y", y)
	model, err := g.Model(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := onnxtest.Session(t, model)
	s.Interrupt()
	if err := s.Run(); err != nil {
		t.Fatalf("after an interruption of nothing: %v", err)
	}
	done := make(chan error)
	go func() { done <- s.Run() }()
	for wait := true; wait; {
		select {
		case err = <-done:
			wait = false
		default:
			s.Interrupt()
		}
	}
	if !errors.Is(err, onnx.ErrInterrupted) {
		t.Errorf("interrupted, it says %v", err)
	}
	if err := s.Run(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

const silentEnv = "KALE_ONNX_TEST_SILENT"

// What ONNX Runtime has to say of a model that fails is an error in one line, and nothing else is written: a failure at every moment would bury what is told of it.
func TestRuntimeWritesNothing(t *testing.T) {
	rt := onnxtest.Library(t)
	three, four := wire(nil).varint(1, 3), wire(nil).varint(1, 4)
	node := wire(nil).bytes(1, []byte("x")).bytes(1, []byte("s")).bytes(2, []byte("y")).bytes(4, []byte("Reshape"))
	one := wire(nil).varint(1, 1)
	reshape := file(wire(nil).bytes(1, node).bytes(2, []byte("g")).bytes(11, value("x", 1, four)).bytes(11, value("s", 7, one)).bytes(12, value("y", 1, three)))
	if os.Getenv(silentEnv) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRuntimeWritesNothing$")
		cmd.Env = append(os.Environ(), silentEnv+"=1")
		out, err := cmd.CombinedOutput()
		if lines := strings.Split(strings.TrimSpace(string(out)), "\n"); err != nil || len(lines) != 3 || !strings.Contains(lines[0], "Reshape") || !strings.Contains(lines[1], "refuses the model") || lines[2] != "PASS" {
			t.Errorf("%v: it writes\n%s\nwant two errors, each in a line, and no more", err, out)
		}
		return
	}
	s, err := rt.NewSession(reshape, onnx.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sizes, err := s.Int64("s")
	if err != nil {
		t.Fatal(err)
	}
	sizes[0] = 3
	fmt.Println(s.Run())
	unknown := wire(nil).bytes(1, []byte("x")).bytes(2, []byte("y")).bytes(4, []byte("NoSuchOperator"))
	_, err = rt.NewSession(file(wire(nil).bytes(1, unknown).bytes(2, []byte("g")).bytes(11, value("x", 1, three)).bytes(12, value("y", 1, three))), onnx.SessionOptions{})
	fmt.Println(err)
}
