package connectmw

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/grpcmw"
)

// Commit stores response as the response to the call of ctx, in the caller's own
// transaction tx, like grpcmw.Commit. The handler's effect and its response are
// committed together, or neither is. Headers and trailers of the response are stored if
// grpcmw.KeepMetadata names them. A handler that returns bare messages passes
// connect.NewResponse(message).
//
// Commit fails like grpcmw.Commit, and with core.ErrInvalid if response is nil or has
// no protobuf message.
func Commit(ctx context.Context, tx once.Saver, response connect.AnyResponse) error {
	if response == nil {
		return fmt.Errorf("connectmw: commit: the response is nil: %w", core.ErrInvalid)
	}
	message, ok := response.Any().(proto.Message)
	if !ok {
		return fmt.Errorf("connectmw: commit: got a %T, want a protobuf message: %w", response.Any(), core.ErrInvalid)
	}
	for x, _ := ctx.Value(exchangeKey{}).(*exchange); x != nil; x = x.outer {
		x.response = response // the Idempotent can be in an outer exchange
	}
	return grpcmw.Commit(ctx, tx, message)
}
