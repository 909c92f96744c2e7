package rpc

import (
	"errors"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// unreached is how gRPC says that a connection was not made, and why.
var unreached = regexp.MustCompile(`^(?:last )?connection error: desc = "(?:transport: )?(?:Error while dialing: )?(.*)"$`)

// Words says for people what an error says, with what gRPC says of a call that failed in plain words.
func Words(err error) string {
	var failed interface {
		error
		GRPCStatus() *status.Status
	}
	if !errors.As(err, &failed) {
		return err.Error()
	}
	words := unreached.ReplaceAllString(failed.GRPCStatus().Message(), "it cannot be reached: $1")
	if failed.GRPCStatus().Code() == codes.DeadlineExceeded { // in one wording, whatever the connection waited for
		words = "no answer in time"
	}
	return strings.Replace(err.Error(), failed.Error(), words, 1)
}
