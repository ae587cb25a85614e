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

var releaseCommand = command{"release", "release -now [flags] KEY HOLD          free KEY at once: there can be two holders", release}

const releaseHelp = `usage: lockkit release -now [flags] KEY HOLD

It releases the hold of KEY that has the ID HOLD, and KEY is free at once. Its holder
learns of that with its next extension, up to a third of its TTL later, or when it is no
longer paused or cut off. Until then there can be two holders, and only a resource that
refuses older tokens is safe. lockkit revoke has no such risk.

` + storeFlagsHelp + `  -now           required
  -yes           do not ask for HOLD again
  -json          a JSON object: {"hold": "...", "ended": true}

exit code: 0 the hold is released, 70 there is no such hold, and nothing has changed, 69
the store did not answer or refused a right, 64 usage, HOLD was not repeated, or the
store cannot do that
` + storeHelp

const releaseRisk = `Its holder may go on for a third of its TTL, and longer if it is paused or cut off.
Another one can have the key meanwhile. lockkit revoke has no such risk.
Type the ID of the hold again to release it now: `

func release(args []string, out, errs io.Writer) int {
	o := newOperator("release", out, errs)
	now := o.flags.Bool("now", false, "")
	yes := o.flags.Bool("yes", false, "")
	if code, ok := o.arguments(args, releaseHelp, 2, 2); !ok {
		return code
	}
	if !*now {
		return complain(errs, exitUsage, errors.New("release needs -now: there can be two holders after it; lockkit revoke has no such risk"))
	}
	if !*yes {
		_, _ = fmt.Fprint(errs, releaseRisk)
		line, _ := bufio.NewReader(io.LimitReader(os.Stdin, 1<<10)).ReadString('\n')
		if strings.TrimSpace(line) != o.flags.Arg(1) {
			_, _ = fmt.Fprintln(errs)
			return complain(errs, exitUsage, errors.New("this is not the ID of the hold; nothing was released"))
		}
	}
	return o.end((*inspect.Inspector).ReleaseNow, "the hold is released; the key is free")
}
