//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/internal/words"
)

var runCommand = command{"run", "run [flags] KEY -- COMMAND [ARG...]    run a command under the lock of KEY", run}

const (
	tokenVariable = "LOCKKIT_TOKEN"
	ownerVariable = "LOCKKIT_OWNER"
)

const runHelp = `usage: lockkit run [flags] KEY -- COMMAND [ARG...]

It acquires the lock of KEY, runs COMMAND, and releases the lock when COMMAND has
exited. Meanwhile it extends the lock. If the extensions fail, it stops COMMAND before
another process can acquire the lock: by SIGTERM, then by SIGKILL.

` + storeFlagsHelp + `  -wait D        wait at most D for a busy lock (default 0: one attempt)
  -ttl D         if this machine crashes, the lock is free after at most D (default 30s)
  -shared        share the lock with other commands that use -shared
  -permits N/OF  take N of OF permits instead of the whole lock, such as 1/3
  -keep D        hold the lock until D after its grant, even if COMMAND exits earlier,
                 so that a job that several machines start runs once. If COMMAND did not
                 run, the lock is free
  -grace D       send SIGTERM earlier: D before SIGKILL (default 2.4 % of -ttl, at most
                 40 %)
  -join          join the lock whose owner is in LOCKKIT_OWNER, if the owner holds KEY.
                 COMMAND gets LOCKKIT_OWNER too. Its value is a secret

COMMAND is the first process of a new process group. Its children are in the group,
unless they change their group, like timeout and the jobs of an interactive shell.
lockkit passes SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 on to the whole
group. Processes that COMMAND leaves running are stopped before the lock is released. On
systems other than Linux, or if lockkit had children before, these are only the
processes of the group. A process that starts its own session (setsid) is not stopped.
If lockkit is killed, only the group is killed: use timeout --foreground. If lockkit is
stopped (SIGSTOP), the group is not stopped in time. Then only a resource that refuses
older tokens is safe. COMMAND cannot read from the terminal.

COMMAND gets the lock's fencing token in LOCKKIT_TOKEN. The token is greater than the
token of every earlier holder. With -shared or -permits there is no token.

The exit code is the exit code of COMMAND. If a signal ended COMMAND or the wait for the
lock, the exit code is 128 plus the signal's number. Other exit codes:
  75  the lock is busy; COMMAND did not run
  69  the store is unavailable; COMMAND did not run
  70  the lock was lost: COMMAND was stopped, had just exited, or did not run. Or a
      process of COMMAND cannot be killed
  64  a flag, KEY or the store's URL is wrong, or the store does not support the
      request; COMMAND did not run
 126  COMMAND cannot be run
 127  COMMAND does not exist
` + storeHelp

// errStuck reports that the lock is not released, because a process of the command is
// still running.
var errStuck = errors.New("a process of the command cannot be killed; the lock is not released, and expires after its TTL")

type plan struct {
	where storeFlags
	key   string
	path  string   // path of the command
	args  []string // including the command's name
	ttl   time.Duration
	grace time.Duration // 0: all the time that the lease leaves
	join  bool
	opts  []core.AcquireOption
}

func run(args []string, out, errs io.Writer) int {
	p, code, ok := newPlan(args, out, errs)
	if !ok {
		return code
	}
	s, err := p.where.open(p.ttl)
	if err != nil {
		return complain(errs, status(err), err)
	}
	locks, err := core.New(s.Store, core.WithObserver(core.Observers()))
	if err == nil {
		_, err = adapter.Check(locks, p.opts...)
	}
	if err != nil {
		return complain(errs, status(err), err)
	}
	code, err = p.run(locks)
	if err != nil {
		complain(errs, code, err)
	}
	if errors.Is(err, errStuck) {
		return code // the lock has to expire, so neither the lease nor the session may end now
	}
	// A grant whose reply was lost must be released now, because the process exits.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = locks.Close(ctx)
	s.close()
	return code
}

// newPlan reads the arguments. If there is nothing to run, newPlan returns the exit code
// and false.
func newPlan(args []string, out, errs io.Writer) (p *plan, code int, ok bool) {
	p = &plan{}
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	p.where.register(flags)
	wait := flags.Duration("wait", 0, "")
	flags.DurationVar(&p.ttl, "ttl", 30*time.Second, "")
	shared := flags.Bool("shared", false, "")
	permits := flags.String("permits", "", "")
	keep := flags.Duration("keep", 0, "")
	flags.DurationVar(&p.grace, "grace", 0, "")
	flags.BoolVar(&p.join, "join", false, "")
	if code, ok := parse(flags, args, runHelp, out, errs); !ok {
		return nil, code, false
	}
	refuse := func(format string, args ...any) (*plan, int, bool) {
		return nil, complain(errs, exitUsage, fmt.Errorf(format+"; see lockkit run -h", args...)), false
	}
	rest := flags.Args()
	if len(rest) < 3 || rest[1] != "--" {
		return refuse("usage: lockkit run [flags] KEY -- COMMAND [ARG...]")
	}
	p.key, p.args = rest[0], rest[2:]
	p.opts = append(p.opts, core.Wait(*wait), core.TTL(p.ttl), core.KeepFor(*keep))
	if *shared {
		p.opts = append(p.opts, core.Shared())
	}
	if *permits != "" {
		n, of, ok := strings.Cut(*permits, "/")
		some, errN := strconv.Atoi(n)
		all, errOf := strconv.Atoi(of)
		if !ok || errN != nil || errOf != nil {
			return refuse("-permits %q is not of the form N/OF, such as 1/3", *permits)
		}
		p.opts = append(p.opts, core.Permits(some, all))
	}
	if p.grace < 0 || p.grace > p.ttl*2/5 {
		return refuse("-grace: %s is out of range (0 to %s for a TTL of %s)", words.Duration(p.grace), words.Duration(p.ttl*2/5), words.Duration(p.ttl))
	}
	var err error
	if p.path, err = exec.LookPath(p.args[0]); err != nil {
		return nil, complain(errs, cannotRun(err), err), false
	}
	return p, 0, true
}

