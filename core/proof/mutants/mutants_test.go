// Package mutants_test breaks the kit in small ways, one at a time, and shows
// that a test notices each: a suite that no mistake makes fail proves nothing.
//
// The files *.mutant hold the mistakes, see mutant. They are laid over the sources
// with go test -overlay, so nothing in the kit knows of them. Each has to compile,
// to fail the test that it names, by an assertion of that, and to be the reason:
// without it the test passes.
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

// limit is for one test, with or without a mutant. None takes more than some
// seconds, but for a busy machine.
const limit = 2 * time.Minute

func TestMutants(t *testing.T) {
	if !tally.Wanted() {
		t.Skip("it takes a quarter of an hour: make proof PART=mutants")
	}
	root, all := mutants(t)
	fit := make(map[string]func() outcome) // of the tests without a mutant, by package
	for _, m := range all {
		if fit[m.Package] == nil {
			dir := t.TempDir()
			fit[m.Package] = sync.OnceValue(func() outcome { return test(root, dir, "", of(all, m.Package)...) })
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
			without := fit[m.Package]()
			switch ending(without.output, m.Test) {
			case "PASS":
			case "SKIP":
				done[i] = true
				t.Skip("its test skips: a server is not installed")
			default:
				t.Fatalf("without the mutant %s: %s does not pass: %v\n%s", m.Package, m.Test, without.err, without.output)
			}
			dir := t.TempDir()
			overlay, err := m.overlay(root, dir)
			if err != nil {
				t.Fatal(err)
			}
			with := test(root, dir, overlay, m)
			err = with.err
			if err == nil {
				err = caught(with.output, m.Test)
			}
			if err != nil {
				t.Fatalf("%s\n%v: %s: %s\n%s", m.Breaks, err, m.Package, m.Test, with.output)
			}
			done[i] = true
		})
	}
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

// of are the mutants whose tests are in pkg.
func of(all []*mutant, pkg string) []*mutant {
	var some []*mutant
	for _, m := range all {
		if m.Package == pkg {
			some = append(some, m)
		}
	}
	return some
}

// outcome is what the tests of mutants print, or why they could not be run.
type outcome struct {
	output string
	err    error
}

// test runs the tests of mutants, which are in one package, with an overlay if
// there is one. It writes into dir.
func test(root, dir, overlay string, mutants ...*mutant) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), 5*limit)
	defer cancel()
	pkg, bin := mutants[0].Package, filepath.Join(dir, "tests")
	args := []string{"test", "-c", "-ldflags=-s -w", "-o", bin}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	// Two steps, since a mutant that does not compile is none.
	build := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		return outcome{string(output), fmt.Errorf("it does not compile: %w", err)}
	}
	run := exec.CommandContext(ctx, bin, "-test.v", "-test.timeout", limit.String(), "-test.run", pattern(mutants...))
	run.Dir = filepath.Join(root, pkg)
	run.Env = []string{tally.Asked + "=1"}
	for _, e := range os.Environ() {
		// Full counts are not needed, and what a mutant does is no news.
		if !strings.HasPrefix(e, "LONG=") && !strings.HasPrefix(e, tally.File+"=") {
			run.Env = append(run.Env, e)
		}
	}
	output, _ := run.CombinedOutput() // which says whether it failed, and of what
	_ = os.Remove(bin)
	return outcome{output: string(output)}
}
