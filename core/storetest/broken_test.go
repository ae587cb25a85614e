package storetest_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
)

// flaw breaks the sound store in one way.
type flaw struct {
	name   string
	caught []string // the cases that must fail, named group/case
	breaks func(s *tampered)
}

// flawEnv is an environment variable with the name of a flaw. A child process of this
// test binary with flawEnv runs the suite on a store with this flaw. The suite must run
// in another process, because a failing suite fails its process.
const flawEnv = "LOCKKIT_STORETEST_FLAW"

const (
	sound   = "none"
	tooAble = "does what it is said to refuse" // a flaw of the Harness, not of the store
)

func flaws() []flaw {
	return slices.Concat(idleFlaws, holdFlaws, extendFlaws, ownerFlaws, releaseFlaws, waitFlaws, placeFlaws,
		tokenFlaws, stepFlaws, watchFlaws, checkFlaws, recordFlaws, savingFlaws, undoFlaws, keyFlaws,
		lookFlaws, revokeFlaws, cardFlaws)
}

// TestFlawed runs the suite in the child process. Without flawEnv it does nothing.
func TestFlawed(t *testing.T) {
	h := storetest.Harness{Unit: 100 * time.Millisecond, Wrap: synctest.Test}
	name := os.Getenv(flawEnv)
	breaks := func(*tampered) {}
	switch i := slices.IndexFunc(flaws(), func(f flaw) bool { return f.name == name }); {
	case name == "":
		return
	case i >= 0:
		breaks = flaws()[i].breaks
	case name == tooAble:
		h.Without = tooMuch
	case name != sound:
		t.Fatalf("no flaw is called %q", name)
	}
	h.New = func(t testing.TB) func() store.Store {
		s := &tampered{Store: memstore.New(), over: t.Context()}
		breaks(s)
		return func() store.Store { return s }
	}
	storetest.Run(t, h)
}

func TestRun_BrokenStores(t *testing.T) {
	t.Parallel()
	want, out := runSuite(sound)
	for c, result := range want {
		if result != "PASS" {
			t.Errorf("%q: %s on the sound store", c, result)
		}
	}
	if t.Failed() || len(want) == 0 {
		t.Fatalf("output of the child process:\n%s", out)
	}
	t.Run("a store that", func(t *testing.T) {
		for _, f := range flaws() {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				f.check(t, want)
			})
		}
	})
	caught := make(map[string]bool)
	for _, f := range flaws()[len(idleFlaws):] {
		for _, c := range f.caught {
			caught[c] = true
		}
	}
	for c := range want {
		if !caught[c] {
			t.Errorf("%q is named for none of the broken stores", c)
		}
	}
}

// check runs only the cases f.caught, on a store with the flaw f. It fails t unless each
// of these cases fails.
func (f flaw) check(t *testing.T, want map[string]string) {
	t.Helper()
	if len(f.caught) == 0 {
		t.Error("no case is named that catches it")
	}
	got, out := runSuite(f.name, f.caught...)
	for _, c := range f.caught {
		if want[c] == "" {
			t.Errorf("there is no case %q", c)
		} else if got[c] != "FAIL" {
			t.Errorf("%q: %q, want FAIL; output of the child process:\n%s", c, got[c], out)
		}
	}
}

// progress matches lines of the child's output that do not help to explain a failure.
var progress = regexp.MustCompile(`(?m)^(=== | *--- PASS: ).*\n`)

var resultLine = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL): TestFlawed/([^/ ]+/[^ ]+) \(`)

// runSuite runs the given cases of the suite on a store with the flaw. If no cases are
// given, runSuite runs all cases. It returns the result of each case, and the output.
func runSuite(flaw string, cases ...string) (results map[string]string, out []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	run := "^TestFlawed$"
	if len(cases) > 0 {
		var groups, names []string
		for _, c := range cases {
			group, name, _ := strings.Cut(c, "/")
			groups = append(groups, regexp.QuoteMeta(group))
			names = append(names, regexp.QuoteMeta(name))
		}
		run += "/^(" + strings.Join(groups, "|") + ")$/^(" + strings.Join(names, "|") + ")$"
	}
	child := exec.CommandContext(ctx, os.Args[0], "-test.v", "-test.run="+run)
	// By default a child with the race detector waits a second before it exits.
	child.Env = append(os.Environ(), flawEnv+"="+flaw, "GORACE=atexit_sleep_ms=0")
	out, _ = child.CombinedOutput()
	results = make(map[string]string)
	for _, m := range resultLine.FindAllStringSubmatch(string(out), -1) {
		results[strings.ReplaceAll(m[2], "_", " ")] = m[1]
	}
	return results, progress.ReplaceAll(out, nil)
}

// idleFlaws lists flaws of stores that answer every claim in the same way.
var idleFlaws = []flaw{
	{"grants everything", []string{
		"admission/exclusive hold keeps everybody out",
	}, func(s *tampered) {
		s.acquire = func(_ context.Context, c store.Claim) (store.Grant, error) {
			return store.Grant{Owner: c.Owner}, nil
		}
		s.extend = extendEach(func(context.Context, store.Claim) error { return nil })
		s.release = func(context.Context, store.Claim) error { return nil }
	}},
	{"grants nothing", []string{
		"acquire/acquire and release a free key",
	}, func(s *tampered) {
		s.acquire = func(_ context.Context, c store.Claim) (store.Grant, error) {
			return store.Grant{}, &store.BusyError{Key: c.Key, RetryAfter: time.Millisecond}
		}
		s.extend = extendEach(func(context.Context, store.Claim) error { return store.ErrLost })
		s.release = func(context.Context, store.Claim) error { return store.ErrLost }
	}},
}
