package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/inspect"
)

var revokeCommand = command{"revoke", "revoke [flags] KEY HOLD                remove a hold; KEY stays taken for the rest of it", revoke}

const revokeHelp = `usage: lockkit revoke [flags] KEY HOLD

It removes the hold of KEY that has the ID HOLD. ls and show print the IDs. KEY stays
taken for the rest of the hold. So the holder is notified of the loss, or no longer
trusts its hold, before another process can acquire KEY.

` + storeFlagsHelp + `  -json          print a JSON object: {"hold": "...", "ended": true}

exit code:
   0  the hold is revoked
  70  KEY has no such hold, and nothing has changed
  69  the store did not answer, or refused a right
  64  a flag, KEY, HOLD or the store's URL is wrong, or the store does not support the
      request
` + storeHelp

func revoke(args []string, out, errs io.Writer) int {
	o := newOperator("revoke", out, errs)
	if code, ok := o.arguments(args, revokeHelp, 2, 2); !ok {
		return code
	}
	return o.end((*inspect.Inspector).Revoke, "the hold is revoked; the key stays taken for the rest of the hold")
}

// end removes the hold that the arguments name.
func (o *operator) end(how func(in *inspect.Inspector, ctx context.Context, key, hold string) error, done string) int {
	hold := o.flags.Arg(1)
	return o.inspect(func(ctx context.Context, in *inspect.Inspector) error {
		switch err := how(in, ctx, o.flags.Arg(0), hold); {
		case errors.Is(err, core.ErrLost):
			return fmt.Errorf("the key has no such hold, and nothing has changed: %w", core.ErrLost)
		case err != nil && !errors.Is(err, core.ErrInvalid) && !errors.Is(err, core.ErrUnsupported) && !errors.Is(err, core.ErrUnavailable):
			return fmt.Errorf("unknown whether the hold was removed; run the command again to find out: %w", err)
		case err != nil:
			return err
		}
		if o.json {
			writeJSON(o.out, struct {
				Hold  string `json:"hold"`
				Ended bool   `json:"ended"`
			}{hold, true})
			return nil
		}
		_, _ = fmt.Fprintln(o.out, done)
		return nil
	})
}
