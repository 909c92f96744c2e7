package auth

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kale-sched/kale/core/rpc"
)

type echo struct {
	rpc.UnimplementedParameterServerServer
	rpc.UnimplementedPeerServer
}

func (echo) Pull(context.Context, *rpc.PullRequest) (*rpc.PullResponse, error) {
	return &rpc.PullResponse{}, nil
}

func (echo) Forward(s rpc.Peer_ForwardServer) error {
	return s.Send(&rpc.ForwardResponse{})
}

// dial serves echo behind both interceptors and returns a connection that carries the given options.
func dial(t *testing.T, serverToken string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	srv := grpc.NewServer(grpc.UnaryInterceptor(UnaryServer(serverToken)), grpc.StreamInterceptor(StreamServer(serverToken)))
	rpc.RegisterParameterServerServer(srv, echo{})
	rpc.RegisterPeerServer(srv, echo{})
	go srv.Serve(l) //nolint:errcheck // ends with Stop
	t.Cleanup(srv.Stop)
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return l.Dial() }))
	conn, err := grpc.NewClient("passthrough:///echo", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestOnlyTheJobsTokenIsLetIn(t *testing.T) {
	for _, c := range []struct {
		name, server string
		client       []string // values of the key
		want         codes.Code
	}{
		{"the same", "s3cret", []string{"s3cret"}, codes.OK},
		{"another", "s3cret", []string{"s3crex"}, codes.Unauthenticated},
		{"a prefix", "s3cret", []string{"s3cre"}, codes.Unauthenticated},
		{"none", "s3cret", nil, codes.Unauthenticated},
		{"an empty one", "s3cret", []string{""}, codes.Unauthenticated},
		{"two", "s3cret", []string{"x", "s3cret"}, codes.Unauthenticated},
		{"a server without one lets nobody in", "", []string{""}, codes.Unauthenticated},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dial(t, c.server)
			ctx := t.Context()
			for _, v := range c.client {
				ctx = metadata.AppendToOutgoingContext(ctx, Key, v)
			}
			_, err := rpc.NewParameterServerClient(conn).Pull(ctx, &rpc.PullRequest{})
			if status.Code(err) != c.want {
				t.Errorf("unary: %v, want %v", err, c.want)
			}
			stream, err := rpc.NewPeerClient(conn).Forward(ctx)
			if err == nil {
				_, err = stream.Recv()
			}
			if status.Code(err) != c.want {
				t.Errorf("stream: %v, want %v", err, c.want)
			}
		})
	}
}

func TestClientCarriesTheToken(t *testing.T) {
	conn := dial(t, "s3cret", grpc.WithPerRPCCredentials(Client("s3cret")))
	if _, err := rpc.NewParameterServerClient(conn).Pull(t.Context(), &rpc.PullRequest{}); err != nil {
		t.Error(err)
	}
	conn = dial(t, "s3cret", grpc.WithPerRPCCredentials(Client("other")))
	if _, err := rpc.NewParameterServerClient(conn).Pull(t.Context(), &rpc.PullRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("%v, want UNAUTHENTICATED", err)
	}
}
