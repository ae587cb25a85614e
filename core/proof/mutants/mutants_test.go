// Package mutants_test puts one small mistake at a time into the kit, and checks that a
// test notices it. A suite that passes with every mistake proves nothing.
//
// The files *.mutant contain the mistakes, see mutant. The tests apply the mistakes to
// the sources with go test -overlay, so the kit's code does not refer to them. One build
// has all mutants of a package's tests that can be switched on at run time, see
// switched. Each of the other mutants has a separate build. Each mutant must compile,
// and must make an assertion of the named test fail. Without the mutant, the same test
// must pass.
//
//	make proof PART=mutants                                    # all of them
//	go test ./core/proof/mutants -run 'TestMutants/no-margin'  # one
package mutants_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/proof/tally"
)

// limit is the time limit of one test, with or without a mutant. On a machine that is
// not busy, each test takes less than a minute, and most take some seconds.
const limit = 3 * time.Minute

func TestMutants(t *testing.T) {
	if !tally.Wanted() {
		t.Skip("it takes some minutes: make proof PART=mutants")
	}
	root, all := mutants(t)
	together := make(map[string]func() group)  // the builds with many mutants, by package
	without := make(map[string]func() outcome) // the same tests without a mutant
	for _, m := range all {
		if together[m.Package] == nil {
			dir, same := t.TempDir(), of(all, m.Package)
			together[m.Package] = sync.OnceValue(func() group { return newGroup(root, dir, same) })
			without[m.Package] = sync.OnceValue(func() outcome { return test(root, t.TempDir(), "", same...) })
		}
	}
	done := make([]bool, len(all))
	t.Cleanup(func() {
		f := tally.Facts{Part: "mutants", Faults: map[string]int{}, Violations: map[string]int{"mutants that nobody noticed": 0}}
		for i, m := range all {
			f.Runs++
			if done[i] {
				f.Faults[m.Name]++
			} else {
				f.Violations["mutants that nobody noticed"]++
			}
		}
		tally.Note(t, f)
	})
	for i, m := range all {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			g := together[m.Package]()
			if end := ending(g.without.output, m.Test); g.numbers[m] > 0 && (end == "PASS" || end == "SKIP") {
				done[i] = judge(t, m, g.without, func() outcome { return g.run(m) })
				return
			}
			t.Log("built by itself: it cannot be switched, or its test does not pass beside the switches")
			done[i] = judge(t, m, without[m.Package](), func() outcome { return alone(root, t.TempDir(), m) })
		})
	}
}

// judge stops the test with a failure, unless m is noticed or m's test skips. In these
// two cases it returns true.
func judge(t *testing.T, m *mutant, without outcome, with func() outcome) bool {
	switch ending(without.output, m.Test) {
	case "PASS":
	case "SKIP":
		t.Log("its test skips: a server is not installed")
		return true
	default:
		t.Fatalf("without the mutant %s: %s does not pass: %v\n%s", m.Package, m.Test, without.err, without.output)
	}
	o := with()
	err := o.err
	if err == nil {
		err = caught(o.output, m.Test)
	}
	if err != nil {
		t.Fatalf("%s\n%v: %s: %s\n%s", m.Breaks, err, m.Package, m.Test, o.output)
	}
	return true
}

// mutants returns the directory of the module and all mutants.
func mutants(t *testing.T) (root string, all []*mutant) {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if all, err = load("."); err != nil {
		t.Fatal(err)
	}
	if len(all) < 26 {
		t.Fatalf("there are %d mutants, want 26 at least", len(all))
	}
	return root, all
}

// of returns the mutants whose tests are in pkg.
func of(all []*mutant, pkg string) []*mutant {
	var some []*mutant
	for _, m := range all {
		if m.Package == pkg {
			some = append(some, m)
		}
	}
	return some
}

// outcome is the output of the tests of mutants, or the reason why they could not run.
type outcome struct {
	output string
	err    error
}

// group is a switched build of the mutants whose tests are in one package.
type group struct {
	root, bin string
	numbers   map[*mutant]int
	without   outcome // outcome of all their tests with no mutant switched on
}

// newGroup builds the group in dir. If the build fails, each mutant must be built alone,
// which shows the mutant that does not compile.
func newGroup(root, dir string, mutants []*mutant) group {
	g := group{root: root}
	b, err := newSwitched(root, mutants)
	if err != nil {
		return g
	}
	changed, err := b.changed()
	if err != nil {
		return g
	}
	name, err := overlay(root, dir, changed)
	if err != nil {
		return g
	}
	bin, o := build(root, dir, name, mutants[0].Package)
	if o.err != nil {
		g.without = o
		return g
	}
	g.bin, g.numbers = bin, b.numbers
	g.without = run(root, bin, 0, mutants...)
	return g
}

// run runs the test of m with m switched on.
func (g group) run(m *mutant) outcome { return run(g.root, g.bin, g.numbers[m], m) }

// alone builds a test program with only m, and runs m's test.
func alone(root, dir string, m *mutant) outcome {
	changed, err := m.apply(root)
	if err != nil {
		return outcome{err: err}
	}
	name, err := overlay(root, dir, changed)
	if err != nil {
		return outcome{err: err}
	}
	return test(root, dir, name, m)
}

// test builds the tests of mutants in dir and runs them. All the mutants' tests must be
// in one package.
func test(root, dir, overlay string, mutants ...*mutant) outcome {
	bin, o := build(root, dir, overlay, mutants[0].Package)
	if o.err != nil {
		return o
	}
	defer os.Remove(bin)
	return run(root, bin, 0, mutants...)
}

// build builds the tests of a package, with an overlay unless it is "". Building and
// running are separate steps, because a mutant that does not compile is invalid.
func build(root, dir, overlay, pkg string) (bin string, o outcome) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*limit)
	defer cancel()
	bin = filepath.Join(dir, "tests")
	args := []string{"test", "-c", "-ldflags=-s -w", "-o", bin}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, ".")...)
	cmd.Dir = filepath.Join(root, pkg) // may be a module of its own
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", outcome{string(output), fmt.Errorf("it does not compile: %w", err)}
	}
	return bin, outcome{}
}

// run runs the tests of mutants with one mutant switched on, or with none if on is 0.
func run(root, bin string, on int, mutants ...*mutant) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), 5*limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "-test.v", "-test.timeout", limit.String(), "-test.run", pattern(mutants...))
	cmd.Dir = filepath.Join(root, mutants[0].Package)
	cmd.Env = []string{tally.Asked + "=1", fmt.Sprintf("%s=%d", switchVar, on)}
	for _, e := range os.Environ() {
		// The tests need no full counts, and their facts are not part of the report.
		if !strings.HasPrefix(e, "LONG=") && !strings.HasPrefix(e, tally.File+"=") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	output, _ := cmd.CombinedOutput() // contains the result and its reason
	return outcome{output: string(output)}
}
