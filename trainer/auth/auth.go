// Package auth checks and carries the shared secret of one job's processes: every RPC between them has it in the metadata key "kale-token".
//
// The token keeps another job's processes, and strangers on the network, from pushing gradients or leaving the membership; it does not
// encrypt.
package auth

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/kale-sched/kale/core/rpc"
)

// Key is the metadata key that carries the token.
const Key = rpc.TokenKey

// UnaryServer refuses calls whose token is not this one, with UNAUTHENTICATED. A server without a token refuses every call.
func UnaryServer(token string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if err := rpc.CheckToken(ctx, token, info.FullMethod); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
}

// StreamServer is UnaryServer for streams: the token is checked once, when the stream opens.
func StreamServer(token string) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if err := rpc.CheckToken(stream.Context(), token, info.FullMethod); err != nil {
			return err
		}
		return handler(srv, stream)
	}
}

// Client adds the token to every call: grpc.WithPerRPCCredentials(auth.Client(token)).
func Client(token string) credentials.PerRPCCredentials { return bearer{token} }

type bearer struct{ token string }

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{Key: b.token}, nil
}

// RequireTransportSecurity is false: a job's processes speak on a trusted network until TLS between them is configurable.
func (bearer) RequireTransportSecurity() bool { return false }
