package testserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// template is the data directory of a new server. It is created once, and then copied.
type template struct {
	initialize func(dir string) error // creates dir/data
	as         func(*exec.Cmd) error  // makes a command run as the server's user

	mu   sync.Mutex
	done bool
	tar  *os.File // an unlinked file, so that nothing is left behind
	err  error
}

// copyTo creates dir/data by unpacking a tar file. The first call in a process
// initializes a directory and makes the tar file from it. Unpacking is much faster than
// initializing.
func (t *template) copyTo(dir string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.done {
		t.done = true
		t.tar, t.err = t.make()
	}
	if t.err != nil {
		return t.err
	}
	if _, err := t.tar.Seek(0, 0); err != nil {
		return err
	}
	return runAs(t.as, t.tar, "tar", "-xf", "-", "-C", dir)
}

func (t *template) make() (*os.File, error) {
	dir, err := os.MkdirTemp("", "testserver")
	if err != nil {
		return nil, err
	}
	defer removeDir(dir)
	if err := t.initialize(dir); err != nil {
		return nil, err
	}
	name := filepath.Join(dir, "data.tar")
	if err := runAs(t.as, nil, "tar", "-cf", name, "-C", dir, "data"); err != nil {
		return nil, err
	}
	return os.Open(name)
}

// runAs runs a command as the user that as selects, and waits until it exits.
func runAs(as func(*exec.Cmd) error, in *os.File, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	if err := as(cmd); err != nil {
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
