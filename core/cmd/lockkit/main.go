// Command lockkit runs commands under locks of the kit, shows their holders, removes
// holds, and reports why a server is unfit for locks. README.md in this directory has
// examples.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/visible"
)

// The exit codes from 64 to 75 are defined in sysexits.h.
const (
	exitOK     = 0
	exitUnfit  = 1  // of check
	exitUsage  = 64 // EX_USAGE
	exitDown   = 69 // EX_UNAVAILABLE
	exitLost   = 70 // EX_SOFTWARE
	exitBusy   = 75 // EX_TEMPFAIL
	exitNoExec = 126
	exitNoFile = 127
	exitSignal = 128 // plus the signal's number
)

// command is a command of the program. Each command has its own file.
type command struct {
	name, brief string
	main        func(args []string, out, errs io.Writer) int // returns the exit code
}

var commands = []command{runCommand, lsCommand, showCommand, revokeCommand, releaseCommand, checkCommand}

func main() {
	quiet()
	os.Exit(lockkit(os.Args[1:], os.Stdout, os.Stderr))
}

// quiet silences the clients, which write to stderr by default.
func quiet() {
	logging.Disable()
	_ = mysql.SetLogger(silent{})
}

func lockkit(args []string, out, errs io.Writer) int {
	if len(args) == 0 {
		_, _ = fmt.Fprint(errs, usage())
		return exitUsage
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		_, _ = fmt.Fprint(out, usage())
		return exitOK
	case guardName:
		return guardMain(os.Stdin)
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.main(args[1:], out, errs)
		}
	}
	return complain(errs, exitUsage, fmt.Errorf("unknown command %q; see lockkit help", args[0]))
}

func usage() string {
	var b strings.Builder
	b.WriteString("lockkit runs commands under distributed locks, shows the holds of locks, and removes\nholds.\n\n")
	for _, c := range commands {
		fmt.Fprintf(&b, "  lockkit %s\n", c.brief)
	}
	b.WriteString("\nlockkit COMMAND -h shows the flags and exit codes of a command.\n" + storeHelp)
	return b.String()
}

// internals matches names of the kit, its packages and their operations in the text of an
// error.
var internals = regexp.MustCompile(`\b(?:(?:lockkit|core|inspect|redisstore|pgstore|sqlstore|casstore|zkstore|redlock): ` +
	`(?:(?:now|list|look|revoke|cards): )?)+`)

// complain writes err on one line, without internals, and returns code. An error of the
// kit contains no key, owner or token. It may contain text of a server, which must not
// control the terminal.
func complain(errs io.Writer, code int, err error) int {
	text := internals.ReplaceAllString(err.Error(), "")
	_, _ = fmt.Fprintf(errs, "lockkit: %s\n", visible.Text(oneLine(text)))
	return code
}

// oneLine returns the lines of text on one line. A line that is the same as the line
// before it appears once. pgx lists an address for the attempt with TLS, and again for
// the attempt without TLS.
func oneLine(text string) string {
	var b strings.Builder
	last := ""
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line == last {
			continue
		}
		switch {
		case strings.HasSuffix(last, ":"):
			b.WriteString(" ")
		case last != "":
			b.WriteString("; ")
		}
		b.WriteString(line)
		last = line
	}
	return b.String()
}

// status returns the exit code for an error of the kit.
func status(err error) int {
	switch {
	case errors.Is(err, core.ErrInvalid), errors.Is(err, core.ErrUnsupported):
		return exitUsage
	case errors.Is(err, core.ErrBusy):
		return exitBusy
	case errors.Is(err, core.ErrLost):
		return exitLost
	}
	return exitDown
}
