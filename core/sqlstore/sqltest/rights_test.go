package sqltest

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
)

// limited creates a user with grants on a database with empty tables. It returns the
// database of root and of the user. asRoot sends statements as root, and replaces $user
// by the user's name.
func limited(t *testing.T, driver string, grants []string) (root, user database, asRoot func(sql string)) {
	t.Helper()
	name := "user" + strings.ToLower(rand.Text())[:10]
	var exec func(sql string) []string
	if driver == "pgx" {
		server := postgres.Get(t).NewDatabase(t)
		root, exec = database{sqlstore.PostgreSQL, "pgx", server.URL()}, server.Exec
		exec("CREATE ROLE " + name + " LOGIN")
	} else {
		server := mariaDB.Get(t).NewDatabase(t)
		root, exec = database{sqlstore.MySQL, "mysql", server.DSN()}, server.Exec
		exec("CREATE USER " + name)
	}
	root.place(t)
	user = root
	user.dsn = strings.NewReplacer("root@", name+"@", "postgres@", name+"@").Replace(root.dsn)
	for _, grant := range grants {
		exec(grant + " TO " + name)
	}
	return root, user, func(sql string) { exec(strings.ReplaceAll(sql, "$user", name)) }
}

// withoutEach revokes each of grants in turn, and fails the test unless the error of
// call then contains words. With all grants, call must succeed.
func withoutEach(t *testing.T, grants []string, words string, exec func(string), call func() error) {
	t.Helper()
	if err := call(); err != nil {
		t.Errorf("with every right: got %v, want nil", err)
	}
	for _, grant := range grants {
		exec("REVOKE" + strings.TrimPrefix(grant, "GRANT") + " FROM $user")
		err := call()
		if err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "Check names") {
			t.Errorf("without %s: got %v, want an error with %q", grant, err, words)
		}
		exec(grant + " TO $user")
	}
}

// TestCheckToken_Rights checks that the error for a user without a right names the
// rights that CheckToken needs.
func TestCheckToken_Rights(t *testing.T) {
	t.Parallel()
	for driver, c := range map[string]struct {
		grants []string
		words  string
	}{
		"mysql": {
			[]string{"GRANT SELECT ON lockkit_seen", "GRANT INSERT ON lockkit_seen", "GRANT UPDATE ON lockkit_seen"},
			"GRANT SELECT, INSERT, UPDATE ON lockkit_seen",
		},
		"pgx": {
			[]string{"GRANT USAGE ON SCHEMA lockkit", "GRANT SELECT ON lockkit.seen", "GRANT INSERT ON lockkit.seen", "GRANT UPDATE ON lockkit.seen"},
			"GRANT USAGE ON SCHEMA lockkit and GRANT SELECT, INSERT, UPDATE ON lockkit.seen",
		},
	} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			root, user, exec := limited(t, driver, c.grants)
			s, db := root.store(t), user.open(t)
			var failed []error
			withoutEach(t, c.grants, c.words, exec, func() error {
				return inside(t, db, func(tx *sql.Tx) error {
					err := s.CheckToken(t.Context(), tx, "order:42", 300)
					failed = append(failed, err)
					return err
				})
			})
			for _, err := range failed[1:] {
				if !isUnavailableOnce(err) {
					t.Errorf("got %v, want %v once", err, store.ErrUnavailable)
				}
			}
		})
	}
}

func inside(t *testing.T, db *sql.DB, do func(tx *sql.Tx) error) error {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// TestCheckToken_NoTables checks that the error for a database without the tables names
// Migrate.
func TestCheckToken_NoTables(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := newStore(t, db, d)
		err := inside(t, db, func(tx *sql.Tx) error { return s.CheckToken(t.Context(), tx, "order:42", 300) })
		if !isUnavailableOnce(err) || !strings.Contains(err.Error(), "call Migrate") {
			t.Errorf("got %v, want %v once that names Migrate", err, store.ErrUnavailable)
		}
	})
}

// TestCommit_Rights checks that the error for a user without a right names the rights
// that Commit needs.
func TestCommit_Rights(t *testing.T) {
	t.Parallel()
	for driver, c := range map[string]struct {
		grants []string
		words  string
	}{
		"mysql": {
			[]string{"GRANT SELECT ON lockkit_version", "GRANT SELECT ON lockkit_locks", "GRANT UPDATE ON lockkit_locks"},
			"GRANT SELECT ON lockkit_version and GRANT SELECT, UPDATE ON lockkit_locks",
		},
		"pgx": {
			[]string{"GRANT USAGE ON SCHEMA lockkit", "GRANT SELECT ON lockkit.version", "GRANT SELECT ON lockkit.locks", "GRANT UPDATE ON lockkit.locks"},
			"GRANT USAGE ON SCHEMA lockkit, GRANT SELECT ON lockkit.version and GRANT SELECT, UPDATE ON lockkit.locks",
		},
	} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			root, user, exec := limited(t, driver, c.grants)
			s, db := root.store(t), user.open(t)
			begun := claim("key", long)
			begun.Record = &store.Record{Value: []byte("begun"), Retain: long}
			acquire(t, s, begun)
			last := begun
			last.Record = &store.Record{Value: []byte("answer"), Attempt: 1, Done: true, Retain: long}
			withoutEach(t, c.grants, c.words, exec, func() error {
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback() }()
				err = sqlstore.In(tx).SaveRun(t.Context(), s, last)
				if errors.Is(err, store.ErrUnsupported) {
					t.Errorf("got %v, want an error that is not %v", err, store.ErrUnsupported)
				}
				return err
			})
			if n := holders(t, s, "key"); n != 1 {
				t.Errorf("got %d holds of the run, want 1", n)
			}
		})
	}
}
