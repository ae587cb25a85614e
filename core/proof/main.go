// Command proof runs the tests that show the kit's promises and limits, and writes a
// report of them.
//
//	make proof                 # all that make test leaves out; installs servers, writes nothing
//	make proof PART=mutants    # some parts, by their names, separated by commas
//	make proof PART=all        # every test; writes REPORT.md, and the summary in README.md
//	LONG=1 make proof          # the same with its full counts, in hours
//
// Each part consists of some packages of tests. The tests report their counts through
// package tally, and the program adds them up. It fails if a test fails, if no test of a
// package passes, or if a test saw a violation.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// part is a group of packages with a common subject.
type part struct {
	name, about string
	packages    []string
	own         bool // the packages' own tests, which make test runs
	trials      bool // only own tests with more trials in the proof; PART=all runs all own tests
	swift       bool // a long run omits the race detector, which leaves time for more seeds
	wide        bool // its tests mostly wait, so more of them run in parallel than there are cores
}

var parts = []part{
	{name: "engine", about: "the engine, elections and locks by name, in virtual time", packages: []string{"core", "core/leader", "core/named"}, own: true},
	{name: "simulation", about: "many clients in random trouble, in virtual time, from a seed", packages: []string{"core/proof/sim"}, swift: true},
	{name: "models", about: "models of the dangerous parts in every state, with Spin, and their runs at a store", packages: []string{"core/proof/models"}},
	{name: "matrix", about: "each message with each fault", packages: []string{"core/proof/matrix"}},
	{name: "stores", about: "the contract of a store, and each store's own troubles", packages: []string{
		"core/store", "core/storetest", "core/memstore", "core/casstore", "core/redisstore", "core/redisstore/internal/pipeline", "core/redlock", "core/zkstore", "core/pgstore", "core/sqlstore/sqltest",
	}, own: true},
	{name: "programs", about: "the operators' page and command line, two examples, and the benchmarks' own tests", packages: []string{
		"core/inspect", "core/cmd/lockkit", "examples/observe", "examples/worker", "core/benchmarks",
	}, own: true},
	{name: "trials", about: "the packages' own tests that make more trials here than for make test", packages: []string{
		"core", "core/casstore", "core/once", "core/redisstore", "core/redisstore/internal/pipeline", "core/redlock", "core/zkstore", "core/pgstore", "core/sqlstore/sqltest", "core/inspect", "core/cmd/lockkit",
		"httpmw", "grpcmw", "grpcmw/connectmw", "taskmw", "taskmw/cronmw", "taskmw/watermillmw/brokers", "examples/observe", "examples/worker", "core/benchmarks",
	}, trials: true},
	{name: "processes", about: "real processes and servers that are killed, stopped, frozen and cut off", packages: []string{"core/proof/hazards"}},
	{name: "histories", about: "what eight processes did under a nemesis, judged by three oracles", packages: []string{"core/proof/histories"}},
	{name: "latency", about: "payments while servers are slow, messages are late or lost, and connections break", packages: []string{"core/proof/latency"}},
	{name: "middleware", about: "HTTP, gRPC, tasks, messages and scheduled jobs, answers that are kept, and the kit in other libraries", packages: []string{
		"core/once", "httpmw", "httpmw/stdmw", "httpmw/stdmw/frameworks", "httpmw/stdmw/frameworks/gozero", "httpmw/httpretry", "httpmw/httpretry/clients", "grpcmw", "grpcmw/connectmw", "taskmw", "taskmw/cronmw", "taskmw/watermillmw", "taskmw/watermillmw/brokers", "taskmw/watermillmw/brokers/kafka", "core/named/plugs",
	}, own: true},
	{name: "adapters", about: "every adapter in every trouble", packages: []string{"core/proof/adapters"}},
	{name: "neighbours", about: "plain keys, Redisson's locks and client-go's elections beside the real clients in Java, Python, JavaScript and Go", packages: []string{"core/proof/neighbours"}},
	{name: "mutants", about: "small mistakes in the kit, each of which a test has to notice", packages: []string{"core/proof/mutants"}, wide: true},
	{name: "soak", about: "a constant load with a nemesis, and what builds up", packages: []string{"core/proof/soak"}},
}

func main() {
	if err := command(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(1)
	}
}

// command runs the program. The working directory must be the directory of the module.
func command(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("proof", flag.ContinueOnError)
	names := flags.String("run", "", "only these parts, separated by commas; all is every test")
	report := flags.String("report", "core/proof/REPORT.md", "a run of all parts writes the report into this `file`")
	readme := flags.String("readme", "core/proof/README.md", "and the summary into this `file`, between the markers of proof")
	from := flags.String("from", "", "run nothing, report of what this `directory` has of an earlier run")
	keep := flags.String("keep", "", "keep what the run writes in this `directory`, for -from")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r := &record{Start: time.Now().UTC(), Long: os.Getenv("LONG") == "1"}
	if *names == "" && r.Long {
		*names = "all"
	}
	picked, err := pick(*names)
	if err != nil {
		return err
	}
	if *from != "" {
		err = r.load(*from)
	} else {
		err = r.run(picked, *keep, out)
	}
	if err != nil {
		return err
	}
	mutants, err := readMutants("core/proof/mutants")
	if err != nil {
		return err
	}
	if *names == "all" {
		err = errors.Join(os.WriteFile(*report, []byte(r.report(mutants)), 0o644), r.intoReadme(*readme))
	} else {
		fmt.Fprint(out, "\n", r.report(nil))
	}
	return errors.Join(err, r.fault())
}

// pick returns the parts with these names. Without names it returns the parts that make
// test omits. For "all" it returns parts that together contain every test.
func pick(names string) ([]part, error) {
	switch names {
	case "all":
		return slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return p.trials }), nil
	case "":
		return slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return p.own }), nil
	}
	var some []part
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no part %q", name)
		}
		some = append(some, parts[i])
	}
	return some, nil
}

// mutant is the report's row of a mutant.
type mutant struct{ name, breaks, hazard, test string }

// readMutants reads the first lines of the mutants' files.
func readMutants(dir string) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.mutant"))
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		m := mutant{name: strings.TrimSuffix(filepath.Base(file), ".mutant")}
		for line := range strings.Lines(string(text)) {
			word, rest, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch word {
			case "breaks":
				m.breaks = rest
			case "hazard":
				m.hazard = rest
			case "test":
				m.test = rest
			}
			if m.test != "" {
				break
			}
		}
		all = append(all, m)
	}
	return all, nil
}
