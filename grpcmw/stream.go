package grpcmw

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lockkit/lockkit/core"
)

// StreamServerInterceptor returns an interceptor that applies rules to streams. A lock
// is acquired before the handler runs, and held until the handler has returned or
// panicked. When the client disconnects, the handler's context is canceled, and its
// receives and sends fail. The lock is released when the handler returns.
//
// If the key is in the request, the first message is received before the handler runs.
// The handler then receives it again. On a stream of many messages from the client,
// that means that the client has to send first. A stream that the client closes without
// a message is refused.
//
// When the lease is lost, the handler's context is canceled. Its next receive fails
// with ABORTED, so the handler gets no further message. A receive that is already
// waiting continues to wait for its message. Even then, everything that the handler
// sends or returns reaches the client.
//
// StreamServerInterceptor panics like UnaryServerInterceptor, and takes the same rules.
// Idempotent cannot be applied to a stream. Check reports such a rule, and the calls of
// the stream get INTERNAL.
func StreamServerInterceptor(r Rules) grpc.StreamServerInterceptor {
	methods, plain := compile("StreamServerInterceptor", r), configure("", "", nil)
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		m := methods[info.FullMethod]
		if m == nil {
			return handler(srv, ss)
		}
		s := &stream{ServerStream: ss}
		c := &call{method: m, stream: s}
		c.handler = func(ctx context.Context, _ any) (any, error) {
			s.ctx = ctx
			return nil, handler(srv, s)
		}
		if !info.IsClientStream && m.input != nil {
			// The client sends exactly one message, so every KeyFunc can get it.
			if err := s.first(c); err != nil {
				return plain.refuse(ss.Context(), keyRefusal(c, "", err))
			}
		}
		_, err := c.run(ss.Context(), 0)
		return err
	}
}

// stream is a server stream whose handler runs under a rule's context.
type stream struct {
	grpc.ServerStream
	ctx    context.Context
	leases []*core.Lease // of the stream's rules
	// head is the first message, until the handler has received it.
	head proto.Message
}

func (s *stream) first(c *call) error {
	if c.input == nil {
		return setupError("the messages of " + c.name + " are not registered, so no key can be found in them")
	}
	m := c.input.New().Interface()
	if err := s.ServerStream.RecvMsg(m); err != nil {
		if errors.Is(err, io.EOF) {
			return sourceOf("stream").Bad("has no message")
		}
		return err
	}
	s.head, c.req = m, m
	return nil
}

// Context returns the context of the innermost rule.
func (s *stream) Context() context.Context { return s.ctx }

// RecvMsg receives the next message, unless the lease was lost.
func (s *stream) RecvMsg(m any) error {
	if s.head != nil {
		head := s.head
		s.head = nil
		to, ok := m.(proto.Message)
		if !ok || to.ProtoReflect().Descriptor() != head.ProtoReflect().Descriptor() {
			return status.Error(codes.Internal, "grpcmw: the handler receives another type of message than the method has")
		}
		proto.Reset(to)
		proto.Merge(to, head)
		return s.lost()
	}
	if err := s.lost(); err != nil {
		return err
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.lost()
}

// lost returns an error if the handler no longer has its lock.
func (s *stream) lost() error {
	if s.ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(s.ctx)
	if !errors.Is(cause, core.ErrLost) && !errors.Is(cause, core.ErrClosed) {
		// The stream itself reports its end, but some servers deliver messages even then.
		if !slices.ContainsFunc(s.leases, func(l *core.Lease) bool { return time.Until(l.Deadline()) <= 0 }) {
			return nil
		}
		cause = core.ErrLost
	}
	return &refused{status: status.New(codes.Aborted, "the lock was lost"), reason: cause}
}
