package grpcmw

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/keys"
	"github.com/lockkit/lockkit/grpcmw/internal/bridge"
)

// maxOwner is the length of the longest owner that is taken, in bytes.
const maxOwner = 4096 // that of a hundred keys

// SendOwner has the interceptor send the owner of the lease under which a call is
// made, core.LeaseFromContext, so that a method whose Lock has TakeOwner and the
// same key joins the caller's hold instead of finding it busy. Calls that are made
// under no lease are sent as they are. Where a call is to join an outer lease, make
// it under the context of that one.
//
// The owner is a secret: while the hold lasts, it is all it takes to join. It
// is in the metadata "lockkit-owner" of every call that the interceptor makes, so
// name the methods with Methods, use TLS, and keep that metadata out of logs. A
// lease whose owner was sent is not passed on within its process.
func SendOwner() ClientOption {
	return func(g *client) { g.owner = true }
}

// TakeOwner has the Lock join the hold of the caller, if that was made with
// SendOwner and holds the key in the same store: the handler runs beside the
// caller's, with the same fencing token, and the key is free when both have ended. An
// owner that does not hold the key, or not any more, is ignored: the key is acquired
// as without an owner.
//
// Calls that the caller makes at the same time under one lease all join it, and so
// exclude each other no more than its own goroutines; nor does a repetition exclude
// its first try. Have Idempotent outside where that matters.
//
// The owner is all it takes to join, and its text names the token that the handler is
// told: take it only from callers that are trusted with the lock, and with the token.
// The handler does not find it in the call's metadata, and so cannot pass it on by
// mistake.
func TakeOwner() Option {
	return func(g *config) {
		g.is("TakeOwner", forLock)
		g.owner = true
	}
}

// withOwner is ctx with the owner of its lease in the outgoing metadata.
func withOwner(ctx context.Context) context.Context {
	lease, ok := core.LeaseFromContext(ctx)
	if !ok {
		return ctx
	}
	md, ok := metadata.FromOutgoingContext(ctx)
	if !ok {
		md = metadata.MD{}
	}
	md.Set(bridge.OwnerMetadata, lease.Owner())
	return metadata.NewOutgoingContext(ctx, md)
}

// takeOwner is ctx with the owner that the caller has sent, which is no longer in
// the incoming metadata.
func takeOwner(ctx context.Context) context.Context {
	sent := metadata.ValueFromIncomingContext(ctx, bridge.OwnerMetadata)
	if len(sent) == 0 {
		return ctx
	}
	md, _ := metadata.FromIncomingContext(ctx)
	md.Delete(bridge.OwnerMetadata)
	ctx = metadata.NewIncomingContext(ctx, md)
	if len(sent) == 1 && keys.IsLabel(sent[0]) && len(sent[0]) <= maxOwner {
		ctx = core.ContextWithOwner(ctx, sent[0])
	}
	return ctx
}
