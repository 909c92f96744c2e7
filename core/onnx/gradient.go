package onnx

// Gradients appends the reverse pass of loss, which has one element, and returns its gradient with respect to each of wrt, in
// their shapes. wrt may be inputs, constants or results of operators; for a value cut out of a large one it is cheaper to ask
// for the pieces' gradients and join them than for the whole's. The gradients are ordinary tensors: they can be outputs, and
// can be differentiated again.
//
// One sweep computes all of them: each operator's gradients are built once, in the reverse order of the operators, and only
// along paths from wrt to loss (reverse-mode accumulation).
func (g *Graph) Gradients(loss *Tensor, wrt ...*Tensor) []*Tensor {
	out := make([]*Tensor, len(wrt))
	for i := range out {
		out[i] = g.poison()
	}
	if !g.usableFloats("Gradients", append([]*Tensor{loss}, wrt...)...) {
		return out
	}
	if loss.Size() != 1 {
		g.fail("Gradients", "the loss must have one element, got %s; reduce it first", loss)
		return out
	}
	reaches := g.reachable(wrt)
	sum := map[*Tensor]*Tensor{loss: g.Const([]float32{1}, loss.shape...)}
	for k := len(g.nodes) - 1; k >= 0; k-- {
		n := g.nodes[k]
		dy := sum[n.out]
		if dy == nil || n.grad == nil {
			continue
		}
		for i, in := range n.in {
			if !reaches[in] {
				continue
			}
			d := n.grad(dy, i)
			if d == nil {
				continue
			}
			if sum[in] != nil {
				d = g.Add(sum[in], d)
			}
			sum[in] = d
		}
	}
	for i, t := range wrt {
		if sum[t] == nil {
			g.fail("Gradients", "%s does not depend on %s, or only through operators without a gradient", loss, t)
			continue
		}
		out[i] = sum[t]
	}
	return out
}

// reachable is the set of tensors that depend on any of from.
func (g *Graph) reachable(from []*Tensor) map[*Tensor]bool {
	set := map[*Tensor]bool{}
	for _, t := range from {
		set[t] = true
	}
	for _, n := range g.nodes {
		for _, in := range n.in {
			if set[in] {
				set[n.out] = true
				break
			}
		}
	}
	return set
}
