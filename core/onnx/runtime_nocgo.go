//go:build !cgo

package onnx

// Runtime cannot exist without cgo: Open answers ErrNoCgo.
type Runtime struct{}

// Session cannot exist without cgo.
type Session struct{}

// Open answers ErrNoCgo.
func Open(Options) (*Runtime, error) { return nil, ErrNoCgo }

// Version is empty.
func (r *Runtime) Version() string { return "" }

// Path is empty.
func (r *Runtime) Path() string { return "" }

// NewSession answers ErrNoCgo.
func (r *Runtime) NewSession([]byte, SessionOptions) (*Session, error) { return nil, ErrNoCgo }

// Inputs is empty.
func (s *Session) Inputs() []TensorInfo { return nil }

// Outputs is empty.
func (s *Session) Outputs() []TensorInfo { return nil }

// Float32 answers ErrNoCgo.
func (s *Session) Float32(string) ([]float32, error) { return nil, ErrNoCgo }

// Int64 answers ErrNoCgo.
func (s *Session) Int64(string) ([]int64, error) { return nil, ErrNoCgo }

// Feed answers ErrNoCgo.
func (s *Session) Feed(string, []int, []float32) error { return ErrNoCgo }

// Run answers ErrNoCgo.
func (s *Session) Run() error { return ErrNoCgo }

// Interrupt does nothing.
func (s *Session) Interrupt() {}

// Close does nothing.
func (s *Session) Close() error { return nil }
