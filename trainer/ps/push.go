package ps

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kale-sched/kale/core/rpc"
)

// Push applies a batch's gradients to every addressed tablet, exactly once (EXACTLY_ONCE rules 5 to 7). First everything is
// validated; then, tablet by tablet and under the tablet's lock, the batch's spans are compared with what the tablet has applied:
//
//   - none is: the spans are claimed, counted, and the gradients applied;
//   - all are: nothing is done (a duplicate);
//   - some are: nothing is done, and the answer names what is missing.
//
// The lock is held from the claim to the last weight, so a duplicate that arrives meanwhile waits, and its answer is true when it
// gets it. Push does not stop half-way when its caller is gone.
//
// Errors: INVALID_ARGUMENT (do not repeat), FAILED_PRECONDITION (fenced: ask for the newest servers, then repeat), UNAVAILABLE (the pinned
// start is not known yet: repeat), RESOURCE_EXHAUSTED (too far ahead of the watermark: repeat later). After an error some tablets may
// have applied the push; repeating it is safe.
func (s *Server) Push(_ context.Context, req *rpc.PushRequest) (*rpc.PushResponse, error) {
	if err := s.checkFence(req.Fence); err != nil {
		return nil, err
	}
	sc := s.takeScratch()
	defer s.scratch.Put(sc)
	records, err := s.validate(sc, req)
	if err != nil {
		return nil, err
	}
	s.pushes.Add(1)
	answer := &rpc.PushResponse{}
	for _, i := range sc.asked {
		t := s.tablets[i]
		if s.beforeTablet != nil {
			s.beforeTablet(t.id)
		}
		state, missing, err := s.pushTablet(t, sc, sc.of(i), req, records)
		switch {
		case err != nil:
			return nil, status.Error(codes.ResourceExhausted, err.Error())
		case state == claimNew:
			answer.Applied++
		case state == claimDone:
			answer.Already++
			s.duplicates.Add(1)
		default:
			s.partials.Add(1)
			addMissing(answer, t.id, missing)
		}
	}
	return answer, nil
}

// pushTablet is the whole of a push for one tablet: compare, claim, apply, all under its lock.
func (s *Server) pushTablet(t *tablet, sc *scratch, mine []int32, req *rpc.PushRequest, records uint64) (claimState, []*rpc.Span, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	state := t.look(req.Parts)
	if s.opt.UnsafeNoDedup {
		state = claimNew
	}
	switch state {
	case claimDone:
		return state, nil, nil
	case claimPartial:
		return state, t.missing(req.Parts), nil
	}
	if err := t.roomFor(req.Parts, s.opt.MaxSpans); err != nil {
		return state, nil, err
	}
	t.claim(req.Parts)
	if s.midApply != nil {
		s.midApply(t.id)
	}
	if records > 0 {
		s.apply(t, mine, req, records)
	}
	return state, nil, nil
}

// apply takes one optimiser step with the push's gradients for this tablet. Nothing in it can fail. The caller holds t.mu.
func (s *Server) apply(t *tablet, mine []int32, req *rpc.PushRequest, records uint64) {
	t.steps++
	if s.opt.Counting {
		t.counted += int64(records)
		for i := range len(req.CountIds) / 8 {
			row, _ := t.counts.write(idAt(req.CountIds, i), t.epoch, t.frozen)
			row[0]++
		}
		return
	}
	u := s.opt.Optimiser.update(t.steps, req.Share)
	width := s.opt.RowWidth
	for _, at := range mine {
		id := idAt(req.Ids, int(at))
		row, created := t.rows.write(id, t.epoch, t.frozen)
		if created && s.opt.InitRow != nil {
			s.opt.InitRow(id, row[:width:width])
		}
		u.apply(row, width, req.Grads[int(at)*4*width:])
	}
	if n := t.block.Len(); n > 0 {
		offset := t.block.Begin - s.tablets[0].block.Begin
		u.apply(t.denseForWrite(), n, req.Dense[4*offset:])
	}
}

// validate checks a push before anything is claimed, fills the scratch, and counts the records in it.
func (s *Server) validate(sc *scratch, req *rpc.PushRequest) (records uint64, err error) {
	bad := func(format string, args ...any) (uint64, error) {
		return 0, status.Errorf(codes.InvalidArgument, "push by %q refused: %s", req.Member, fmt.Sprintf(format, args...))
	}
	if err := sc.address(s, req.Tablets); err != nil {
		return bad("%v", err)
	}
	if records, err = sc.checkParts(s, req.Parts); err != nil {
		return bad("%v", err)
	}
	if err := sc.checkStarts(s); err != nil {
		return 0, err
	}
	if !(req.Share >= 0) || math.IsInf(float64(req.Share), 0) {
		return bad("its share of the nominal batch is %v", req.Share)
	}
	if err := sc.sort(s, req.Ids); err != nil {
		return bad("%v", err)
	}
	if len(sc.asked) < len(s.tablets) {
		for _, i := range sc.where {
			if !slices.Contains(sc.asked, int(i)) {
				return bad("it has a row of tablet %d, which it does not address", int(i)+s.first)
			}
		}
	}
	if s.opt.Counting {
		if len(req.Ids)+len(req.Grads)+len(req.Dense) > 0 {
			return bad("it has gradients, and the model counts")
		}
		if uint64(len(req.CountIds)) != 8*records {
			return bad("it has %d bytes of ids to count for %d records", len(req.CountIds), records)
		}
		return records, nil
	}
	if len(req.CountIds) > 0 {
		return bad("it has ids to count, and this is not the counting model")
	}
	return records, s.checkGradients(req, records, bad)
}

