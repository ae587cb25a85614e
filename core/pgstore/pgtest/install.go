package pgtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

// Require skips the test if there is no PostgreSQL, or fails it if the
// environment says LOCKKIT_REQUIRE_SERVERS=1.
func Require(t testing.TB) {
	t.Helper()
	require(t, "initdb", "PostgreSQL is not installed (apt-get install postgresql, or brew install postgresql)")
}

// RequirePooler is Require for pgbouncer.
func RequirePooler(t testing.TB) {
	t.Helper()
	Require(t)
	require(t, "pgbouncer", "pgbouncer is not installed (apt-get install pgbouncer, or brew install pgbouncer)")
}

func require(t testing.TB, name, hint string) {
	t.Helper()
	if program(name) != "" {
		return
	}
	if os.Getenv("LOCKKIT_REQUIRE_SERVERS") == "1" {
		t.Fatal("pgtest: " + hint)
	}
	t.Skip(hint)
}

// program finds a program of PostgreSQL, which Debian does not put where others
// are. The newest version wins.
func program(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	all = append(all, "/usr/sbin/"+name)
	slices.SortFunc(all, func(a, b string) int { return major(b) - major(a) })
	for _, path := range all {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

func major(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// as makes cmd run as a user that PostgreSQL accepts: it refuses to be run by
// root.
func as(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return err
	}
	uid, errU := strconv.ParseUint(u.Uid, 10, 32)
	gid, errG := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(errU, errG); err != nil {
		return err
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return nil
}

// tempDir returns a directory for that user, which is removed after the test.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := makeDir()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() { removeDir(dir) })
	return dir
}

func makeDir() (string, error) {
	dir, err := os.MkdirTemp("", "pgtest")
	if err != nil || os.Getuid() != 0 {
		return dir, err
	}
	cmd := exec.Command("true")
	if err := as(cmd); err != nil {
		return dir, err
	}
	who := cmd.SysProcAttr.Credential
	return dir, os.Chown(dir, int(who.Uid), int(who.Gid))
}

// removeDir removes a directory to which a process that is just ending may still
// write.
func removeDir(dir string) {
	for range 100 {
		if os.RemoveAll(dir) == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// template is the data directory of a new server, made once.
var template struct {
	sync.Mutex
	done bool
	tar  *os.File // without a name, so that nothing is left behind
	err  error
}

// newData makes dir/data. All but the first of a test binary are copies, which
// are made ten times as fast.
func newData(dir string) error {
	template.Lock()
	defer template.Unlock()
	if !template.done {
		template.done = true
		template.tar, template.err = initialize()
	}
	if template.err != nil {
		return template.err
	}
	if _, err := template.tar.Seek(0, 0); err != nil {
		return err
	}
	return run(template.tar, "tar", "-xf", "-", "-C", dir)
}

func initialize() (*os.File, error) {
	dir, err := makeDir()
	if err != nil {
		return nil, err
	}
	defer removeDir(dir)
	if err := run(nil, program("initdb"), "-D", filepath.Join(dir, "data"), "-U", "postgres", "-A", "trust",
		"-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1"); err != nil {
		return nil, err
	}
	if err := run(nil, "tar", "-cf", filepath.Join(dir, "data.tar"), "-C", dir, "data"); err != nil {
		return nil, err
	}
	return os.Open(filepath.Join(dir, "data.tar"))
}

func run(in *os.File, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	if err := as(cmd); err != nil {
		return err
	}
	testserver.EndWithParent(cmd)
	cmd.Dir = "/"
	if in != nil {
		cmd.Stdin = in
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(name), err, out)
	}
	return nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
