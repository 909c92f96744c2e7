//go:build cgo

package onnx

/*
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// The first two members of ONNX Runtime's stable entry point (OrtApiBase in onnxruntime_c_api.h).
typedef struct {
	const void *(*api)(uint32_t version);
	const char *(*version)(void);
} entry;

// probe opens a library and asks for its version and whether it has the API. It returns 0, or 1 when the file cannot be loaded, 2
// when it is another library, 3 when the API is missing; text gets the loader's message, or the version.
static int probe(const char *path, uint32_t api, char *text, size_t size) {
	void *lib = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	const char *said = NULL;
	if (!lib) {
		said = dlerror();
		strncpy(text, said ? said : "unknown reason", size - 1);
		return 1;
	}
	const entry *(*base)(void) = (const entry *(*)(void))dlsym(lib, "OrtGetApiBase");
	const entry *e = base ? base() : NULL;
	if (!e) {
		dlclose(lib);
		return 2;
	}
	strncpy(text, e->version(), size - 1);
	if (e->api(api)) return 0; // stays open: the binding opens it again at once
	dlclose(lib);
	return 3;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"
)

// apiVersion is ONNX Runtime's C API that onnxruntime_go v1.27.0 is written against (ORT_API_VERSION in its header).
const apiVersion = 24

// Runtime is ONNX Runtime, loaded into this process. It may be used by several goroutines.
type Runtime struct {
	path, version string
}

// loaded is the process's one runtime: the library keeps global state, so it is never unloaded.
var loaded struct {
	sync.Mutex
	rt *Runtime
}

// Open loads ONNX Runtime, once per process: later calls return the same Runtime, and asking for another file is an error. A
// failed Open leaves nothing behind and may be tried again. The errors tell apart that there is no library (ErrNoLibrary in
// the chain), that the file is broken or another library, and that it is too old.
func Open(o Options) (*Runtime, error) {
	path := o.Library
	if path == "" {
		p, err := Locate()
		if err != nil {
			return nil, err
		}
		path = p
	} else if !isFile(path) {
		return nil, fmt.Errorf("onnx: %w: %q is not a file", ErrNoLibrary, path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("onnx: open ONNX Runtime %q: %w", o.Library, err)
	}
	loaded.Lock()
	defer loaded.Unlock()
	if loaded.rt != nil {
		if !sameFile(loaded.rt.path, path) {
			return nil, fmt.Errorf("onnx: open ONNX Runtime %q: this process has already loaded %q, and can load only one", path, loaded.rt.path)
		}
		return loaded.rt, nil
	}
	if err := whole(path); err != nil {
		return nil, err
	}
	version, err := check(path)
	if err != nil {
		return nil, err
	}
	ort.SetSharedLibraryPath(path)
	// Its own log says, in lines of its own and at each Run that fails, what the errors say that are returned.
	if err := ort.InitializeEnvironment(ort.WithLogLevelFatal()); err != nil {
		return nil, fmt.Errorf("onnx: start ONNX Runtime %s from %q: %w", version, path, oneLine(err))
	}
	loaded.rt = &Runtime{path: path, version: version}
	return loaded.rt, nil
}

// check loads the file far enough to know its version and that it will do.
func check(path string) (version string, err error) {
	file := C.CString(path)
	defer C.free(unsafe.Pointer(file))
	var text [512]C.char
	code := C.probe(file, apiVersion, &text[0], C.size_t(len(text)))
	said := C.GoString(&text[0])
	switch code {
	case 0:
		return said, nil
	case 1:
		return "", fmt.Errorf("onnx: load ONNX Runtime from %q: the file cannot be loaded (%s); fetch it again with \"make deps\", or correct %s", path, said, LibraryEnv)
	case 2:
		return "", fmt.Errorf("onnx: load ONNX Runtime from %q: the file is a library, but not ONNX Runtime; correct %s, or run \"make deps\"", path, LibraryEnv)
	default:
		return "", fmt.Errorf("onnx: ONNX Runtime at %q is version %s; version %s or newer is needed (C API %d): run \"make deps\", or set %s to a newer one",
			path, said, minVersion, apiVersion, LibraryEnv)
	}
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return a == b || errX == nil && errY == nil && os.SameFile(x, y)
}

// Version of the library, such as 1.27.0.
func (r *Runtime) Version() string { return r.version }

// Path of the library file.
func (r *Runtime) Path() string { return r.path }

// Session is a model that is ready to run, with a Go slice bound to each input and output: fill the inputs' slices, Run, read the
// outputs'. The slices stay the same for the session's life, and Run allocates nothing.
//
// Run and Close exclude each other, but the slices are not guarded: a session belongs to one goroutine at a time. Parallel work
// takes one session each.
type Session struct {
	mu     sync.Mutex
	run    *ort.AdvancedSession // nil once closed
	ins    []TensorInfo
	outs   []TensorInfo
	floats map[string][]float32
	ints   map[string][]int64
	values []ort.Value
	pin    runtime.Pinner // the library keeps the slices' addresses between calls

	halt    sync.Mutex // guards what follows; taken after mu
	options *ort.RunOptions
	running bool
	halted  bool // the Run under way was told to end
}

// NewSession makes a model ready to run. All shapes must be known, from the model or from the options. The caller closes it.
func (r *Runtime) NewSession(model []byte, o SessionOptions) (*Session, error) {
	s, err := newSession(model, o)
	if err != nil {
		return nil, fmt.Errorf("onnx: create a session: %w", err)
	}
	return s, nil
}

func newSession(model []byte, o SessionOptions) (*Session, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	m, err := Load(model)
	if err != nil {
		return nil, err
	}
	s := &Session{floats: map[string][]float32{}, ints: map[string][]int64{}}
	if s.ins, s.outs, err = o.resolve(m); err != nil {
		return nil, err
	}
	options, err := sessionOptions(o)
	if err != nil {
		return nil, err
	}
	defer destroy(options)
	for _, t := range slices.Concat(s.ins, s.outs) {
		if err := s.bind(t); err != nil {
			s.release()
			return nil, err
		}
	}
	n := len(s.ins)
	s.run, err = ort.NewAdvancedSessionWithONNXData(model, names(s.ins), names(s.outs), s.values[:n], s.values[n:], options)
	if err != nil {
		s.release()
		return nil, fmt.Errorf("ONNX Runtime refuses the model: %w", oneLine(err))
	}
	// A session that is lost without Close must not leave its slices pinned: a lost Pinner ends the process.
	runtime.SetFinalizer(s, func(s *Session) { _ = s.Close() })
	if s.options, err = ort.NewRunOptions(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// sessionOptions translates o for the runtime.
func sessionOptions(o SessionOptions) (*ort.SessionOptions, error) {
	options, err := ort.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		options.SetIntraOpNumThreads(max(o.Threads, 1)),
		options.SetInterOpNumThreads(1),
		options.AddSessionConfigEntry("session.intra_op.allow_spinning", "0"),
	)
	if err == nil && o.Device == CUDA {
		err = addCUDA(options)
	}
	if err != nil {
		destroy(options)
		return nil, err
	}
	return options, nil
}

// addCUDA asks for the first GPU that the process sees (CUDA_VISIBLE_DEVICES chooses).
func addCUDA(options *ort.SessionOptions) error {
	cuda, err := ort.NewCUDAProviderOptions()
	if err == nil {
		err = options.AppendExecutionProviderCUDA(cuda)
		destroy(cuda)
	}
	if err != nil {
		return fmt.Errorf("device %q: this ONNX Runtime cannot use a GPU (%w); set %s to the library of a CUDA build with its CUDA and cuDNN libraries installed, or use device %q",
			CUDA, err, LibraryEnv, CPU)
	}
	return nil
}

// bind makes a tensor over a new Go slice, pinned: the library writes to it by address during Run.
func (s *Session) bind(t TensorInfo) error {
	shape := make(ort.Shape, len(t.Shape))
	for i, d := range t.Shape {
		shape[i] = int64(d)
	}
	var v ort.Value
	var err error
	if t.Type == Int64 {
		data := make([]int64, product(t.Shape))
		s.pin.Pin(&data[0])
		s.ints[t.Name] = data
		v, err = ort.NewTensor(shape, data)
	} else {
		data := make([]float32, product(t.Shape))
		s.pin.Pin(&data[0])
		s.floats[t.Name] = data
		v, err = ort.NewTensor(shape, data)
	}
	if err != nil {
		return fmt.Errorf("bind %s: %w", t, err)
	}
	s.values = append(s.values, v)
	return nil
}

// Inputs and their shapes, all known, in the model's order.
func (s *Session) Inputs() []TensorInfo { return slices.Clone(s.ins) }

// Outputs and their shapes, all known, in the model's order.
func (s *Session) Outputs() []TensorInfo { return slices.Clone(s.outs) }

// Float32 is the slice bound to an input or output, row-major.
func (s *Session) Float32(name string) ([]float32, error) {
	if _, err := find(name, Float32, s.ins, s.outs); err != nil {
		return nil, err
	}
	return s.floats[name], nil
}

// Int64 is the slice bound to an int64 input or output, row-major.
func (s *Session) Int64(name string) ([]int64, error) {
	if _, err := find(name, Int64, s.ins, s.outs); err != nil {
		return nil, err
	}
	return s.ints[name], nil
}

// Feed copies data, which has the given shape, into a float32 input.
func (s *Session) Feed(name string, shape []int, data []float32) error {
	t, err := find(name, Float32, s.ins)
	if err != nil {
		return err
	}
	if !slices.Equal(t.Shape, shape) || len(data) != product(shape) {
		return fmt.Errorf("onnx: input %q: want float32%s, got %d values as %s", name, shapeString(t.Shape), len(data), shapeString(shape))
	}
	copy(s.floats[name], data)
	return nil
}

// Run computes the outputs from the inputs. It blocks until they are in their slices, and allocates nothing. ErrInterrupted: see Interrupt.
func (s *Session) Run() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return errors.New("onnx: run: the session is closed")
	}
	s.begins()
	err := s.run.RunWithOptions(s.options)
	if s.ends() {
		return fmt.Errorf("onnx: run: %w", ErrInterrupted)
	}
	if err != nil {
		return fmt.Errorf("onnx: run: %w", oneLine(err))
	}
	return nil
}

// oneLine is an error of ONNX Runtime, which ends some lines and leaves others empty, in one.
func oneLine(err error) error { return errors.New(strings.Join(strings.Fields(err.Error()), " ")) }

func (s *Session) begins() {
	s.halt.Lock()
	defer s.halt.Unlock()
	s.running = true
}

// ends says whether the Run that has ended was interrupted.
func (s *Session) ends() (interrupted bool) {
	s.halt.Lock()
	defer s.halt.Unlock()
	if interrupted = s.halted; interrupted {
		_ = s.options.UnsetTerminate() // the next Run would tell
	}
	s.running, s.halted = false, false
	return interrupted
}

// Interrupt ends the Run that is under way, when the operator that computes has ended; without one it does nothing. It may be called by any goroutine.
func (s *Session) Interrupt() {
	s.halt.Lock()
	defer s.halt.Unlock()
	if s.running && !s.halted {
		s.halted = s.options.Terminate() == nil
	}
}

// Close frees what the runtime holds for the session. The slices remain the caller's, unbound. Closing again does nothing.
func (s *Session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return nil
	}
	err := s.run.Destroy()
	s.run = nil
	if s.options != nil {
		destroy(s.options)
	}
	s.release()
	return err
}

// release frees the tensors, then lets go of their memory.
func (s *Session) release() {
	for _, v := range s.values {
		destroy(v)
	}
	s.values = nil
	s.pin.Unpin()
}

// destroy frees one of the runtime's objects. The binding's Destroy functions used here answer an error only for an object that is
// already gone.
func destroy(d interface{ Destroy() error }) { _ = d.Destroy() }

func names(ts []TensorInfo) []string {
	out := make([]string, len(ts))
	for i, t := range ts {
		out[i] = t.Name
	}
	return out
}
