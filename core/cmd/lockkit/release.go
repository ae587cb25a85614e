package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/lockkit/lockkit/core/inspect"
)

var releaseCommand = command{"release", "release -now [flags] KEY HOLD          free KEY at once; there can be two holders", release}

const releaseHelp = `usage: lockkit release -now [flags] KEY HOLD

It removes the hold of KEY that has the ID HOLD, and frees KEY at once. The holder is
notified of the loss by its next extension, after up to a third of its TTL, or when it
is no longer paused or cut off. Until then there can be two holders, and only a resource
that refuses older tokens is safe. lockkit revoke has no such risk.

` + storeFlagsHelp + `  -now           required
  -yes           do not ask for HOLD again
  -json          print a JSON object: {"hold": "...", "ended": true}

exit code:
   0  the hold is released
  70  KEY has no such hold, and nothing has changed
  69  the store did not answer, or refused a right
  64  a flag, KEY, HOLD or the store's URL is wrong, HOLD was not repeated, or the store
      does not support the request
` + storeHelp

const releaseRisk = `The holder may continue for up to a third of its TTL, and longer if it is paused or cut
off. Another process can acquire the key meanwhile. lockkit revoke has no such risk.
To release the hold now, type its ID again: `

func release(args []string, out, errs io.Writer) int {
	o := newOperator("release", out, errs)
	now := o.flags.Bool("now", false, "")
	yes := o.flags.Bool("yes", false, "")
	if code, ok := o.arguments(args, releaseHelp, 2, 2); !ok {
		return code
	}
	if !*now {
		return complain(errs, exitUsage, errors.New("release needs -now, because there can be two holders; lockkit revoke has no such risk"))
	}
	if !*yes {
		_, _ = fmt.Fprint(errs, releaseRisk)
		line, _ := bufio.NewReader(io.LimitReader(os.Stdin, 1<<10)).ReadString('\n')
		if strings.TrimSpace(line) != o.flags.Arg(1) {
			_, _ = fmt.Fprintln(errs)
			return complain(errs, exitUsage, errors.New("the typed ID is not HOLD; nothing was released"))
		}
	}
	return o.end((*inspect.Inspector).ReleaseNow, "the hold is released; the key is free")
}
