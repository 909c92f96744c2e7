// Package auth checks and carries the shared secret of one job's processes: every RPC between them has it in the metadata key "kale-token".
//
// The token keeps another job's processes, and strangers on the network, from pushing gradients or leaving the membership; it does not
// encrypt.
package auth

import (
	"context"
	"crypto/subtle"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Key is the metadata key that carries the token.
const Key = "kale-token"

// UnaryServer refuses calls whose token is not this one, with UNAUTHENTICATED. A server without a token refuses every call.
func UnaryServer(token string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if err := check(ctx, token, info.FullMethod); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
}

// StreamServer is UnaryServer for streams: the token is checked once, when the stream opens.
func StreamServer(token string) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if err := check(stream.Context(), token, info.FullMethod); err != nil {
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

func check(ctx context.Context, token, method string) error {
	if token == "" {
		return status.Errorf(codes.Unauthenticated, "%s: this server was started without a token and refuses every call", method)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get(Key)
	if len(values) != 1 {
		return status.Errorf(codes.Unauthenticated, "%s: the metadata key %q must hold the job's token once; it is there %d times", method, Key, len(values))
	}
	if subtle.ConstantTimeCompare([]byte(values[0]), []byte(token)) != 1 {
		return status.Errorf(codes.Unauthenticated, "%s: the token in %q is not this job's: the caller belongs to another job or to an earlier run of it", method, Key)
	}
	return nil
}
