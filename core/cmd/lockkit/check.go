package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/visible"
)

var checkCommand = command{"check", "check [flags]                          check whether the servers are fit for locks", check}

const checkHelp = `usage: lockkit check [flags]

It checks whether the store's servers are fit for locks, and tries them with a key of
its own. On ZooKeeper it acquires and releases a lock. It prints each fault on a line,
with its remedy.

` + storeFlagsHelp + `  -json          print one JSON object: {"fit": false, "faults": ["..."]}

exit code:
   0  fit
   1  unfit
  69  a server did not answer
  64  a flag or the store's URL is wrong
` + storeHelp

const checkLimit = 30 * time.Second

// verdict is the output of check -json.
type verdict struct {
	Fit    bool     `json:"fit"`
	Faults []string `json:"faults"`
}

func check(args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	var where storeFlags
	where.register(flags)
	asJSON := flags.Bool("json", false, "")
	if code, ok := parse(flags, args, checkHelp, out, errs); !ok {
		return code
	}
	if flags.NArg() > 0 {
		return complain(errs, exitUsage, errors.New("check takes no arguments; see lockkit check -h"))
	}
	s, err := where.open(10 * time.Second)
	if err != nil {
		return complain(errs, status(err), err)
	}
	defer s.close()
	ctx, cancel := context.WithTimeout(context.Background(), checkLimit)
	defer cancel()
	err = s.check(ctx)
	v := verdict{Fit: err == nil, Faults: faults(err)}
	if *asJSON {
		writeJSON(out, v)
	} else if v.Fit {
		_, _ = fmt.Fprintln(out, "fit")
	}
	if !*asJSON {
		for _, f := range v.Faults {
			_, _ = fmt.Fprintln(out, visible.Text(f))
		}
	}
	switch {
	case v.Fit:
		return exitOK
	case len(v.Faults) == 1 && silentServer(err):
		return exitDown
	}
	return exitUnfit
}

// faults returns the faults that a check joined in err, each on one line, without package
// and operation names.
func faults(err error) []string {
	all := []string{}
	for _, err := range joined(err) {
		text := err.Error()
		if _, fault, ok := strings.Cut(text, "store: check: "); ok {
			text = fault
		}
		all = append(all, oneLine(internals.ReplaceAllString(text, "")))
	}
	return all
}

// joined returns the errors that errors.Join joined in err, or err itself. It does not
// split the text of a client's error, which can have several lines too.
func joined(err error) (all []error) {
	if err == nil {
		return nil
	}
	parts, ok := err.(interface{ Unwrap() []error })
	if !ok || errors.Join(parts.Unwrap()...).Error() != err.Error() {
		return []error{err}
	}
	for _, part := range parts.Unwrap() {
		all = append(all, joined(part)...)
	}
	return all
}

// silentServer reports whether the server did not answer at all. A server that refuses
// a request does answer, so it counts as unfit.
func silentServer(err error) bool {
	var fromRedis redis.Error
	var fromPostgres *pgconn.PgError
	var fromMySQL *mysql.MySQLError
	return errors.Is(err, core.ErrUnavailable) && !errors.As(err, &fromRedis) && !errors.As(err, &fromPostgres) && !errors.As(err, &fromMySQL) && !fromSQLite(err)
}

// parse reads the flags of a command. If nothing remains to be done, parse returns the
// exit code and false.
func parse(flags *flag.FlagSet, args []string, help string, out, errs io.Writer) (code int, ok bool) {
	flags.SetOutput(io.Discard)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		_, _ = fmt.Fprint(out, help)
		return exitOK, false
	case err != nil:
		return complain(errs, exitUsage, fmt.Errorf("%w; see lockkit %s -h", err, flags.Name())), false
	}
	return exitOK, true
}
