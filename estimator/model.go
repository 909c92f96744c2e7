package estimator

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// MaxWorkers bounds every search over worker counts. It is far above Kale §5's
// 8,000 GPUs and keeps a mistyped limit from becoming an endless loop.
const MaxWorkers = 1 << 16

// Model is a throughput function F(w, p) in samples per second.
type Model struct {
	// Form is the formula.
	Form Form `json:"form"`
	// Theta holds the form's parameters, in seconds, each ≥ 0 and not all zero;
	// [Form.Terms] of them. Pollux's last is γ, a plain number from 1 to 10.
	Theta []float64 `json:"theta"`
	// Batch is the global batch M in samples; only forms that need one.
	Batch float64 `json:"batch,omitempty"`
}

// Validate reports what makes the model unusable, in words for whoever wrote
// its job file.
func (m Model) Validate() error {
	n := m.Form.Terms()
	if n == 0 {
		return fmt.Errorf("throughput model: unknown form %q; use one of %s", m.Form, formList())
	}
	if len(m.Theta) != n {
		return fmt.Errorf("throughput model %q: theta has %d values; the form needs %d", m.Form, len(m.Theta), n)
	}
	sum := 0.0
	for i, t := range m.Theta {
		if math.IsNaN(t) || math.IsInf(t, 0) || t < 0 {
			return fmt.Errorf("throughput model %q: theta[%d] = %v; every theta must be a finite number of seconds, 0 or more", m.Form, i, t)
		}
		if m.Form != FormPollux || i < polluxGamma {
			sum += t
		}
	}
	if g := m.Theta[n-1]; m.Form == FormPollux && (g < 1 || g > 10) {
		return fmt.Errorf("throughput model %q: theta[%d], γ, is %v; expected 1 (computing and communicating one after the other) to 10 (at the same time)", m.Form, polluxGamma, g)
	}
	if sum == 0 {
		return fmt.Errorf("throughput model %q: every theta is 0, so a step would take no time; give at least one positive value", m.Form)
	}
	if m.Form.NeedsBatch() && (!(m.Batch > 0) || math.IsInf(m.Batch, 0)) {
		return fmt.Errorf("throughput model %q: batch = %v; the form needs the global batch in samples, above 0", m.Form, m.Batch)
	}
	return nil
}

func formList() string {
	names := make([]string, 0, 4)
	for _, f := range Forms() {
		names = append(names, fmt.Sprintf("%q", string(f)))
	}
	return strings.Join(names, ", ")
}

// Throughput returns F(w, p) in samples per second. It is 0 for w ≤ 0, for
// p ≤ 0 where the form uses p, and for a model that does not validate.
func (m Model) Throughput(w, p int) float64 {
	sp := m.Form.spec()
	if w <= 0 || sp == nil || len(m.Theta) != sp.terms || (sp.servers && p <= 0) {
		return 0
	}
	at := place{w: float64(w), p: float64(max(p, 1)), batch: m.Batch}
	f := sp.trains(at) / sp.seconds(m.Theta, at)
	if math.IsNaN(f) || math.IsInf(f, 0) || f < 0 {
		return 0
	}
	return f
}

// Equal tells whether both models are the same function, parameter by parameter.
func (m Model) Equal(o Model) bool {
	return m.Form == o.Form && m.Batch == o.Batch && slices.Equal(m.Theta, o.Theta)
}

// String renders the model for logs and reports.
func (m Model) String() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "%s θ=(", m.Form)
	for i, t := range m.Theta {
		if i > 0 {
			sb.WriteString(", ")
		}
		fmt.Fprintf(&sb, "%.4g", t)
	}
	sb.WriteString(")")
	if m.Form.NeedsBatch() {
		fmt.Fprintf(&sb, " M=%g", m.Batch)
	}
	return sb.String()
}
