package rows

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/internal/table"
	"github.com/lockkit/lockkit/core/store"
)

// The errors of drivers, with the fields and methods that classOf reads.
type (
	numbered struct{ Number uint16 } // go-sql-driver/mysql
	stated   string                  // pgx, lib/pq
	coded    int                     // modernc.org/sqlite
	withCode struct{ Code errNo }    // mattn/go-sqlite3
	errNo    int
)

func (e *numbered) Error() string { return fmt.Sprint("Error ", e.Number) }

func (e stated) Error() string { return string(e) }

func (e stated) SQLState() string { return string(e) }

func (e coded) Error() string { return fmt.Sprint("code ", int(e)) }

func (e coded) Code() int { return int(e) }

func (e withCode) Error() string { return fmt.Sprint("code ", e.Code) }

// TestClasses checks the class of each error, and whether the connection stays in the
// pool. The classes follow from the servers' documents: MySQL's and MariaDB's error
// references with "InnoDB Error Handling", PostgreSQL's appendix "Error Codes", and
// SQLite's "Result and Error Codes".
func TestClasses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err     error
		want    class
		meaning string
	}{
		{&numbered{1020}, conflict, "record has changed since last read (innodb_snapshot_isolation rolls back)"},
		{&numbered{1205}, conflict, "lock wait timeout exceeded; try restarting transaction"},
		{&numbered{1213}, conflict, "deadlock found when trying to get lock; try restarting transaction"},
		{&numbered{1021}, conflict, "disk got full writing a temporary table"},
		{&numbered{1062}, present, "duplicate entry for key"},
		{&numbered{1040}, unchanged, "too many connections"},
		{&numbered{1046}, unchanged, "no database selected"},
		{&numbered{1064}, unchanged, "parse error"},
		{&numbered{1114}, unchanged, "the table is full: InnoDB rolls back the statement"},
		{&numbered{1044}, unchanged, "access denied for user to database"},
		{&numbered{1142}, unchanged, "command denied to user"},
		{&numbered{1143}, unchanged, "command denied to user for column"},
		{&numbered{1146}, unchanged, "table doesn't exist"},
		{&numbered{1153}, closed, "got a packet bigger than max_allowed_packet"},
		{&numbered{1226}, unchanged, "user has exceeded a resource"},
		{&numbered{1290}, away, "the server is running with --read-only"},
		{&numbered{1406}, unchanged, "data too long for column"},
		{&numbered{1665}, unchanged, "cannot execute statement: impossible to write to binary log, as text at READ COMMITTED"},
		{&numbered{1792}, away, "cannot execute statement in a READ ONLY transaction"},
		{&numbered{1836}, away, "running in read-only mode"},
		{&numbered{1030}, ended, "got error from storage engine"},
		{&numbered{1053}, ended, "server shutdown in progress"},
		{&numbered{1105}, ended, "unknown error, also of proxies and of TiDB"},
		{&numbered{1158}, ended, "got an error reading communication packets"},
		{&numbered{1180}, ended, "got error during COMMIT"},
		{&numbered{1317}, unknown, "query execution was interrupted"},
		{&numbered{1927}, ended, "connection was killed (MariaDB)"},
		{&numbered{1969}, unknown, "max_statement_time exceeded (MariaDB)"},
		{&numbered{2003}, ended, "a client's: can't connect to the server behind a proxy"},
		{&numbered{2006}, ended, "a client's: server has gone away"},
		{&numbered{2013}, ended, "a client's: lost connection during query"},
		{&numbered{2027}, ended, "a client's: malformed packet"},
		{&numbered{3024}, unknown, "maximum statement execution time exceeded"},
		{&numbered{3100}, ended, "group replication: error in the hook before_commit"},
		{&numbered{3169}, ended, "session was killed"},
		{&numbered{4031}, ended, "disconnected because of inactivity"},
		{&numbered{9001}, ended, "ProxySQL: max connect timeout reached"},
		{&numbered{9999}, ended, "none"},
		{&numbered{1}, ended, "none"},

		{stated("40001"), conflict, "serialization_failure"},
		{stated("40P01"), conflict, "deadlock_detected"},
		{stated("23505"), unchanged, "unique_violation"},
		{stated("0A000"), closed, "feature_not_supported, also a cached plan that must not change"},
		{stated("25006"), away, "read_only_sql_transaction"},
		{stated("26000"), unchanged, "invalid_sql_statement_name, of a prepared statement"},
		{stated("42P05"), unchanged, "duplicate_prepared_statement"},
		{stated("25P03"), closed, "idle_in_transaction_session_timeout"},
		{stated("25P04"), closed, "transaction_timeout"},
		{stated("25P02"), unchanged, "in_failed_sql_transaction"},
		{stated("40000"), unchanged, "transaction_rollback"},
		{stated("42501"), unchanged, "insufficient_privilege"},
		{stated("42P01"), unchanged, "undefined_table"},
		{stated("53100"), unchanged, "disk_full"},
		{stated("53300"), closed, "too_many_connections"},
		{stated("54000"), unchanged, "program_limit_exceeded"},
		{stated("55P03"), conflict, "lock_not_available, after lock_timeout"},
		{stated("55000"), closed, "object_not_in_prerequisite_state"},
		{stated("57014"), unchanged, "query_canceled"},
		{stated("57P03"), closed, "cannot_connect_now"},
		{stated("57P05"), closed, "idle_session_timeout"},
		{stated("08006"), ended, "connection_failure"},
		{stated("08007"), ended, "transaction_resolution_unknown"},
		{stated("08P01"), ended, "protocol_violation, of pgbouncer for any error"},
		{stated("40003"), ended, "statement_completion_unknown"},
		{stated("57P01"), ended, "admin_shutdown"},
		{stated("57P02"), ended, "crash_shutdown"},
		{stated("58030"), ended, "io_error"},
		{stated("XX000"), ended, "internal_error"},
		{stated("XX001"), ended, "data_corrupted"},
		{stated("CR000"), ended, "none of PostgreSQL's"},

		{coded(5), conflict, "SQLITE_BUSY"},
		{coded(6), conflict, "SQLITE_LOCKED"},
		{coded(517), conflict, "SQLITE_BUSY_SNAPSHOT"},
		{withCode{5}, conflict, "SQLITE_BUSY"},
		{coded(1), unchanged, "SQLITE_ERROR"},
		{coded(8), away, "SQLITE_READONLY"},
		{coded(1032), away, "SQLITE_READONLY_DBMOVED"},
		{coded(9), unchanged, "SQLITE_INTERRUPT"},
		{coded(13), unchanged, "SQLITE_FULL"},
		{withCode{14}, unchanged, "SQLITE_CANTOPEN"},
		{coded(18), unchanged, "SQLITE_TOOBIG"},
		{coded(2067), unchanged, "SQLITE_CONSTRAINT_UNIQUE"},
		{coded(2), ended, "SQLITE_INTERNAL"},
		{coded(10), ended, "SQLITE_IOERR"},
		{coded(1034), ended, "SQLITE_IOERR_FSYNC"},
		{coded(11), ended, "SQLITE_CORRUPT"},
		{withCode{26}, ended, "SQLITE_NOTADB"},

		{io.ErrUnexpectedEOF, unknown, "the connection broke"},
		{context.DeadlineExceeded, unknown, "the caller has left"},
		{fmt.Errorf("%w: %w", store.ErrUnavailable, table.ErrReplica), away, "a replica has answered"},
		{table.ErrOpen, unknown, "the session has an open transaction"},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			t.Parallel()
			err := fmt.Errorf("wrapped: %w", c.err)
			if got := classOf(err); got != c.want {
				t.Errorf("%s: got class %d, want %d", c.meaning, got, c.want)
			}
			said := classify(err)
			if got, want := errors.Is(said, store.ErrUnavailable), c.want != unknown && c.want != ended; got != want {
				t.Errorf("%s: matches %v: got %v, want %v", c.meaning, store.ErrUnavailable, got, want)
			}
			if got, want := errors.Is(said, casstore.ErrConflict), c.want == conflict; got != want {
				t.Errorf("%s: matches %v: got %v, want %v", c.meaning, casstore.ErrConflict, got, want)
			}
			// The calls also show that no statement is sent again.
			p := newFake(t, answer{err: c.err}, answer{rows: 1})
			_, _ = p.Change(t.Context(), dialect.Statement{Text: "UPDATE"})
			of := p.DB.Driver().(*fake)
			kept := !slices.Contains([]class{ended, closed, away}, c.want)
			if got := p.DB.Stats().OpenConnections == 1 && of.closed == 0; got != kept || len(of.sent) != 1 {
				t.Errorf("%s: connection kept: got %v, want %v; sent %d times, want once", c.meaning, got, kept, len(of.sent))
			}
		})
	}
}

