package main

import (
	"context"
	"fmt"
	"io"

	"github.com/lockkit/lockkit/core/inspect"
)

var showCommand = command{"show", "show [flags] KEY                       show the holds and waiters of KEY", show}

const showHelp = `usage: lockkit show [flags] KEY

It shows the holds, the waiters and the recorded run of KEY. Of each hold it prints the
ID, which revoke takes, how long it has been held, how long it lasts if it is not
extended, its mode, and its process. That is host and PID if the process has written a
card (core.WithCard), otherwise its ID, and nothing with -plain or of Redisson's holds.
A reader and a single permit are the same to a store; the card distinguishes them some
seconds later.

  held   a hold                          waits  a waiter, in order of arrival
  kept   a key that stays taken until    run    a run that has begun
         then, without a holder          done   a run with its result

` + storeFlagsHelp + `  -json          a JSON object on each line

exit code: 0, also for a free key; 69 the store did not answer or refused a
right, 64 usage, or the store cannot do that
` + storeHelp

func show(args []string, out, errs io.Writer) int {
	o := newOperator("show", out, errs)
	if code, ok := o.arguments(args, showHelp, 1, 1); !ok {
		return code
	}
	return o.inspect(func(ctx context.Context, in *inspect.Inspector) error {
		l, err := in.Look(ctx, o.flags.Arg(0))
		if err != nil {
			return err
		}
		rows := rowsOf(l)
		switch {
		case o.json:
		case len(rows) == 0:
			_, _ = fmt.Fprintln(o.out, "free: nothing holds it, and nothing waits for it")
		default:
			_, _ = fmt.Fprint(o.out, heading)
		}
		o.write(rows)
		return nil
	})
}
