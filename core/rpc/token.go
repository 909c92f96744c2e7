package rpc

import (
	"context"
	"crypto/subtle"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// TokenKey is the metadata key that carries a job's token in every call.
const TokenKey = "kale-token"

// CheckToken says, as an error with code UNAUTHENTICATED, why the caller of method does not belong to the job that has this token; nil: it does. A server
// without a token lets nobody in. The comparison takes as long for a token that is nearly right as for any other of its length.
func CheckToken(ctx context.Context, token, method string) error {
	if token == "" {
		return status.Errorf(codes.Unauthenticated, "%s: this server was started without a token and refuses every call", method)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get(TokenKey)
	if len(values) != 1 {
		return status.Errorf(codes.Unauthenticated, "%s: the metadata key %q must hold the job's token once; it is there %d times", method, TokenKey, len(values))
	}
	if subtle.ConstantTimeCompare([]byte(values[0]), []byte(token)) != 1 {
		return status.Errorf(codes.Unauthenticated, "%s: the token in %q is not this job's: the caller belongs to another job or to an earlier run of it", method, TokenKey)
	}
	return nil
}
