package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/inspect"
)

var lsCommand = command{"ls", "ls [flags] [NAME]                      list holds and waits", ls}

const lsHelp = `usage: lockkit ls [flags] [NAME]

It lists the holds and waits of more than 5 s, the oldest first, from the cards of the
processes (core.WithCard). A process writes its card every 10 s. With NAME, only the
locks of this name are listed.

With -all it walks over the whole store instead of the cards, and NAME is the part of a
key before the first ':'. On Redis this is a SCAN of the database, in steps of up to
1,000 keys with pauses. It includes the keys that are not locks. A million keys take
about a second of the server's time. The locks are in no particular order. A lock that
exists during the whole walk is listed at least once, and can be listed twice. Other
locks can be missed.

` + storeFlagsHelp + `  -held D        list only holds and waits of at least D (default 5s, with -all 0). With
                 -all also those whose time is not known
  -all           walk over the whole store
  -json          print a JSON object on each line

exit code:
   0  success
  69  the store did not answer, or refused a right
  64  a flag or the store's URL is wrong, or the store does not support the request
` + storeHelp

type listing struct {
	*operator
	all  bool
	held time.Duration
	name string // "" for all names
}

func ls(args []string, out, errs io.Writer) int {
	l := listing{operator: newOperator("ls", out, errs)}
	l.flags.BoolVar(&l.all, "all", false, "")
	l.flags.DurationVar(&l.held, "held", -1, "")
	if code, ok := l.arguments(args, lsHelp, 0, 1); !ok {
		return code
	}
	l.name = l.flags.Arg(0)
	return l.inspect(func(ctx context.Context, in *inspect.Inspector) error {
		if l.all {
			return l.walk(ctx, in)
		}
		return l.cards(ctx, in)
	})
}

func (l listing) cards(ctx context.Context, in *inspect.Inspector) error {
	o, err := in.Now(ctx)
	if errors.Is(err, core.ErrUnsupported) {
		return fmt.Errorf("%w; ls -all works without cards", err)
	}
	if err != nil {
		return err
	}
	if l.held < 0 {
		l.held = 5 * time.Second
	}
	var rows []row
	for _, list := range [][]inspect.Long{o.Held, o.Waiting} {
		for _, e := range list {
			if e.For < l.held || l.name != "" && e.Name != l.name {
				continue
			}
			r := row{State: "held", Key: e.Key, Name: e.Name, Hold: e.Hold, For: e.For.Milliseconds(), Trace: e.Trace, Mode: e.Mode, kind: shown(e.Mode)}
			if e.Waiting {
				r.State = "waits"
			}
			r.by(e.Process)
			rows = append(rows, r)
		}
	}
	if !l.json {
		_, _ = fmt.Fprintf(l.out, "processes with a card: %d (ls -all also lists the locks of other processes)\n", len(o.Processes))
		if len(rows) > 0 {
			_, _ = fmt.Fprint(l.out, heading)
		}
	}
	l.write(rows)
	return nil
}

const (
	pageLength    = 200
	progressEvery = 2 * time.Second
)

// walk lists the locks of the store, page by page. ctx limits the first page. The time
// of a walk depends on the size of the store, so each later page may take up to
// answerLimit.
func (l listing) walk(ctx context.Context, in *inspect.Inspector) error {
	found, reported := 0, time.Now()
	if !l.json {
		_, _ = fmt.Fprint(l.out, heading)
	}
	for after := ""; ; ctx = context.Background() {
		call, cancel := context.WithTimeout(ctx, answerLimit)
		page, next, err := in.List(call, after, pageLength)
		cancel()
		if err != nil {
			return fmt.Errorf("after %d keys: %w", found, err)
		}
		found += len(page)
		for _, lock := range page {
			if l.name != "" && lock.Name != l.name {
				continue
			}
			for _, r := range rowsOf(lock) {
				if l.held <= 0 || r.For == 0 || r.For >= l.held.Milliseconds() {
					l.write([]row{r})
				}
			}
		}
		if after = next; next == "" {
			return nil
		}
		if time.Since(reported) >= progressEvery {
			reported = time.Now()
			_, _ = fmt.Fprintf(l.errs, "lockkit: %d keys so far\n", found)
		}
	}
}