// checkGradients checks the shapes and values of a push's gradients.
func (s *Server) checkGradients(req *rpc.PushRequest, records uint64, bad func(string, ...any) (uint64, error)) error {
	refuse := func(format string, args ...any) error {
		_, err := bad(format, args...)
		return err
	}
	width := s.opt.RowWidth
	if want := len(req.Ids) / 8 * 4 * width; len(req.Grads) != want {
		return refuse("%d rows of %d weights need %d bytes of gradients, it has %d", len(req.Ids)/8, width, want, len(req.Grads))
	}
	lo, hi := s.opt.Layout.DensePart(s.opt.Server)
	if want := 4 * (hi - lo); len(req.Dense) != want && (records > 0 || len(req.Dense) > 0) {
		return refuse("the %d dense weights of server %d need %d bytes of gradients, it has %d", hi-lo, s.opt.Server, want, len(req.Dense))
	}
	if i := firstAbsurd(req.Grads); i >= 0 {
		return refuse("the gradient of row %d, weight %d, is %v, which is not finite or beyond ±%g", idAt(req.Ids, i/width), i%width, floatAt(req.Grads, i), float64(MaxGradient))
	}
	if i := firstAbsurd(req.Dense); i >= 0 {
		return refuse("the gradient of dense weight %d is %v, which is not finite or beyond ±%g", lo+i, floatAt(req.Dense, i), float64(MaxGradient))
	}
	if records == 0 && (!allZero(req.Grads) || !allZero(req.Dense)) {
		return refuse("it has gradients and no records")
	}
	return nil
}

// address resolves the tablets of a push; none means all of the server.
func (sc *scratch) address(s *Server, tablets []int32) error {
	sc.asked = sc.asked[:0]
	if len(tablets) == 0 {
		for i := range s.tablets {
			sc.asked = append(sc.asked, i)
		}
		return nil
	}
	for _, t := range tablets {
		i := int(t) - s.first
		if i < 0 || i >= len(s.tablets) {
			return fmt.Errorf("server %d does not serve tablet %d", s.opt.Server, t)
		}
		sc.asked = append(sc.asked, i)
	}
	slices.Sort(sc.asked)
	sc.asked = slices.Compact(sc.asked)
	return nil
}

// checkParts checks a push's spans, each and against one another, and counts the records in them.
func (sc *scratch) checkParts(s *Server, parts []*rpc.RangePart) (records uint64, err error) {
	if len(parts) == 0 {
		return 0, fmt.Errorf("it names no span: nobody could know what it is the gradient of")
	}
	sc.spans = sc.spans[:0]
	for _, p := range parts {
		sp := p.GetSpan()
		switch {
		case sp == nil || sp.Begin < 0 || sp.End <= sp.Begin || sp.Partition < 0:
			return 0, fmt.Errorf("partition %d, [%d,%d) is not a span", sp.GetPartition(), sp.GetBegin(), sp.GetEnd())
		case p.N > uint64(sp.End-sp.Begin) || p.DeadN > uint64(sp.End-sp.Begin) || p.LostOffsets > uint64(sp.End-sp.Begin) ||
			p.N+p.DeadN+p.LostOffsets > uint64(sp.End-sp.Begin):
			return 0, fmt.Errorf("partition %d, [%d,%d) cannot hold %d records, %d dead ones and %d lost offsets", sp.Partition, sp.Begin, sp.End, p.N, p.DeadN, p.LostOffsets)
		}
		records += p.N
		sc.spans = append(sc.spans, spanKey{sp.Partition, sp.Begin, sp.End})
	}
	slices.SortFunc(sc.spans, func(a, b spanKey) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.begin, b.begin))
	})
	for i, sp := range sc.spans[1:] {
		if last := sc.spans[i]; last.partition == sp.partition && sp.begin < last.end {
			return 0, fmt.Errorf("two of its spans overlap: partition %d, [%d,%d) and [%d,%d)", sp.partition, last.begin, last.end, sp.begin, sp.end)
		}
	}
	return records, nil
}

// checkStarts checks that the spans lie above the pinned starts, which must be known.
func (sc *scratch) checkStarts(s *Server) error {
	starts := *s.starts.Load()
	for _, sp := range sc.spans {
		start, known := starts[sp.partition]
		if !known {
			return status.Errorf(codes.Unavailable, "server %d does not know the pinned start of partition %d yet: the chief tells it with its next beat", s.opt.Server, sp.partition)
		}
		if sp.begin < start {
			return status.Errorf(codes.InvalidArgument, "partition %d, [%d,%d) begins below the pinned start %d", sp.partition, sp.begin, sp.end, start)
		}
	}
	return nil
}

// addMissing adds a tablet's missing spans to the answer, beside tablets that miss the same.
func addMissing(answer *rpc.PushResponse, tablet int, spans []*rpc.Span) {
	for _, m := range answer.Partial {
		if slices.EqualFunc(m.Spans, spans, func(a, b *rpc.Span) bool {
			return a.Partition == b.Partition && a.Begin == b.Begin && a.End == b.End
		}) {
			m.Tablets = append(m.Tablets, int32(tablet))
			return
		}
	}
	answer.Partial = append(answer.Partial, &rpc.Missing{Tablets: []int32{int32(tablet)}, Spans: spans})
}
