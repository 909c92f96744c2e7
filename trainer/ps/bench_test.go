package ps

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/checkpoint"
)

// The reference load: batches of 256 records with 8 sparse features each, rows of 8+1 weights, 64 tablets, a dense vector of 20,000.
const (
	benchBatch, benchFields = 256, 8
	benchWidth, benchDense  = 9, 20000
	benchVocabulary         = 200_000
)

type bench struct {
	servers []*Server
	layout  Layout
	rng     *rand.Rand
	zipf    *rand.Zipf
	next    int64
}

func newBench(b *testing.B, servers int) *bench {
	b.Helper()
	store, err := checkpoint.Open(b.TempDir(), "ctr")
	if err != nil {
		b.Fatal(err)
	}
	layout, err := NewLayout(64, servers, benchDense)
	if err != nil {
		b.Fatal(err)
	}
	out := &bench{layout: layout, rng: rand.New(rand.NewPCG(1, 2))}
	out.zipf = rand.NewZipf(out.rng, 1.1, 10, benchVocabulary-1)
	for i := range servers {
		inc, err := store.ClaimIncarnation(i)
		if err != nil {
			b.Fatal(err)
		}
		s, err := Restore(nil, Options{
			Job: "ctr", Topic: "clicks", Timeline: "t1", MapVersion: 1, Server: i, Incarnation: inc, Layout: layout, RowWidth: benchWidth,
			Optimiser: Optimiser{Kind: "adagrad", LearningRate: 0.05}, Store: store,
		})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.SetStarts(map[int32]int64{0: 0, 1: 0, 2: 0, 3: 0}); err != nil {
			b.Fatal(err)
		}
		out.servers = append(out.servers, s)
	}
	return out
}

// batch is the next 256 records, from four partitions.
func (x *bench) batch() *Batch {
	seen := map[uint64]bool{}
	b := &Batch{Member: "worker-0", Share: 1, Dense: make([]float32, benchDense)}
	for range benchBatch * benchFields {
		id := x.zipf.Uint64()
		if !seen[id] {
			seen[id] = true
			b.IDs = append(b.IDs, id)
		}
	}
	b.Grads = make([]float32, len(b.IDs)*benchWidth)
	for i := range b.Grads {
		b.Grads[i] = x.rng.Float32() - 0.5
	}
	for p := range int32(4) {
		b.Parts = append(b.Parts, &rpc.RangePart{Span: &rpc.Span{Partition: p}, N: benchBatch / 4})
	}
	x.move(b)
	return b
}

// move gives the batch the next offsets.
func (x *bench) move(b *Batch) {
	for _, p := range b.Parts {
		p.Span.Begin, p.Span.End = x.next, x.next+benchBatch/4
	}
	x.next += benchBatch / 4
}

// requests are what a client would send of 16 batches to server 0.
func (x *bench) requests() []*call {
	c := NewClient(nil, x.layout, benchWidth, nil)
	var out []*call
	for range 16 {
		k := &call{servers: make([]serverCall, x.layout.servers)}
		b := x.batch()
		c.fill(k, b)
		s := &k.servers[0]
		s.push.Fence = fenceOf(x.servers[0])
		s.pull.Fence, s.pull.Ids, s.pull.Dense = s.push.Fence, s.push.Ids, true
		out = append(out, k)
	}
	return out
}

func BenchmarkPushInProcess(b *testing.B) {
	x := newBench(b, 1)
	calls := x.requests()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		req := &calls[i%len(calls)].servers[0].push
		x.move(&Batch{Parts: req.Parts})
		answer, err := x.servers[0].Push(b.Context(), req)
		if err != nil || answer.Applied != 64 {
			b.Fatal(answer, err)
		}
	}
	b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkPullInProcess(b *testing.B) {
	x := newBench(b, 1)
	calls := x.requests()
	for i, k := range calls {
		x.move(&Batch{Parts: k.servers[0].push.Parts})
		if _, err := x.servers[0].Push(b.Context(), &calls[i].servers[0].push); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := x.servers[0].Pull(b.Context(), &calls[i%len(calls)].servers[0].pull); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkStepOverLoopback pulls and pushes one batch over gRPC on the loopback interface, client's work included.
func BenchmarkStepOverLoopback(b *testing.B) {
	for _, servers := range []int{1, 2} {
		b.Run(fmt.Sprintf("servers=%d", servers), func(b *testing.B) {
			x := newBench(b, servers)
			client := NewClient(nil, x.layout, benchWidth, func(address string) (*grpc.ClientConn, error) {
				return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
			})
			defer client.Close() //nolint:errcheck // the benchmark is over
			var infos []*rpc.ServerInfo
			for i, s := range x.servers {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					b.Fatal(err)
				}
				srv := grpc.NewServer(grpc.MaxRecvMsgSize(MaxMessage))
				s.Register(srv)
				go srv.Serve(l) //nolint:errcheck // ends with Stop
				defer srv.Stop()
				infos = append(infos, &rpc.ServerInfo{Index: int32(i), Address: l.Addr().String(), Incarnation: s.opt.Incarnation})
			}
			client.SetServers("t1", 0, 1, infos)
			var batches []*Batch
			for range 16 {
				batches = append(batches, x.batch())
			}
			rows, dense := make([]float32, benchBatch*benchFields*benchWidth), make([]float32, benchDense)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				batch := batches[i%len(batches)]
				x.move(batch)
				if err := client.Pull(b.Context(), batch.IDs, rows[:len(batch.IDs)*benchWidth], dense); err != nil {
					b.Fatal(err)
				}
				if _, err := client.Push(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkSnapshot writes all 64 tablets of a model of 200,000 rows (14 MB with Adagrad's state).
func BenchmarkSnapshot(b *testing.B) {
	x := newBench(b, 1)
	s := x.servers[0]
	for id := uint64(0); id < benchVocabulary; id++ {
		s.tablets[x.layout.TabletOfRow(id)].rows.write(id, 0, 0)
	}
	for b.Loop() {
		for _, t := range s.tablets {
			t.changes++
		}
		if err := s.Snapshot(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkProgress is what a beat costs: 64 tablets, 12 partitions.
func BenchmarkProgress(b *testing.B) {
	x := newBench(b, 1)
	s := x.servers[0]
	for p := range int32(12) {
		if err := s.SetStarts(map[int32]int64{p: 0}); err != nil {
			b.Fatal(err)
		}
		for i := range int64(6) {
			req := request(s, nil, part(p, 20*i, 20*i+10))
			if _, err := s.Push(b.Context(), req); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Progress()
	}
}
