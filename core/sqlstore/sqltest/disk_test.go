package sqltest

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestFullDisk checks a server with a full disk. The server grants nothing that it
// cannot write, and each result of an extension or a release is right. When there is
// room again, everything works.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T) (*testserver.Disk, database){"mariadb": fullMariaDB, "postgres": fullPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, d := begin(t)
			p, db := d.place(t)
			s := newStore(t, db, d)
			run := claim("run", long)
			run.Record = &store.Record{Value: []byte("begun"), Retain: long}
			holds := []store.Claim{claim("extended", long), shared("extended, shared"), claim("released", long), shared("released, shared"), run}
			for _, c := range holds {
				acquire(t, s, c)
			}
			disk.Fill()
			full := func(what string, err error) {
				t.Helper()
				text := ""
				if err != nil {
					text = err.Error()
				}
				if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(text, "full") && !strings.Contains(text, "No space left") {
					t.Errorf("%s: got %v, want %v that names the full disk", what, err, store.ErrUnavailable)
				}
			}
			// refused acquires keys until the server refuses a claim, which it returns.
			refused := func(make func(key string) store.Claim) (c store.Claim, err error) {
				for n := 0; err == nil && n < 10_000; n++ {
					c = make(strings.Repeat("long", 100) + rand.Text())
					_, err = s.Acquire(t.Context(), c)
				}
				return c, err
			}
			usual, err := refused(func(key string) store.Claim { return claim(key, long) })
			full("acquire", err)
			reader, err := refused(shared)
			full("acquire, shared", err)
			for _, c := range []store.Claim{usual, reader} {
				if n := holders(t, s, c.Key); n != 0 {
					t.Errorf("got %d holds of a claim that was refused, want none", n)
				}
			}
			for _, c := range holds[:2] {
				before := load(t, p, c.Key, false).Version
				err := s.Extend(t.Context(), []store.Claim{c})[0].Err
				if d.driver == "mysql" && err != nil { // MariaDB changes the row in place
					t.Errorf("extend: got %v, want nil", err)
				} else if err != nil {
					full("extend", err)
				}
				if written := load(t, p, c.Key, false).Version != before; written != (err == nil) {
					t.Errorf("extend %s: got %v, but the row was written: %v", c.Key, err, written)
				}
			}
			for _, c := range holds[2:4] {
				err := s.Release(t.Context(), c)
				if err != nil {
					full("release", err)
				}
				if n := holders(t, s, c.Key); (err == nil) != (n == 0) {
					t.Errorf("release %s: got %v, but %d holds", c.Key, err, n)
				}
			}
			run.Record = &store.Record{Value: make([]byte, 1<<20), Attempt: 1, Done: true, Retain: long}
			full("release with an answer", s.Release(t.Context(), run))
			if n := holders(t, s, "run"); n != 1 {
				t.Errorf("got %d holds of the run, want 1", n)
			}
			disk.Free()
			for _, c := range holds[:2] {
				eventually(t, func() error { return s.Extend(t.Context(), []store.Claim{c})[0].Err })
				if _, err := s.Acquire(t.Context(), claim(c.Key, long)); !errors.Is(err, store.ErrBusy) {
					t.Errorf("acquire of a held key: got %v, want %v", err, store.ErrBusy)
				}
			}
			for _, c := range append(holds[:4:4], usual, reader) {
				if err := s.Release(t.Context(), c); err != nil && !errors.Is(err, store.ErrLost) {
					t.Errorf("release %s with room: got %v, want nil or %v", c.Key, err, store.ErrLost)
				}
				acquire(t, s, claim(c.Key, long))
			}
			release(t, s, run)
			again := claim("run", long)
			again.Record = &store.Record{Value: []byte("begun"), Retain: long}
			if g := acquire(t, s, again); g.Record == nil || !g.Record.Done || len(g.Record.Value) != 1<<20 {
				t.Errorf("got the record %+v, want the answer", g.Record)
			}
		})
	}
}

// fullMariaDB and fullPostgres return a database on a disk that the test can fill. The
// database's log of transactions has room.
func fullMariaDB(t *testing.T) (*testserver.Disk, database) {
	t.Helper()
	disk := testserver.NewDisk(t, "")
	var settings []string
	if testserver.IsMySQL() {
		settings = append(settings, "skip_log_bin") // TestFullDisk_Log fills the log
	}
	return disk, database{sqlstore.MySQL, "mysql", disk.StartMariaDB(settings...).NewDatabase(t).DSN()}
}

func fullPostgres(t *testing.T) (*testserver.Disk, database) {
	t.Helper()
	disk := testserver.NewDisk(t, "/pg_wal/")
	return disk, database{sqlstore.PostgreSQL, "pgx", disk.StartPostgres().NewDatabase(t).URL()}
}

// TestFullDisk_Log checks a server that cannot write its log of transactions.
// PostgreSQL then crashes, and MariaDB waits for room in its binary log. A claim that
// gets no answer is granted at most once, and an earlier hold is not lost.
func TestFullDisk_Log(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T, disk *testserver.Disk) (*testserver.Process, database){
		"mariadb": func(t *testing.T, disk *testserver.Disk) (*testserver.Process, database) {
			server := disk.StartMariaDB("log_bin = bin", "binlog_format = ROW", "sync_binlog = 1")
			return server.Process, database{sqlstore.MySQL, "mysql", server.NewDatabase(t).DSN()}
		},
		"postgres": func(t *testing.T, disk *testserver.Disk) (*testserver.Process, database) {
			server := disk.StartPostgres("fsync = on")
			return server.Process, database{sqlstore.PostgreSQL, "pgx", server.NewDatabase(t).URL()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := testserver.NewDisk(t, "")
			server, d := begin(t, disk)
			s := d.store(t)
			held := claim("held", long)
			acquire(t, s, held)
			disk.Fill()
			var failed store.Claim
			var err error
			for n := 0; err == nil && n < 10_000; n++ {
				failed = claim("key "+rand.Text(), long)
				_, err = s.Acquire(t.Context(), failed)
			}
			if err == nil || errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrLost) {
				t.Errorf("acquire: got %v, want an error of the server", err)
			}
			disk.Free()
			server.Restart()
			eventually(t, func() error {
				_, err := s.Acquire(t.Context(), claim("held", long))
				if err == nil {
					t.Fatal("got a grant of a key that is held, want busy")
				}
				if errors.Is(err, store.ErrBusy) {
					return nil
				}
				return err
			})
			if err := s.Extend(t.Context(), []store.Claim{held})[0].Err; err != nil {
				t.Errorf("extend: got %v, want nil", err)
			}
			if n := holders(t, s, failed.Key); n > 1 {
				t.Errorf("got %d holds of a claim without an answer, want at most 1", n)
			}
			if err := s.Release(t.Context(), failed); err != nil && !errors.Is(err, store.ErrLost) {
				t.Errorf("release of a claim without an answer: got %v, want nil or %v", err, store.ErrLost)
			}
			acquire(t, s, claim(failed.Key, long))
		})
	}
}
