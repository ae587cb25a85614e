package connectmw

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		spec := conn.Spec()
		if !i.covers(spec) {
			return next(ctx, conn)
		}
		set, ran := &sending{method: spec.Procedure, protocol: conn.Peer().Protocol}, false
		ctx = metadata.NewIncomingContext(ctx, metadataOf(conn.RequestHeader()))
		ctx = grpc.NewContextWithServerTransportStream(ctx, set)
		info := &grpc.StreamServerInfo{
			FullMethod:     spec.Procedure,
			IsClientStream: spec.StreamType&connect.StreamTypeClient != 0,
			IsServerStream: spec.StreamType&connect.StreamTypeServer != 0,
		}
		err := i.stream(nil, &received{sending: set, ctx: ctx, conn: conn}, info, func(_ any, inner grpc.ServerStream) error {
			ran = true
			hideOwner(inner.Context(), conn.RequestHeader())
			return next(inner.Context(), &guarded{StreamingHandlerConn: conn, stream: inner})
		})
		switch {
		case err == nil:
			return nil
		case ran:
			return withCode(withStatus(err))
		}
		return set.fail(err)
	}
}

// received adapts a stream of connect to a stream of grpc-go, for the rules.
type received struct {
	*sending
	ctx  context.Context
	conn connect.StreamingHandlerConn
}

func (s *received) Context() context.Context  { return s.ctx }
func (s *received) RecvMsg(m any) error       { return s.conn.Receive(m) }
func (s *received) SendMsg(m any) error       { return s.conn.Send(m) }
func (s *received) SetTrailer(md metadata.MD) { _ = s.sending.SetTrailer(md) }

// guarded is the handler's stream. After the loss of the lock, Receive returns an
// error. If a rule has received the first message, the handler's first Receive returns
// the same message.
type guarded struct {
	connect.StreamingHandlerConn
	stream grpc.ServerStream
}

func (g *guarded) Receive(m any) error {
	err := g.stream.RecvMsg(m)
	if err == nil || ofConnect(err) != nil {
		return err
	}
	return withCode(err)
}
