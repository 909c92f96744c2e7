package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/kale-sched/kale/core/backend/backendpb"
)

// Code is the kind of a backend's failure: what a caller branches on.
type Code int

// The codes. Unavailable is also what every failure becomes that has no better code: the outcome is unknown.
const (
	Unavailable  Code = iota // the backend or its cluster did not answer; what was asked may or may not have happened
	NoCapacity               // it does not fit now
	RetryAfter               // the backend asks for a pause of Error.After
	Conflict                 // another caller changed the same thing at the same time; look, then ask again
	Blocked                  // it cannot happen until a person acts; the message says on what
	Unsupported              // this backend cannot do that
	Unauthorised             // credentials are missing or refused
	InvalidField             // the request is wrong at Error.Field
	Gone                     // the ID was released or replaced
)

// codeTable is the one place where codes meet their names and their forms on the wire.
var codeTable = []struct {
	code Code
	name string
	pb   backendpb.Code
	grpc codes.Code
}{
	{Unavailable, "unavailable", backendpb.Code_CODE_UNAVAILABLE, codes.Unavailable},
	{NoCapacity, "no capacity", backendpb.Code_CODE_NO_CAPACITY, codes.ResourceExhausted},
	{RetryAfter, "retry after", backendpb.Code_CODE_RETRY_AFTER, codes.Aborted},
	{Conflict, "conflict", backendpb.Code_CODE_CONFLICT, codes.AlreadyExists},
	{Blocked, "blocked", backendpb.Code_CODE_BLOCKED, codes.FailedPrecondition},
	{Unsupported, "unsupported", backendpb.Code_CODE_UNSUPPORTED, codes.Unimplemented},
	{Unauthorised, "unauthorised", backendpb.Code_CODE_UNAUTHORISED, codes.PermissionDenied},
	{InvalidField, "invalid field", backendpb.Code_CODE_INVALID_FIELD, codes.InvalidArgument},
	{Gone, "gone", backendpb.Code_CODE_GONE, codes.NotFound},
}

func (c Code) String() string {
	for _, row := range codeTable {
		if row.code == c {
			return row.name
		}
	}
	return fmt.Sprintf("Code(%d)", int(c))
}

// Error is a failure with a code. It crosses the plugin boundary whole, but for what it wraps;
// of that only context.DeadlineExceeded is known on the other side.
type Error struct {
	Code    Code
	Message string        // for people: what was attempted, on what, what to do
	Field   string        // for InvalidField: the path, such as "workloads[2].argv"
	After   time.Duration // for RetryAfter: how long to wait
	cause   error
	own     string // of one that came over the wire: the message of the other side
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Message)
	switch {
	case e.Code == InvalidField && e.Field != "":
		fmt.Fprintf(&b, " (invalid field %s)", e.Field)
	case e.Code == RetryAfter:
		fmt.Fprintf(&b, " (retry after %v)", e.After)
	default:
		fmt.Fprintf(&b, " (%s)", e.Code)
	}
	return b.String()
}

// Own is the backend's own message, without what was attempted here.
func (e *Error) Own() string { return cmp.Or(e.own, e.Message) }

// Unwrap gives the cause, if there is one on this side of the wire.
func (e *Error) Unwrap() error { return e.cause }

// Errorf makes an Error; a %w among its operands becomes its cause. That the cause has the same code is said once.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := &Error{Code: code, Message: err.Error(), cause: errors.Unwrap(err)}
	if inner := (*Error)(nil); code != InvalidField && code != RetryAfter && errors.As(err, &inner) && inner.Code == code {
		e.Message = strings.TrimSuffix(e.Message, fmt.Sprintf(" (%s)", code))
	}
	return e
}

// Invalidf makes an InvalidField error for the field at path.
func Invalidf(path, format string, args ...any) *Error {
	e := Errorf(InvalidField, format, args...)
	e.Field = path
	return e
}

// RetryIn makes a RetryAfter error.
func RetryIn(after time.Duration, format string, args ...any) *Error {
	e := Errorf(RetryAfter, format, args...)
	e.After = after
	return e
}

// CodeOf gives the code of err: Unavailable for an error without one. It panics on nil, which has no code.
func CodeOf(err error) Code { return AsError(err).Code }

// AsError gives err as an *Error: itself if one is in its chain, else a new one with the code Unavailable.
func AsError(err error) *Error {
	if err == nil {
		panic("backend: AsError of a nil error")
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: Unavailable, Message: err.Error(), cause: err}
}

func errorToPB(e *Error) *backendpb.Error {
	if e == nil {
		return nil
	}
	pb := &backendpb.Error{Code: backendpb.Code_CODE_UNAVAILABLE, Message: e.Message, Field: e.Field}
	for _, row := range codeTable {
		if row.code == e.Code {
			pb.Code = row.pb
		}
	}
	if e.After != 0 {
		pb.After = durationpb.New(e.After)
	}
	return pb
}

func errorFromPB(pb *backendpb.Error) *Error {
	if pb == nil {
		return nil
	}
	e := &Error{Code: Unavailable, Message: pb.GetMessage(), Field: pb.GetField(), After: pb.GetAfter().AsDuration()}
	for _, row := range codeTable {
		if row.pb == pb.GetCode() {
			e.Code = row.code
		}
	}
	return e
}

// toWire turns what a Backend answered into what gRPC carries.
func toWire(err error) error {
	if err == nil {
		return nil
	}
	e := AsError(err)
	grpcCode := codes.Unavailable
	for _, row := range codeTable {
		if row.code == e.Code {
			grpcCode = row.grpc
		}
	}
	if e.Code == Unavailable && errors.Is(err, context.DeadlineExceeded) {
		grpcCode = codes.DeadlineExceeded
	}
	st, derr := status.New(grpcCode, e.Message).WithDetails(errorToPB(e))
	if derr != nil { // the detail is one of our own messages, so it can always be packed
		panic("backend: pack an error detail: " + derr.Error())
	}
	return st.Err()
}

// fromWire turns what gRPC gave into an *Error that says what was attempted. An error that carries our detail is the
// backend's own. Any other comes from the transport: only a bare code that a backend cannot mean otherwise keeps its
// meaning, the rest is Unavailable.
func fromWire(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	st := status.Convert(err)
	for _, d := range st.Details() {
		if pb, ok := d.(*backendpb.Error); ok {
			e := errorFromPB(pb)
			e.own = e.Message
			if !strings.HasPrefix(e.Message, doing+": ") { // many backends say it themselves
				e.Message = doing + ": " + e.Message
			}
			if st.Code() == codes.DeadlineExceeded { // the caller's own may pass a moment later
				e.cause = context.DeadlineExceeded
			}
			return e
		}
	}
	e := &Error{Code: Unavailable, Message: doing + ": " + st.Message()}
	switch {
	case ctx.Err() != nil:
		e.Message, e.cause = doing+": "+ctx.Err().Error()+" before the backend answered", ctx.Err()
	case st.Code() == codes.DeadlineExceeded:
		e.cause = context.DeadlineExceeded
	case st.Code() == codes.Unimplemented:
		e.Code = Unsupported
	}
	return e
}
