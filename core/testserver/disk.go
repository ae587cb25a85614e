package testserver

import (
	_ "embed"
	"os"
	"sync"
	"testing"
)

// Disk simulates the disk of the servers that are started with it. The test fills it and
// makes room again. On a full disk a write fails if it makes a file longer. A Disk is
// safe for concurrent use.
type Disk struct {
	t     testing.TB
	write func(full byte)
	env   []string
}

// NewDisk returns a disk that is not full. The files whose paths contain roomy, such as
// "/pg_wal/", are on another disk that is never full. With "" there are no such files.
// NewDisk needs Linux, and a C compiler to build the library that makes the servers'
// writes fail. Without them it skips or fails the test like RequireRedis.
func NewDisk(t testing.TB, roomy string) *Disk {
	t.Helper()
	dir := tempDir(t)
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL reads it as another user
		t.Fatalf("testserver: disk: %v", err)
	}
	control, env := preload(t, dir, "TESTSERVER_DISK", "a server's disk cannot be full", diskLibrary)
	d := &Disk{t: t, env: append(env, "TESTSERVER_ROOMY="+roomy)}
	d.write = func(full byte) {
		t.Helper()
		if _, err := control.WriteAt([]byte{full}, 0); err != nil {
			t.Fatalf("testserver: disk: %v", err)
		}
	}
	d.write(0)
	return d
}

// StartMariaDB starts a server on this disk, like the function StartMariaDB.
func (d *Disk) StartMariaDB(settings ...string) *MariaDB {
	d.t.Helper()
	return startMariaDB(d.t, d.env, settings)
}

// StartPostgres starts a server on this disk, like the function StartPostgres.
func (d *Disk) StartPostgres(settings ...string) *Postgres {
	d.t.Helper()
	return startPostgres(d.t, d.env, settings)
}

// Fill makes the disk full.
func (d *Disk) Fill() {
	d.t.Helper()
	d.write(1)
}

// Free makes room on the disk.
func (d *Disk) Free() {
	d.t.Helper()
	d.write(0)
}

//go:embed disk/disk.c
var diskSource []byte

var diskLibrary = sync.OnceValues(func() ([]byte, error) { return compile(diskSource) })
