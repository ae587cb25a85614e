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

// Commit saves response as the answer of the call of ctx, in the caller's own transaction tx,
// as grpcmw.Commit does: its effect and its answer are committed together, or neither is. Its
// headers and trailers are saved where grpcmw.KeepMetadata names them. A handler without
// responses passes connect.NewResponse(message).
//
// It fails as grpcmw.Commit does, and with core.ErrInvalid if response is nil.
func Commit(ctx context.Context, tx once.Saver, response connect.AnyResponse) error {
	if response == nil {
		return fmt.Errorf("connectmw: commit: the response is nil: %w", core.ErrInvalid)
	}
	message, ok := response.Any().(proto.Message)
	if !ok {
		return fmt.Errorf("connectmw: commit: the message is a %T, which is no protobuf message: %w", response.Any(), core.ErrInvalid)
	}
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		x.response = response
	}
	return grpcmw.Commit(ctx, tx, message)
}
