// Command servers runs the tests of the stores, and of what stands on them, on the servers and
// versions that users run.
//
//	make matrix                    # every server of the table
//	make matrix SERVER=valkey-9    # those whose names begin so
//	make matrix SHORT=1            # the ends of each kind with fewer tests, as in CI
//	make matrix WRITE=1            # writes what has run into core/SERVERS.md
//	make matrix FRESH=1            # unpacks the servers again: a suite of Debian moves
//
// It unpacks servers of other suites of Debian, of npm and of PyPI into the user's cache, and
// changes nothing else on the machine. What it cannot get it names, and goes on. It fails if the
// tests fail on a version of the table, or if it could run on none.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

func main() {
	if err := command(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		os.Exit(1)
	}
}

// command is the whole program. It runs in the directory of the module.
func command(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("servers", flag.ContinueOnError)
	only := flags.String("server", "", "only those whose names begin so, separated by commas")
	short := flags.Bool("short", false, "the ends of each kind, and fewer tests")
	write := flags.Bool("write", false, "write the table into core/SERVERS.md")
	fresh := flags.Bool("fresh", false, "unpack servers again that are in the cache")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "lockkit-servers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL is run by a user of its own
		return err
	}
	r := &runner{cache: filepath.Join(cache, "lockkit", "servers"), dir: dir, short: *short, fresh: *fresh, out: &lines{to: out}, binaries: make(map[string]string)}
	picked := pick(*only, *short)
	out = r.out
	if len(picked) == 0 {
		return fmt.Errorf("there is no server %q", *only)
	}
	var ran []result
	var faults []error
	var mu sync.Mutex
	var wg sync.WaitGroup
	turns := make(chan struct{}, 1)
	if *short { // one package each, whose tests mostly wait
		turns = make(chan struct{}, 2)
	}
	for _, s := range picked {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			res, err := r.run(s)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				fmt.Fprintf(out, "%s: cannot be had: %v\n", s.name, err)
				return
			}
			ran = append(ran, res)
			if *write {
				faults = append(faults, writePage("core/SERVERS.md", res, time.Now().UTC()))
			}
			switch {
			case res.failed == 0:
			case s.recorded(res.version):
				faults = append(faults, fmt.Errorf("%s: %d tests failed on %s", s.name, res.failed, res.version))
			default:
				fmt.Fprintf(out, "%s: %d tests failed on %s, which the table does not have\n", s.name, res.failed, res.version)
			}
		})
	}
	wg.Wait()
	if len(ran) == 0 {
		faults = append(faults, errors.New("no server could be had"))
	}
	fmt.Fprintln(out)
	for _, res := range ran {
		fmt.Fprintln(out, res)
	}
	return errors.Join(faults...)
}

// pick returns the servers whose names begin with one of these, separated by commas. Without
// names it returns all, and for a short run the ends of each kind.
func pick(names string, short bool) (picked []server) {
	for _, s := range servers {
		wanted := names == "" && (s.end || !short)
		for name := range strings.SplitSeq(names, ",") {
			wanted = wanted || name != "" && strings.HasPrefix(s.name, name)
		}
		if wanted {
			picked = append(picked, s)
		}
	}
	return picked
}

// lines lets several write to one.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

// Write implements io.Writer.
func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(text)
}
