package spans

// Union is the set of offsets that are in a or in b.
func Union(a, b *Set) *Set {
	var out Set
	i, j := 0, 0
	for i < len(a.spans) || j < len(b.spans) {
		var next Span
		if j == len(b.spans) || i < len(a.spans) && a.spans[i].Begin <= b.spans[j].Begin {
			next = a.spans[i]
			i++
		} else {
			next = b.spans[j]
			j++
		}
		if n := len(out.spans); n > 0 && next.Begin <= out.spans[n-1].End {
			out.spans[n-1].End = max(out.spans[n-1].End, next.End)
		} else {
			out.spans = append(out.spans, next)
		}
	}
	return &out
}

// Intersect is the set of offsets that are in a and in b.
func Intersect(a, b *Set) *Set {
	var out Set
	for i, j := 0, 0; i < len(a.spans) && j < len(b.spans); {
		x, y := a.spans[i], b.spans[j]
		if lo, hi := max(x.Begin, y.Begin), min(x.End, y.End); lo < hi {
			out.spans = append(out.spans, Span{lo, hi})
		}
		if x.End < y.End {
			i++
		} else {
			j++
		}
	}
	return &out
}

// Subtract is the set of offsets that are in a and not in b.
func Subtract(a, b *Set) *Set {
	var out Set
	j := 0
	for _, x := range a.spans {
		for j < len(b.spans) && b.spans[j].End <= x.Begin {
			j++
		}
		at := x.Begin
		for k := j; k < len(b.spans) && b.spans[k].Begin < x.End; k++ {
			if b.spans[k].Begin > at {
				out.spans = append(out.spans, Span{at, b.spans[k].Begin})
			}
			at = b.spans[k].End
		}
		if at < x.End {
			out.spans = append(out.spans, Span{at, x.End})
		}
	}
	return &out
}
