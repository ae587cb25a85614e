package grpcmw

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
)

// executionKey is the context key of the execution of the innermost Idempotent.
type executionKey struct{}

// Commit stores reply as the response to the call of ctx, in the caller's own
// transaction tx, as once.Commit does. The handler's effect and its response are
// committed together, or neither is. The handler makes its reply and sets the metadata
// that KeepMetadata names. It calls Commit as the last statement of the transaction.
// Then it commits the transaction and returns the reply. The client gets the committed
// reply, whatever the handler returns.
//
// Commit fails like once.Commit. Without an Idempotent around the handler, and for a
// reply that cannot be stored, it fails with core.ErrInvalid before anything is sent. A
// reply cannot be stored if it is larger than AnswerLimit, has an unregistered type or
// more than 64 KiB of metadata to store, or is refused by KeepIf. Do not pass the ctx
// of a once.Do inside the handler: Commit would store the reply as the response of that
// run.
func Commit(ctx context.Context, tx once.Saver, reply proto.Message) error {
	e, ok := ctx.Value(executionKey{}).(*execution)
	if !ok {
		return fmt.Errorf("grpcmw: commit: there is no Idempotent around the handler: %w", core.ErrInvalid)
	}
	k := Kept{Method: e.c.name, Reply: reply, Status: status.New(codes.OK, ""), ByDefault: true}
	k.Header, k.Trailer = e.set.noted()
	value, err := e.encode(&k)
	if err == nil && e.keepIf != nil && !e.keepIf(k) {
		err = errNotKept
	}
	if err != nil {
		return fmt.Errorf("%w: %w", err, core.ErrInvalid)
	}
	return once.Commit(ctx, tx, once.Answer{Value: value})
}

// uncommitted returns the refusal of a call whose reply is not known to be committed.
func uncommitted(c *call, lock string, err error) Refusal {
	return Refusal{
		Code: codes.Unavailable, Reason: ReasonUnavailable, Method: c.name, Lock: lock, RetryAfter: pause(0), Err: err,
		Message: "the reply was not committed, as far as is known; repeat the call with its idempotency key",
	}
}