// TestBadConnection checks a driver that returns driver.ErrBadConn for a lost reply.
// The outcome is unknown, unless a later try succeeds.
func TestBadConnection(t *testing.T) {
	t.Parallel()
	const key = "key"
	writes := map[string]func(p *Place) error{
		"take": func(p *Place) error {
			_, _, err := p.Take(t.Context(), store.Claim{Key: key, Lease: "l", Owner: "o"}, 7)
			return err
		},
		"give": func(p *Place) error {
			_, err := p.Give(t.Context(), store.Claim{Key: key, Lease: "l", Owner: "o"}, 7)
			return err
		},
		"save": func(p *Place) error {
			_, err := p.Save(t.Context(), key, casstore.Entry{Version: 6}, casstore.Entry{Version: 7})
			return err
		},
		"extend": func(p *Place) error {
			_, err := p.Extend(t.Context(), []store.Claim{{Key: key, Lease: "l", Owner: "o"}}, 7)
			return err
		},
	}
	for name, answers := range map[string][]answer{
		"always":                {{err: driver.ErrBadConn}},
		"a refusal follows":     {{err: driver.ErrBadConn}, {err: &numbered{1142}}},
		"a deadlock follows":    {{err: driver.ErrBadConn}, {err: &numbered{1213}}},
		"no connection follows": {{err: driver.ErrBadConn}, {err: errDial}},
	} {
		for what, write := range writes {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				err := write(newFake(t, answers...))
				if err == nil || errors.Is(err, store.ErrUnavailable) || errors.Is(err, casstore.ErrConflict) {
					t.Errorf("got %v, want an unknown outcome", err)
				}
			})
		}
	}
	for what, write := range writes {
		if err := write(newFake(t, answer{err: driver.ErrBadConn}, answer{rows: 1})); err != nil {
			t.Errorf("%s, and a second try is answered: got %v, want nil", what, err)
		}
	}
	_, err := newFake(t, answer{err: driver.ErrBadConn}).Load(t.Context(), key, casstore.Want{})
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a read: got %v, want %v", err, store.ErrUnavailable)
	}
}

