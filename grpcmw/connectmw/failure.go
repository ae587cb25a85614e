package connectmw

import (
	"errors"
	"net/http"
	"os"
	"strconv"

	"connectrpc.com/connect"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lockkit/lockkit/grpcmw/internal/bridge"
)

// coded is an error with the status that connect sends for it.
type coded struct {
	error
	status *status.Status
}

func (e *coded) Unwrap() error { return e.error }

func (e *coded) GRPCStatus() *status.Status { return e.status }

// ofConnect returns the *connect.Error in err, or nil.
func ofConnect(err error) *connect.Error {
	var own *connect.Error
	errors.As(err, &own)
	return own
}

// withStatus returns err with connect's status for err. The rules know only the errors
// of a context and of grpc-go.
func withStatus(err error) error {
	if s := statusOf(err); s != nil {
		return &coded{err, s}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &coded{err, status.New(codes.DeadlineExceeded, err.Error())}
	}
	return err
}

// statusOf returns the status of the *connect.Error in err, or nil.
func statusOf(err error) *status.Status {
	own := ofConnect(err)
	if own == nil {
		return nil
	}
	p := &spb.Status{Code: int32(own.Code()), Message: own.Message()}
	for _, d := range own.Details() {
		p.Details = append(p.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + d.Type(), Value: d.Bytes()})
	}
	return status.FromProto(p)
}

// StatusOf returns the status of the *connect.Error in a KeyFunc's error, or nil.
func (s *sending) StatusOf(err error) *status.Status { return statusOf(err) }

var _ bridge.Errors = (*sending)(nil)

// metaOf returns the Meta of the *connect.Error in err, or nil.
func metaOf(err error) http.Header {
	own := ofConnect(err)
	if own == nil {
		return nil
	}
	read := *own // a copy: Meta can write to the error, which handlers can share
	return read.Meta()
}

// said is an error of a rule. The client gets the message, which is valid UTF-8 as in
// grpc-go. Other interceptors can match the wrapped error.
type said struct {
	message string
	reason  error
}

func (e *said) Error() string { return e.message }

func (e *said) Unwrap() error { return e.reason }

// withCode returns err as connect sends it. A handler's error is sent unchanged.
func withCode(err error) error {
	if own, ok := err.(*coded); ok {
		return own.error
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	if own := ofConnect(err); own != nil && own.Code() == connect.Code(s.Code()) && own.Message() == s.Message() {
		return own // the error of a KeyFunc
	}
	e := connect.NewError(connect.Code(s.Code()), &said{string([]rune(s.Message())), err})
	for _, packed := range s.Proto().GetDetails() {
		if d, err := connect.NewErrorDetail(packed); err == nil {
			e.AddDetail(d)
		}
	}
	return e
}

// fail returns err as connect sends it, with the metadata that the rules have set.
func (s *sending) fail(err error) error {
	sent := withCode(err)
	own, ok := sent.(*connect.Error)
	if !ok || errors.Is(err, own) {
		return sent // an error of the handler or of a KeyFunc
	}
	header, trailer := s.set()
	if pushback := trailer.Get(bridge.PushbackTrailer); len(pushback) > 0 && s.protocol == connect.ProtocolConnect {
		if ms, err := strconv.Atoi(pushback[0]); err == nil && ms >= 0 {
			own.Meta().Set("Retry-After", strconv.Itoa((ms+999)/1000))
		}
	}
	addHeaders(own.Meta(), header)
	addHeaders(own.Meta(), trailer)
	return own
}