// cannotRun returns the exit code for a command that cannot be started.
func cannotRun(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exitNoFile
	}
	return exitNoExec
}

// run runs the command under the lock. It returns the exit code and the error for the
// user, which is nil if there is nothing to report.
func (p *plan) run(locks *core.Locker) (int, error) {
	signals := make(chan os.Signal, 16)
	listen(signals)
	defer signal.Stop(signals)
	lease, sig, err := p.acquire(locks, signals)
	switch {
	case err == nil && sig != 0: // the lock was granted despite the signal
		_ = lease.Withdraw(context.Background())
		return exitSignal + int(sig), nil
	case sig != 0:
		return exitSignal + int(sig), nil
	case err != nil:
		return status(err), err
	}
	t, j, code, err := p.start(lease, signals)
	switch {
	case errors.Is(err, errStuck):
		return code, err
	case j == nil: // the command has not run, so -keep has no effect
		_ = lease.Withdraw(context.Background())
		return code, err
	case err != nil:
		_ = lease.Release(context.Background())
		return code, err
	}
	lost, stopped := t.watch(j, signals)
	if !stopped {
		return exitLost, errStuck
	}
	code = j.exit()
	switch err := lease.Release(context.Background()); {
	case lost || errors.Is(err, core.ErrLost):
		return exitLost, fmt.Errorf("%w; the command exited with code %d", core.ErrLost, code)
	case err != nil:
		return code, fmt.Errorf("%w; the lock expires after its TTL", err)
	}
	return code, nil
}

// start starts the command. It returns a job if the command was started, even with an
// error. If it returns no job, code is the exit code.
func (p *plan) start(lease *core.Lease, signals <-chan os.Signal) (t *trust, j *job, code int, err error) {
	// A lock that its holder has passed on lasts for a short time, until an extension.
	// If the extension fails, the lock can still be held, with less room for -grace.
	var short error
	if time.Until(lease.Deadline()) < p.ttl*2/3 {
		short = lease.Extend(context.Background(), p.ttl)
	}
	for {
		select {
		case s := <-signals:
			if slices.Contains(handed, s) {
				return nil, nil, exitSignal + int(s.(syscall.Signal)), nil
			}
			continue
		default:
		}
		break
	}
	t = newTrust(lease, p.grace)
	switch {
	case t.span <= 0 || p.grace <= t.span/2:
	case short != nil:
		return nil, nil, status(short), fmt.Errorf("%w; the command did not run", short)
	default:
		return nil, nil, exitUsage, fmt.Errorf("-grace: %s exceeds half of the lock's validity of %s (at most %s)",
			words.Duration(p.grace), words.Duration(t.span.Round(time.Millisecond)), words.Duration((t.span / 2).Round(time.Millisecond)))
	}
	j, err = startJob(p.path, p.args, p.environ(lease), t.holds)
	switch {
	case errors.Is(err, errStuck):
		code = exitLost
	case errors.Is(err, core.ErrLost):
		code, err = exitLost, fmt.Errorf("%w; the command did not run", core.ErrLost)
	case err != nil && j != nil:
		code = exitNoExec
	case err != nil:
		code = cannotRun(err)
	}
	return t, j, code, err
}

// listen subscribes to the signals for the command, and to the signals that would kill
// or suspend this process. Ignored signals stay ignored.
func listen(signals chan<- os.Signal) {
	for _, s := range append(slices.Clone(handed), syscall.SIGTSTP, syscall.SIGPIPE) {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
}

var handed = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// acquire acquires the lock, or returns the signal that ended the wait.
func (p *plan) acquire(locks *core.Locker, signals <-chan os.Signal) (lease *core.Lease, sig syscall.Signal, err error) {
	// The lease depends on ctx, so only a signal during the acquire cancels ctx.
	ctx, cancel := context.WithCancel(context.Background())
	if owner := os.Getenv(ownerVariable); p.join && owner != "" {
		ctx = core.ContextWithOwner(ctx, owner)
	}
	done := make(chan struct{})
	over := make(chan syscall.Signal, 1)
	go func() {
		defer close(over)
		for {
			select {
			case <-done:
				return
			case s := <-signals:
				if slices.Contains(handed, s) {
					cancel()
					over <- s.(syscall.Signal)
					return
				}
			}
		}
	}()
	lease, err = locks.Acquire(ctx, p.key, p.opts...)
	close(done)
	return lease, <-over, err
}

// environ returns the command's environment. It omits the token and the owner of a lock
// under which this process may run.
func (p *plan) environ(lease *core.Lease) []string {
	env := without(os.Environ(), tokenVariable, ownerVariable)
	if token := lease.Token(); token > 0 {
		env = append(env, tokenVariable+"="+strconv.FormatUint(token, 10))
	}
	if p.join {
		env = append(env, ownerVariable+"="+lease.Owner())
	}
	return env
}

func without(env []string, names ...string) []string {
	return slices.DeleteFunc(env, func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.Contains(names, name)
	})
}
