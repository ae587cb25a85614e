package testserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// postgresDir is a tempDir of that user.
func postgresDir(t testing.TB) string {
	t.Helper()
	dir := tempDir(t)
	if err := give(dir); err != nil {
		t.Fatalf("testserver: %v", err)
	}
	return dir
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
	return runAsPostgres(template.tar, "tar", "-xf", "-", "-C", dir)
}

func initialize() (*os.File, error) {
	dir, err := os.MkdirTemp("", "testserver")
	if err != nil {
		return nil, err
	}
	defer removeDir(dir)
	if err := give(dir); err != nil {
		return nil, err
	}
	if err := runAsPostgres(nil, program("initdb"), "-D", filepath.Join(dir, "data"), "-U", "postgres", "-A", "trust",
		"-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1"); err != nil {
		return nil, err
	}
	if err := runAsPostgres(nil, "tar", "-cf", filepath.Join(dir, "data.tar"), "-C", dir, "data"); err != nil {
		return nil, err
	}
	return os.Open(filepath.Join(dir, "data.tar"))
}

func runAsPostgres(in *os.File, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	if err := asPostgres(cmd); err != nil {
		return err
	}
	EndWithParent(cmd)
	cmd.Dir = "/"
	if in != nil {
		cmd.Stdin = in
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(name), err, out)
	}
	return nil
}
