package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

// server is a version of a server that the kit supports. Its name is its kind and its
// series.
type server struct {
	name string
	kind *kind
	from source
	end  bool   // part of a short run
	skip string // -test.skip, for features that this build lacks
}

// series returns the prefix of the server's versions.
func (s server) series() string {
	_, series, _ := strings.Cut(s.name, "-")
	return series
}

// recorded reports whether a version belongs to the series.
func (s server) recorded(version string) bool { return strings.HasPrefix(version+".", s.series()+".") }

// kind contains the settings that all versions of a server share.
type kind struct {
	title    string
	programs []program
	public   bool // runs as another user
	jars     bool // a Java program
	suites   []suite
}

// program is a program of a server: its name in the directory for tests, its path in the
// server's root, and arguments that are added to the caller's arguments. In these
// arguments, ROOT stands for the server's root, and BIN for the directory for tests.
type program struct {
	name, path, args string
	script           bool // run by the machine's shell
}

// suite is a package of tests, without the tests that -test.skip omits.
type suite struct {
	pkg, skip string
	run       string // -test.run of a whole run; "": all tests
	short     string // -test.run of a short run; none: no test
}

// none is a pattern that matches no test.
const none = "^$"

// runner unpacks servers and runs tests on them.
type runner struct {
	cache, dir   string
	short, fresh bool
	out          io.Writer

	building sync.Mutex
	binaries map[string]string // compiled tests, by package
}

type result struct {
	server                  server
	version                 string
	passed, failed, skipped int
	took                    time.Duration
}

func (r result) String() string {
	verdict := "passes"
	if r.failed > 0 {
		verdict = "FAILS"
	}
	return fmt.Sprintf("%s %s: %s: %d passed, %d failed, %d skipped (%v)", r.server.kind.title, r.version, verdict,
		r.passed, r.failed, r.skipped, r.took.Round(time.Second))
}

// run runs the tests on a server. It returns an error if the server cannot be obtained.
func (r *runner) run(s server) (result, error) {
	res := result{server: s}
	bin, err := r.prepare(s)
	if err != nil {
		return res, err
	}
	if res.version, err = s.kind.version(bin); err != nil {
		return res, err
	}
	fmt.Fprintf(r.out, "%s: %s %s\n", s.name, s.kind.title, res.version)
	begun := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	turns := make(chan struct{}, 2) // tests with servers mostly wait
	for _, u := range s.kind.suites {
		if r.short && u.short == none {
			continue
		}
		binary, err := r.binary(u.pkg)
		if err != nil {
			res.failed++
			fmt.Fprintf(r.out, "%s: %s: %v\n", s.name, u.pkg, err)
			continue
		}
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			begun := time.Now()
			u.skip = strings.Trim(u.skip+"|"+s.skip, "|")
			passed, failed, skipped, log := r.test(u, binary, bin)
			mu.Lock()
			defer mu.Unlock()
			res.passed, res.failed, res.skipped = res.passed+passed, res.failed+failed, res.skipped+skipped
			fmt.Fprintf(r.out, "    %s: %s: %d passed, %d failed, %d skipped (%v)\n", s.name, u.pkg, passed, failed, skipped, time.Since(begun).Round(time.Second))
			if failed > 0 {
				fmt.Fprintln(r.out, log)
			}
		})
	}
	wg.Wait()
	res.took = time.Since(begun)
	return res, nil
}

func (r *runner) binary(pkg string) (string, error) {
	r.building.Lock()
	defer r.building.Unlock()
	if file := r.binaries[pkg]; file != "" {
		return file, nil
	}
	file := filepath.Join(r.dir, strings.ReplaceAll(pkg, "/", "-")+".test")
	if err := call(pkg, "go", "test", "-c", "-o", file, "."); err != nil {
		return "", err
	}
	r.binaries[pkg] = file
	return file, nil
}

