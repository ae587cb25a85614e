//go:build unix

package main_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	program "github.com/lockkit/lockkit/core/cmd/lockkit"
)

// patience limits the time for which a test waits for an event.
const patience = 60 * time.Second

// asProgram makes this test binary run the program, with the race detector if the tests
// use it. TestBuilt tests the program that go build produces.
const asProgram = "LOCKKIT_TEST_AS_PROGRAM"

// answerLimit is the environment variable that sets the program's answerLimit.
const answerLimit = "LOCKKIT_TEST_ANSWER_LIMIT"

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "worker":
		os.Exit(work(os.Args[2:]))
	case len(os.Args) > 1 && os.Args[1] == program.GuardName, os.Getenv(asProgram) != "":
		if d, err := time.ParseDuration(os.Getenv(answerLimit)); err == nil {
			program.SetAnswerLimit(d)
		}
		program.Main()
	}
	program.Quiet()
	_ = os.Unsetenv("LOCKKIT_STORE")
	flag.Parse()
	// Most tests wait for a lease to expire, so two processors can run six tests at
	// once.
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = flag.Set("test.parallel", "6")
	}
	// A shell makes its background processes ignore SIGINT, and children inherit that.
	// Notify makes this process and its children react to SIGINT again.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT)
	os.Exit(m.Run())
}

func redisURL(addr string) string { return "redis://" + addr }

// call is the result of a run of the program.
type call struct {
	code      int
	out, errs string
}

// lockkit returns a command that runs the program with these arguments, with the store
// in its environment. The command is not started yet.
func lockkit(t testing.TB, store string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(self(t), args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "LOCKKIT_STORE="+store, "GORACE=atexit_sleep_ms=0")
	return cmd
}

func self(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// do calls the program in the test's process, with the store in a flag. The command run
// starts processes, so do runs it in a process of its own.
func do(t testing.TB, store string, args ...string) call {
	t.Helper()
	if len(args) == 0 || args[0] == "run" {
		return end(t, lockkit(t, store, args...))
	}
	if store != "" {
		args = slices.Insert(slices.Clone(args), 1, "-store", store)
	}
	var out, errs bytes.Buffer
	code := program.Lockkit(args, &out, &errs)
	return call{code, out.String(), errs.String()}
}

// served runs the program until it exits. If the server answers too late, on a busy
// machine, the program exits with code 69. served repeats such a run, at most 20 runs
// in all, unless the run may have changed something.
func served(t testing.TB, store string, args ...string) call {
	t.Helper()
	c := do(t, store, args...)
	for tries := 1; tries < 20 && c.code == 69; tries++ {
		if looks := args[0] == "ls" || args[0] == "show"; !looks && !strings.Contains(c.errs, "no connection") && !strings.Contains(c.errs, "not sent") {
			break
		}
		c = do(t, store, args...)
	}
	return c
}

func end(t testing.TB, cmd *exec.Cmd) call {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = patience
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return call{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// want checks the exit code, and that stderr contains text. If text is empty, stderr
// must be empty.
func (c call) want(t testing.TB, code int, text string) {
	t.Helper()
	if c.code != code || !strings.Contains(c.errs, text) || text == "" && c.errs != "" {
		t.Errorf("exit code %d and %q, want %d and %q", c.code, c.errs, code, text)
	}
}
