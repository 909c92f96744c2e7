package ps

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/checkpoint"
)

// rig is a job in a folder of its own, with the options of its server 0. Its optimiser is SGD with a learning rate of 1 and rows start at
// zero, so that a gradient of −1 adds one to a weight: weights count pushes.
type rig struct {
	t     *testing.T
	store *checkpoint.Store
	opt   Options
}

func newRig(t *testing.T, tablets, servers, dense, width int) *rig {
	t.Helper()
	store, err := checkpoint.Open(t.TempDir(), "ctr")
	if err != nil {
		t.Fatal(err)
	}
	layout, err := NewLayout(tablets, servers, dense)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t, store, Options{
		Job: "ctr", Topic: "clicks", Timeline: "t1", Fingerprint: "f", MapVersion: 1, Layout: layout, RowWidth: width,
		Optimiser: Optimiser{Kind: "sgd", LearningRate: 1}, Keep: 2, Store: store,
	}}
}

// tryStart claims an incarnation for a server and restores it, as a new process does.
func (r *rig) tryStart(server int) (*Server, error) {
	r.t.Helper()
	opt := r.opt
	opt.Server = server
	store, err := checkpoint.Open(filepath.Dir(r.store.Root()), "ctr") // a new process remembers nothing
	if err != nil {
		return nil, err
	}
	opt.Store = store
	inc, err := store.ClaimIncarnation(server)
	if err != nil {
		return nil, err
	}
	opt.Incarnation = inc
	s, err := Restore(nil, opt)
	if err != nil {
		return nil, err
	}
	return s, s.SetStarts(map[int32]int64{0: 0, 1: 100, 2: 0})
}

func (r *rig) start(server int) *Server {
	r.t.Helper()
	s, err := r.tryStart(server)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func fenceOf(s *Server) *rpc.Fence {
	return &rpc.Fence{Timeline: s.opt.Timeline, Server: s.opt.Incarnation, MapVersion: s.opt.MapVersion, Chief: s.chief.Load()}
}

// part is a span whose offsets are all records; its hash is their sum, so that every set of records has a recognisable one.
func part(partition int32, begin, end int64) *rpc.RangePart {
	p := &rpc.RangePart{Span: &rpc.Span{Partition: partition, Begin: begin, End: end}, N: uint64(end - begin)}
	for o := begin; o < end; o++ {
		p.Hash += recordHash(partition, o)
	}
	return p
}

func recordHash(partition int32, offset int64) uint64 {
	return mix(uint64(partition)<<40 ^ uint64(offset))
}

// request is a push of the parts that adds one to every weight of the given rows, and to every dense weight.
func request(s *Server, ids []uint64, parts ...*rpc.RangePart) *rpc.PushRequest {
	req := &rpc.PushRequest{Fence: fenceOf(s), Member: "worker-0", Parts: parts, Share: 1}
	lo, hi := s.opt.Layout.DensePart(s.opt.Server)
	for _, id := range ids {
		if s.opt.Layout.ServerOfRow(id) == s.opt.Server {
			req.Ids = appendID(req.Ids, id)
			req.Grads = appendFloats(req.Grads, ones(s.opt.RowWidth))
		}
	}
	req.Dense = appendFloats(nil, ones(hi-lo))
	return req
}

// ones are gradients that add one to n weights.
func ones(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = -1
	}
	return v
}

// push pushes and demands how many tablets apply, have it already, and have some of it.
func (r *rig) push(s *Server, req *rpc.PushRequest, applied, already, partial int) *rpc.PushResponse {
	r.t.Helper()
	answer, err := s.Push(r.t.Context(), req)
	if err != nil {
		r.t.Fatal(err)
	}
	n := 0
	for _, m := range answer.Partial {
		n += len(m.Tablets)
	}
	if int(answer.Applied) != applied || int(answer.Already) != already || n != partial {
		r.t.Fatalf("push: %d applied, %d already, %d partial; want %d, %d, %d", answer.Applied, answer.Already, n, applied, already, partial)
	}
	return answer
}

func (r *rig) snapshot(s *Server) {
	r.t.Helper()
	if err := s.Snapshot(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// weights pulls the first weight of a row and of each dense block.
func (r *rig) weights(s *Server, id uint64) (row float32, dense []float32) {
	r.t.Helper()
	answer, err := s.Pull(r.t.Context(), &rpc.PullRequest{Fence: fenceOf(s), Ids: appendID(nil, id), Dense: true})
	if err != nil {
		r.t.Fatal(err)
	}
	dense = make([]float32, len(answer.Dense)/4)
	readFloats(dense, answer.Dense)
	return floatAt(answer.Rows, 0), dense
}

// watermarks are applied, touched and durable of partition 0.
func watermarks(s *Server) (applied, touched, durable int64) {
	a, b, c := s.Progress()
	return a[0].Watermark, b[0].Watermark, c[0].Watermark
}

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%v, want %v", err, want)
	}
}

// idsOf finds n row ids of a tablet.
func idsOf(l Layout, tablet, n int) []uint64 {
	var out []uint64
	for id := uint64(0); len(out) < n; id++ {
		if l.TabletOfRow(id) == tablet {
			out = append(out, id)
		}
	}
	return out
}

// damage cuts a file in half.
func damage(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err := errors.Join(err, f.Truncate(size/2), f.Close()); err != nil {
		t.Fatal(err)
	}
}
