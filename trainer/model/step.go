package model

import (
	"fmt"

	"github.com/kale-sched/kale/core/onnx"
)

// Step is a training graph made ready to run. Fill Emb, Dense, Label, Weight and Params, call Run, and read the outputs; the slices
// are the step's own, stay the same for its life, and are overwritten in place, outputs by each Run. A Step belongs to one goroutine.
//
// Padding records have Weight 0. Whatever finite numbers their features hold, they add exactly zero to Loss, GradEmb (their own rows
// included) and GradParams; NaN or infinity there would spread, as 0·NaN is NaN. Their Pred means nothing.
type Step struct {
	Emb    []float32 // [B,F,W] embedding rows, gathered; empty without sparse fields
	Dense  []float32 // [B,D] dense features; empty without dense fields
	Label  []float32 // [B] 0 or 1
	Weight []float32 // [B] 1/nominal batch size; 0 for padding
	Params []float32 // [P] all dense parameters

	Pred       []float32 // [B] probability of label 1, before any update
	Loss       float32   // Σ Weight·logloss, without the L2 penalty
	GradEmb    []float32 // laid out as Emb; a row that occurs twice in the batch has its gradient in two pieces, to be summed
	GradParams []float32 // [P], with the L2 penalty's part

	session *onnx.Session
	loss    []float32
}

// NewStep builds the model's training graph and makes it ready to run with that many threads inside a step.
func NewStep(rt *onnx.Runtime, s Spec, threads int) (*Step, error) {
	graph, err := Build(s)
	if err != nil {
		return nil, err
	}
	return bindStep(rt, s, graph, onnx.SessionOptions{Threads: threads})
}

// NewStepOn is NewStep on a device, onnx.CPU or onnx.CUDA.
func NewStepOn(rt *onnx.Runtime, s Spec, threads int, device string) (*Step, error) {
	graph, err := Build(s)
	if err != nil {
		return nil, err
	}
	return bindStep(rt, s, graph, onnx.SessionOptions{Threads: threads, Device: device})
}

func bindStep(rt *onnx.Runtime, s Spec, graph []byte, o onnx.SessionOptions) (*Step, error) {
	session, err := rt.NewSession(graph, o)
	if err != nil {
		return nil, fmt.Errorf("model: make the %s step ready: %w", s.Kind, err)
	}
	st := &Step{session: session}
	slots := map[string]*[]float32{
		inLabel: &st.Label, inWeight: &st.Weight, inParams: &st.Params,
		outPred: &st.Pred, outLoss: &st.loss, outParams: &st.GradParams,
	}
	if s.SparseFields > 0 {
		slots[inEmb], slots[outEmb] = &st.Emb, &st.GradEmb
	}
	if s.DenseFields > 0 {
		slots[inDense] = &st.Dense
	}
	if err := bindSlots(session, slots); err != nil {
		return nil, err
	}
	return st, nil
}

// bindSlots takes the session's slices by name; when one is missing it closes the session.
func bindSlots(session *onnx.Session, slots map[string]*[]float32) error {
	for name, slot := range slots {
		data, err := session.Float32(name)
		if err != nil {
			_ = session.Close() // the session was never used; its failure to close adds nothing to err
			return fmt.Errorf("model: bind %q: %w", name, err)
		}
		*slot = data
	}
	return nil
}

// Run computes predictions, loss and gradients from what the input slices hold. It blocks and allocates nothing.
func (s *Step) Run() error {
	if err := s.session.Run(); err != nil {
		return err
	}
	s.Loss = s.loss[0]
	return nil
}

// Close frees the step. Run answers an error afterwards. Closing again does nothing.
func (s *Step) Close() error { return s.session.Close() }

// Predictor computes predictions alone, for evaluation. Fill Emb, Dense and Params, Run, read Pred. It belongs to one goroutine.
type Predictor struct {
	Emb    []float32 // [B,F,W]
	Dense  []float32 // [B,D]
	Params []float32 // [P]
	Pred   []float32 // [B] probability of label 1

	session *onnx.Session
}

// NewPredictor builds the model's forward half and makes it ready to run.
func NewPredictor(rt *onnx.Runtime, s Spec, threads int) (*Predictor, error) {
	graph, err := BuildPredictor(s)
	if err != nil {
		return nil, err
	}
	session, err := rt.NewSession(graph, onnx.SessionOptions{Threads: threads})
	if err != nil {
		return nil, fmt.Errorf("model: make the %s predictor ready: %w", s.Kind, err)
	}
	p := &Predictor{session: session}
	slots := map[string]*[]float32{inParams: &p.Params, outPred: &p.Pred}
	if s.SparseFields > 0 {
		slots[inEmb] = &p.Emb
	}
	if s.DenseFields > 0 {
		slots[inDense] = &p.Dense
	}
	if err := bindSlots(session, slots); err != nil {
		return nil, err
	}
	return p, nil
}

// Run computes Pred. It blocks and allocates nothing.
func (p *Predictor) Run() error { return p.session.Run() }

// Close frees the predictor. Closing again does nothing.
func (p *Predictor) Close() error { return p.session.Close() }