var verdict = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): .*`)

// test runs the tests of a package. log has the names of the failed tests, and the name
// of the file with the whole output.
func (r *runner) test(u suite, binary, bin string) (passed, failed, skipped int, log string) {
	args := []string{"-test.v", "-test.timeout=20m"}
	if u.skip != "" {
		args = append(args, "-test.skip="+u.skip)
	}
	if r.short {
		args = append(args, "-test.short", "-test.run="+u.short, "-test.timeout=15m")
	} else if u.run != "" {
		args = append(args, "-test.run="+u.run)
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir = u.pkg
	cmd.Env = append(os.Environ(), "LOCKKIT_REQUIRE_SERVERS=1", testserver.ServersDir+"="+bin)
	out, err := cmd.CombinedOutput()
	counts := make(map[string]int)
	for _, m := range verdict.FindAllSubmatch(out, -1) {
		counts[string(m[1])]++
	}
	if passed, failed, skipped = counts["PASS"], counts["FAIL"], counts["SKIP"]; err == nil {
		return passed, failed, skipped, ""
	}
	name := filepath.Join(os.TempDir(), "lockkit-"+filepath.Base(bin)+"-"+strings.ReplaceAll(u.pkg, "/", "-")+".log")
	err = errors.Join(err, os.WriteFile(name, out, 0o644))
	var b strings.Builder
	fmt.Fprintf(&b, "    %v: all of it is in %s\n", err, name)
	for _, m := range verdict.FindAll(out, -1) {
		if bytes.Contains(m, []byte("FAIL")) {
			fmt.Fprintf(&b, "    %s\n", m)
		}
	}
	return passed, max(failed, 1), skipped, b.String()
}

// prepare returns a directory with the programs of a server, for testserver.ServersDir.
// For the servers of the machine it returns "".
func (r *runner) prepare(s server) (string, error) {
	if _, ok := s.from.(installed); ok {
		return "", nil
	}
	root := filepath.Join(r.cache, s.name)
	if r.fresh {
		if err := os.RemoveAll(root); err != nil {
			return "", err
		}
	}
	if _, err := os.Stat(root); err != nil {
		if err := r.unpack(s, root); err != nil {
			return "", err
		}
	}
	bin := filepath.Join(r.dir, s.name)
	if err := os.Mkdir(bin, 0o755); err != nil {
		return "", err
	}
	if s.kind.public { // other users cannot read a user's cache
		shown := filepath.Join(bin, "root")
		if err := call(".", "cp", "-a", root, shown); err != nil {
			return "", err
		}
		if err := call(".", "chmod", "-R", "a+rX", shown); err != nil {
			return "", err
		}
		root = shown
	}
	if s.kind.jars {
		return bin, classPath(root, filepath.Join(bin, "zookeeper.classpath"))
	}
	for _, p := range s.kind.programs {
		if err := p.wrap(root, bin); err != nil {
			return "", err
		}
	}
	return bin, nil
}

func (r *runner) unpack(s server, root string) error {
	if err := os.MkdirAll(r.cache, 0o755); err != nil {
		return err
	}
	draft, err := os.MkdirTemp(r.cache, "draft-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(draft)
	begun := time.Now()
	if err := s.from.unpack(draft); err != nil {
		return err
	}
	fmt.Fprintf(r.out, "%s: unpacked from %s (%v)\n", s.name, s.from, time.Since(begun).Round(time.Second))
	return os.Rename(draft, root)
}

// loader is the program that runs another program with the libraries of its own root.
const loader = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"

// wrap writes into bin a program that replaces itself by the program in root. The process
// keeps its ID, by which tests identify servers.
func (p program) wrap(root, bin string) error {
	path, file := filepath.Join(root, p.path), filepath.Join(bin, p.name)
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if info.IsDir() {
		return os.Symlink(path, file)
	}
	start := fmt.Sprintf("%q", path)
	if _, err := os.Stat(filepath.Join(root, loader)); err == nil && !p.script {
		start = fmt.Sprintf("%q --argv0 %q --library-path %q %q", filepath.Join(root, loader), filepath.Base(p.name), filepath.Join(root, filepath.Dir(loader)), path)
	}
	args := strings.NewReplacer("ROOT", root, "BIN", bin).Replace(p.args)
	return os.WriteFile(file, []byte("#!/bin/sh\nexec "+start+` "$@" `+args+"\n"), 0o755)
}

// javaDir is Debian's directory for Java libraries.
const javaDir = "usr/share/java"

// zooKeeperJars are the libraries that ZooKeeper's server needs, and zookeeper.jar.
// zookeeper.jar is last, because its manifest names libraries of the machine. The
// libraries before it take precedence over those.
var zooKeeperJars = []string{
	"zookeeper-jute", "commons-cli", "commons-io", "findbugs-annotations", "jackson-annotations", "jackson-core", "jackson-databind",
	"metrics-core", "netty-*", "slf4j-api", "slf4j-simple", "snappy-java", "zookeeper",
}

// classPath writes the class path of the ZooKeeper in root into file.
func classPath(root, file string) error {
	var all []string
	for _, name := range zooKeeperJars {
		jars, err := filepath.Glob(filepath.Join(root, javaDir, name+".jar"))
		if err != nil {
			return err
		}
		all = append(all, jars...)
	}
	return os.WriteFile(file, []byte(strings.Join(all, ":")+"\n"), 0o644)
}

var versionText = regexp.MustCompile(`(?:v=|Ver |PostgreSQL\) |zookeeper-)(\d+(?:\.\d+)+)`)

// version returns the version of the server in bin, or of the machine's server if bin is
// "".
func (k *kind) version(bin string) (string, error) {
	command, name := `PATH="$1:$PATH:/usr/sbin:$(echo /usr/lib/postgresql/*/bin | tr ' ' :)"; "$2" --version`, ""
	if !k.jars {
		name = k.programs[0].name
	} else {
		command = `ls -d $(sed 's/.*://; s/[.]jar$/-[0-9]*/' "$1/zookeeper.classpath" || echo /usr/share/java/zookeeper-[0-9]*) | sed 's,.*/,,'`
	}
	text, err := exec.Command("sh", "-c", command, "sh", bin, name).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", command, err)
	}
	m := versionText.FindSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("no version in %.200q", text)
	}
	return string(m[1]), nil
}
