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

// Form names a throughput formula of Kale §3.3.
type Form string

// The formulas, with θ ≥ 0 in the order of [Model.Theta]. w is the number of
// workers, p of parameter servers, M the global batch in samples; θ is in
// seconds (sync: per step; async: per sample and worker).
const (
	// FormAsync is Eq. 9, w:p fixed: f(w) = w / (θ0 + θ1/w + θ2·w).
	FormAsync Form = "async"
	// FormSync is Eq. 6, w:p fixed: f(w) = M / (θ0 + θ1/w + θ2/w² + θ3·w). The
	// paper prints it without M; its worked example needs the factor.
	FormSync Form = "sync"
	// FormAsyncWP is Eq. 8: f(w, p) = w / (θ0 + θ1/p + θ2·p + θ3·w).
	FormAsyncWP Form = "async-wp"
	// FormSyncWP is Eq. 5: f(w, p) = M / (θ0 + θ1/w + θ2/p + θ3·w/p +
	// θ4/(w·p) + θ5·p + θ6·w).
	FormSyncWP Form = "sync-wp"
)

// Forms lists the known forms in a fixed order.
func Forms() []Form { return []Form{FormAsync, FormSync, FormAsyncWP, FormSyncWP} }

// terms returns the number of parameters of the form, 0 for an unknown one.
func (f Form) terms() int {
	switch f {
	case FormAsync:
		return 3
	case FormSync, FormAsyncWP:
		return 4
	case FormSyncWP:
		return 7
	}
	return 0
}

// sync tells whether the form's step time is that of a global batch.
func (f Form) sync() bool { return f == FormSync || f == FormSyncWP }

// UsesServers tells whether F depends on the number of parameter servers by
// itself, and not only through a fixed ratio.
func (f Form) UsesServers() bool { return f == FormAsyncWP || f == FormSyncWP }

// basis writes the form's basis at (w, p) into dst, which holds terms() values.
// w and p are at least 1.
func (f Form) basis(dst []float64, w, p float64) {
	switch f {
	case FormAsync:
		dst[0], dst[1], dst[2] = 1, 1/w, w
	case FormSync:
		dst[0], dst[1], dst[2], dst[3] = 1, 1/w, 1/(w*w), w
	case FormAsyncWP:
		dst[0], dst[1], dst[2], dst[3] = 1, 1/p, p, w
	case FormSyncWP:
		dst[0], dst[1], dst[2], dst[3] = 1, 1/w, 1/p, w/p
		dst[4], dst[5], dst[6] = 1/(w*p), p, w
	}
}

// Model is a throughput function F(w, p) in samples per second.
type Model struct {
	// Form is the formula.
	Form Form `json:"form"`
	// Theta holds the form's parameters, in seconds, each ≥ 0 and not all zero:
	// 3 for async, 4 for sync and async-wp, 7 for sync-wp.
	Theta []float64 `json:"theta"`
	// Batch is the global batch M in samples; sync forms only.
	Batch float64 `json:"batch,omitempty"`
}

// Validate reports what makes the model unusable, in words for whoever wrote
// its job file.
func (m Model) Validate() error {
	n := m.Form.terms()
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
		sum += t
	}
	if sum == 0 {
		return fmt.Errorf("throughput model %q: every theta is 0, so a step would take no time; give at least one positive value", m.Form)
	}
	if m.Form.sync() && (!(m.Batch > 0) || math.IsInf(m.Batch, 0)) {
		return fmt.Errorf("throughput model %q: batch = %v; a synchronous model needs the global batch in samples, above 0", m.Form, m.Batch)
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

// work is the numerator of F: the samples that one step time accounts for.
func (m Model) work(w float64) float64 {
	if m.Form.sync() {
		return m.Batch
	}
	return w
}

// stepTime is the denominator of F at (w, p), in seconds.
func (m Model) stepTime(w, p float64) float64 {
	var buf [7]float64
	b := buf[:m.Form.terms()]
	m.Form.basis(b, w, p)
	t := 0.0
	for i, v := range b {
		t += m.Theta[i] * v
	}
	return t
}

// Throughput returns F(w, p) in samples per second. It is 0 for w ≤ 0, for
// p ≤ 0 where the form uses p, and for a model that does not validate.
func (m Model) Throughput(w, p int) float64 {
	if w <= 0 || len(m.Theta) != m.Form.terms() || (m.Form.UsesServers() && p <= 0) {
		return 0
	}
	f := m.work(float64(w)) / m.stepTime(float64(w), float64(max(p, 1)))
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
	if m.Form.sync() {
		fmt.Fprintf(&sb, " M=%g", m.Batch)
	}
	return sb.String()
}
