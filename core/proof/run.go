package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/proof/tally"
)

// record is a run, with the facts that its tests reported.
type record struct {
	Start    time.Time
	Took     time.Duration
	Long     bool
	Race     bool
	CPUs     int
	Results  []result
	Versions map[string]string

	facts []tally.Facts
}

// result is the outcome of one package's tests.
type result struct {
	Part, Package           string
	Passed, Failed, Skipped int
	Fault                   string `json:",omitempty"` // a failure outside of the tests
	Took                    time.Duration
}

const (
	tallyFile  = "tally.jsonl"
	recordFile = "record.json"
)

// side is the number of packages whose trials run at once. The trials are the packages'
// own tests. They mostly wait for servers, and also pass on a busy machine.
const side = 2

// run runs the parts and prints the outcome of each package. Except in the part trials, a
// package runs alone, because tests with many processes need the machine for themselves.
func (r *record) run(picked []part, dir string, out io.Writer) (err error) {
	if dir == "" {
		if dir, err = os.MkdirTemp("", "lockkit-proof-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, tallyFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	r.Race = exec.Command("go", "build", "-race", "runtime/race").Run() == nil
	r.CPUs, r.Versions = runtime.NumCPU(), versions()
	var args [][]string // of go test, for each result
	alone := make(map[string]bool)
	for _, p := range picked {
		alone[p.name] = !p.trials
		for _, pkg := range p.packages {
			some, err := r.arguments(p, pkg)
			if err != nil {
				return err
			}
			r.Results, args = append(r.Results, result{Part: p.name, Package: pkg}), append(args, some)
		}
	}
	var (
		started  = make(chan struct{}, side)
		all      sync.WaitGroup
		printing sync.Mutex
	)
	for i := range r.Results {
		if alone[r.Results[i].Part] {
			all.Wait()
		}
		started <- struct{}{}
		all.Go(func() {
			defer func() { <-started }()
			res, failed := &r.Results[i], new(bytes.Buffer)
			r.test(res, args[i], filepath.Join(dir, tallyFile), failed)
			printing.Lock()
			defer printing.Unlock()
			fmt.Fprintf(out, "%s: %s\n%s    %d passed, %d failed, %d skipped %s (%v)\n",
				res.Part, res.Package, failed, res.Passed, res.Failed, res.Skipped, res.Fault, res.Took.Round(time.Second))
		})
		if alone[r.Results[i].Part] {
			all.Wait()
		}
	}
	all.Wait()
	r.Took = time.Since(r.Start)
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, recordFile), text, 0o644); err != nil {
		return err
	}
	return r.load(dir)
}

func (r *record) arguments(p part, pkg string) ([]string, error) {
	run := "."
	if p.trials {
		var err error
		if run, err = trials(pkg); err != nil {
			return nil, err
		}
	}
	args := []string{"-run", run}
	if r.Race && !(p.swift && r.Long) {
		// as in the Makefile
		args = append(args, "-race", "-gcflags=modernc.org/...lib...=-race=false")
	}
	if p.wide {
		args = append(args, "-parallel", strconv.Itoa(2*r.CPUs))
	}
	return args, nil
}

// trials returns the pattern of the tests in the directory dir that call Trials,
// AllTrials, ProofOnly or ProofOrMatrix of package tally.
func trials(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return "", err
	}
	var names []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return "", err
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !asks(f) {
				continue
			}
			if !strings.HasPrefix(f.Name.Name, "Test") {
				return "", fmt.Errorf("%s: %s asks package tally how much to do; only a test may", name, f.Name.Name)
			}
			names = append(names, f.Name.Name)
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("no test in %s makes more trials for the proof", dir)
	}
	return "^(" + strings.Join(names, "|") + ")$", nil
}

// asks reports whether f calls a function of tally that depends on the proof.
func asks(f *ast.FuncDecl) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			pkg, _ := sel.X.(*ast.Ident)
			found = found || pkg != nil && pkg.Name == "tally" && slices.Contains([]string{"Trials", "AllTrials", "ProofOnly", "ProofOrMatrix"}, sel.Sel.Name)
		}
		return true
	})
	return found
}

// test runs the tests of res's package with additional arguments of go test, and prints
// the output of the failed ones.
func (r *record) test(res *result, more []string, tallyPath string, out io.Writer) {
	start := time.Now()
	defer func() { res.Took = time.Since(start) }()
	timeout := "30m"
	if r.Long {
		timeout = "24h"
	}
	cmd := exec.Command("go", append([]string{"test", "-json", "-count=1", "-shuffle=on", "-timeout", timeout}, more...)...)
	cmd.Dir = res.Package // the package can be in a nested module
	cmd.Env = append(os.Environ(), tally.File+"="+tallyPath, tally.Asked+"=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		res.Fault = err.Error()
		return
	}
	res.read(pipe, out)
	if err := cmd.Wait(); err != nil && res.Failed == 0 {
		res.Fault = fmt.Sprintf("%v %s", err, strings.TrimSpace(stderr.String()))
	}
}

// read counts the tests in the output of go test -json. A test with cases counts once,
// and each of its cases also counts.
func (res *result) read(in io.Reader, out io.Writer) {
	said := make(map[string][]string)
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		switch {
		case e.Action == "output":
			said[e.Test] = append(said[e.Test], e.Output)
			continue
		case e.Test == "":
			if e.Action == "fail" && res.Failed == 0 {
				res.Fault = "failed outside of its tests"
				fmt.Fprint(out, strings.Join(said[""], ""))
			}
			continue
		case e.Action == "pass":
			res.Passed++
		case e.Action == "skip":
			res.Skipped++
		case e.Action == "fail":
			res.Failed++
			fmt.Fprint(out, strings.Join(said[e.Test], ""))
		default:
			continue
		}
		delete(said, e.Test)
	}
}

func (r *record) load(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, r); err != nil {
		return err
	}
	text, err = os.ReadFile(filepath.Join(dir, tallyFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	r.facts = nil
	for line := range bytes.Lines(text) {
		var f tally.Facts
		if err := json.Unmarshal(line, &f); err != nil {
			return fmt.Errorf("%s: %w", tallyFile, err)
		}
		r.facts = append(r.facts, f)
		for program, v := range f.Versions {
			r.Versions[program] = v
		}
	}
	return nil
}

func versions() map[string]string {
	v := map[string]string{"Go": strings.TrimPrefix(runtime.Version(), "go")}
	for name, module := range map[string]string{
		"go-redis": "github.com/redis/go-redis/v9", "go-zookeeper": "github.com/go-zookeeper/zk", "pgx": "github.com/jackc/pgx/v5",
		"go-sql-driver": "github.com/go-sql-driver/mysql", "sqlite": "modernc.org/sqlite",
		"gin": "github.com/gin-gonic/gin", "grpc-go": "google.golang.org/grpc", "asynq": "github.com/hibiken/asynq",
	} {
		if text, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", module).Output(); err == nil {
			v[name] = strings.TrimPrefix(strings.TrimSpace(string(text)), "v")
		}
	}
	return v
}