// TestBadConnection_Pgx checks that driver.ErrBadConn of pgx is an unknown outcome. Some
// versions of pgx also return it for a reply that was cut off.
func TestBadConnection_Pgx(t *testing.T) {
	t.Parallel()
	f := &fake{answers: []answer{{err: driver.ErrBadConn}, {err: errDial}}, as: stdlib.GetDefaultDriver()}
	db := sql.OpenDB(f)
	t.Cleanup(func() { _ = db.Close() })
	_, err := New(db, dialect.PostgreSQL{}).Change(t.Context(), dialect.Statement{Text: "UPDATE"})
	if err == nil || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v, want an unknown outcome", err)
	}
}

// TestGive_SentTwice checks a release whose reply is lost. If the next try finds no
// hold, the first one may have released it.
func TestGive_SentTwice(t *testing.T) {
	t.Parallel()
	p := newFake(t, answer{err: driver.ErrBadConn}, answer{rows: 0})
	ok, err := p.Give(t.Context(), store.Claim{Key: "key", Lease: "l", Owner: "o"}, 7)
	if ok || err == nil || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v and %v, want an unknown outcome", ok, err)
	}
}

// TestTake_CommitFails checks a grant whose COMMIT fails. PostgreSQL and SQLite return
// the row of the grant before the COMMIT.
func TestTake_CommitFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  error
		want error // nil: an unknown outcome
	}{
		"it is not serializable": {stated("40001"), casstore.ErrConflict},
		"another one has won":    {coded(5), casstore.ErrConflict},
		"the disk is full":       {stated("53100"), store.ErrUnavailable},
		"the server shuts down":  {stated("57P01"), nil},
		"the reply is cut":       {io.ErrUnexpectedEOF, nil},
		"the connection is bad":  {driver.ErrBadConn, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newFake(t, answer{tuple: []driver.Value{int64(77)}, end: c.end})
			token, ok, err := p.Take(t.Context(), store.Claim{Key: "key", Lease: "l", Owner: "o"}, 7)
			if token != 0 || ok || err == nil {
				t.Errorf("got token %d, granted %v, %v, want an error", token, ok, err)
			}
			if c.want != nil && !errors.Is(err, c.want) || c.want == nil && errors.Is(err, store.ErrUnavailable) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if sent := len(p.DB.Driver().(*fake).sent); sent != 1 {
				t.Errorf("it was sent %d times, want once", sent)
			}
		})
	}
}

// TestAdvice checks the advice for a missing right, even if the error is wrapped, and
// the advice for a session with other prepared statements.
func TestAdvice(t *testing.T) {
	t.Parallel()
	for _, err := range []error{&numbered{1044}, &numbered{1142}, &numbered{1143}, stated("42501")} {
		said := classify(err)
		if !strings.Contains(said.Error(), "Check names the GRANT") || !IsDenied(said) {
			t.Errorf("got %v, want advice about a right", said)
		}
	}
	for _, state := range []stated{"26000", "42P05"} {
		if said := classify(state); !strings.Contains(said.Error(), "default_query_exec_mode=exec") || !errors.Is(said, store.ErrUnavailable) {
			t.Errorf("got %v, want %v with advice about a pooler", said, store.ErrUnavailable)
		}
	}
	for _, err := range []error{nil, &numbered{1146}, &numbered{1040}, stated("42P01"), coded(23), io.EOF} {
		if IsDenied(classify(err)) {
			t.Errorf("%v: got a missing right, want none", err)
		}
	}
}
