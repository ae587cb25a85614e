package grpcmw

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/keys"
	"github.com/lockkit/lockkit/grpcmw/internal/bridge"
)

// maxOwner is the maximum length of an accepted owner, in bytes.
const maxOwner = 4096 // the length of an owner of a hundred keys

// SendOwner makes the interceptor send the owner of the lease that
// core.LeaseFromContext finds in a call's context. A method whose Lock has TakeOwner
// and the same key then joins the caller's hold instead of finding the key busy. Calls
// without a lease are sent unchanged. To let a call join an outer lease, make the call
// under the context of that lease.
//
// The owner is a secret: during the hold, anyone who knows the owner can join the hold.
// The owner is in the metadata "lockkit-owner" of the calls that the interceptor
// covers. So name the methods with Methods, use TLS, and keep that metadata out of
// logs. A hold whose owner was sent is not passed on to another lease of the same
// process.
func SendOwner() ClientOption {
	return func(g *client) { g.owner = true }
}

// TakeOwner makes the Lock join the hold of a caller with SendOwner. The hold has to
// have the key in the same store. The handler then runs at the same time as the
// caller's handler, with the same fencing token. The key is free when both handlers
// have returned. If the owner does not hold the key, the key is acquired as without an
// owner.
//
// All simultaneous calls that the caller makes under one lease join the hold. Such
// calls do not exclude each other, and a repetition does not exclude its first try. To
// run a repetition only once, mount Idempotent outside the Lock.
//
// A caller needs only the owner to join, and the owner's text has the token that the
// handler sees. So use TakeOwner only for callers that you trust with the lock and with
// the token. TakeOwner removes the owner from the call's metadata, so the handler
// cannot pass the owner on by mistake. Inner rules and the handler join further holds
// of the same owner, as under core.ContextWithOwner.
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

// takeOwner returns ctx with the owner that the caller has sent, and removes the owner
// from the incoming metadata.
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
