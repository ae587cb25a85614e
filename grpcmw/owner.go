package grpcmw

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/keys"
	"github.com/lockkit/lockkit/grpcmw/internal/bridge"
)

// maxOwner is the length of the longest owner that is taken, in bytes.
const maxOwner = 4096 // that of an owner of a hundred keys

// SendOwner makes the interceptor send the owner of the lease under which a call is
// made, core.LeaseFromContext. A method whose Lock has TakeOwner and the same key then
// joins the caller's hold instead of finding it busy. Calls under no lease are sent as
// they are. To join an outer lease, make the call under the context of that lease.
//
// The owner is a secret: while the hold lasts, nothing else is needed to join it. It is
// in the metadata "lockkit-owner" of every call that the interceptor makes, so name the
// methods with Methods, use TLS, and keep that metadata out of logs. A lease whose
// owner was sent is not passed on within its process.
func SendOwner() ClientOption {
	return func(g *client) { g.owner = true }
}

// TakeOwner makes the Lock join the hold of the caller, if the call was made with
// SendOwner and the hold has the key in the same store. The handler runs beside the
// caller's, with the same fencing token, and the key is free when both have returned.
// An owner that does not hold the key, or not any more, is ignored: the key is acquired
// as without an owner.
//
// Calls that the caller makes at the same time under one lease all join it. They
// exclude each other no more than the caller's own goroutines, and a repetition does
// not exclude its first try. Mount Idempotent outside if that matters.
//
// Nothing else than the owner is needed to join, and its text names the token that the
// handler sees: take it only from callers that are trusted with the lock, and with the
// token. The handler does not find the owner in the call's metadata, and so cannot pass
// it on by mistake.
func TakeOwner() Option {
	return func(g *config) {
		g.is("TakeOwner", forLock)
		g.owner = true
	}
}

// withOwner returns ctx with the owner of its lease in the outgoing metadata.
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

// takeOwner returns ctx with the owner that the caller has sent, which is no longer in
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
