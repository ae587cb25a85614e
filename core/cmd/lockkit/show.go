package main

import (
	"context"
	"fmt"
	"io"

	"github.com/lockkit/lockkit/core/inspect"
)

var showCommand = command{"show", "show [flags] KEY                       show the holds and waiters of KEY", show}

const showHelp = `usage: lockkit show [flags] KEY

It shows the holds, the waiters and the recorded run of KEY. For each hold it prints the
ID for revoke, the time since the grant, the time until the hold expires unless it is
extended, the mode, and the process. If the process has written a card (core.WithCard),
its host and PID are shown, and otherwise its ID. With -plain and for Redisson's holds,
no process is shown. A store cannot distinguish a reader from a single permit. The card
does, some seconds later.

  held   a hold                          waits  a waiter, in order of arrival
  kept   the key stays taken, without    run    an unfinished run
         a holder                        done   a finished run with its response

` + storeFlagsHelp + `  -json          print a JSON object on each line

exit code:
   0  success, even if KEY is free
  69  the store did not answer, or refused a right
  64  a flag, KEY or the store's URL is wrong, or the store does not support the request
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
			_, _ = fmt.Fprintln(o.out, "free: no holds, no waiters and no run")
		default:
			_, _ = fmt.Fprint(o.out, heading)
		}
		o.write(rows)
		return nil
	})
}
