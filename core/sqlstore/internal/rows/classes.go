package rows

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/internal/table"
	"github.com/lockkit/lockkit/core/store"
)

// class states whether a failed statement can have taken effect, and whether the
// connection stays in the pool.
type class int

const (
	unknown   class = iota // the statement may have taken effect; the driver decides on closing
	ended                  // the statement may have taken effect; the connection is closed
	unchanged              // nothing has changed; the connection is good, as for the next two
	conflict               // nothing has changed, because of another statement; can be sent again
	present                // nothing has changed, because a row with the same key exists
	closed                 // nothing has changed; the session is over, so the connection is closed
	away                   // nothing has changed; no locks there, so all connections close
)

var errPresent = errors.New("the row is there already")

// classify returns err so that it matches store.ErrUnavailable if nothing was changed.
// If the reason is another statement or an existing row, it also matches
// casstore.ErrConflict or errPresent.
func classify(err error) error {
	if err == nil {
		return nil
	}
	switch classOf(err) {
	case unchanged, closed, away:
		return fmt.Errorf("%w: %s%w", store.ErrUnavailable, advice(err), err)
	case conflict:
		return fmt.Errorf("%w: %w: %w", store.ErrUnavailable, casstore.ErrConflict, err)
	case present:
		return fmt.Errorf("%w: %w: %w", store.ErrUnavailable, errPresent, err)
	}
	return err
}

// classOf recognizes the errors of drivers by their fields and methods, for any dialect.
// An error with a code that is not listed has the class ended. For example, a proxy can
// have errors with numbers of its own, or with numbers of another database. An error
// without a code has the class unknown.
func classOf(err error) class {
	if table.IsReplica(err) {
		return away
	}
	if state := stateOf(err); state != "" {
		if isStandby(err) {
			return away
		}
		return classOfState(state)
	}
	if n := field(err, "Number"); n != 0 {
		return classOfNumber(n)
	}
	code := field(err, "Code")
	if e := (interface{ Code() int })(nil); errors.As(err, &e) {
		code = uint64(e.Code())
	}
	return classOfCode(code)
}

// stateOf returns the SQLSTATE of an error of pgx or lib/pq, or "".
func stateOf(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) && len(e.SQLState()) == 5 {
		return e.SQLState()
	}
	return ""
}

// classOfState returns the class of an SQLSTATE of PostgreSQL. An error rolls back the
// transaction, which consists of the statement. If an unlisted error ends the session,
// a COMMIT may be in progress. The outcome is then unknown.
//
// https://www.postgresql.org/docs/current/errcodes-appendix.html
func classOfState(state string) class {
	switch state {
	case "40001", "40P01", "55P03": // serialization failure, deadlock, lock wait
		return conflict
	case "40003": // statement completion unknown
		return ended
	case "57014": // canceled
		return unchanged
	case "25P03", "25P04", // the time-outs of an idle transaction and of a transaction
		"53300", "55000", // too many sessions; a server in a wrong state
		"57P03", "57P05": // not ready for sessions; idle for too long
		return closed
	case "25006": // read-only
		return away
	}
	switch state[:2] {
	case "0A": // not supported, or a prepared statement of a table that has changed
		return closed
	case "21", "22", "23", "26", "42", "44", // a statement, its data, or a constraint
		"25", "2B", "2D", "40", "55", // the state of a transaction or of an object
		"28", "3D", "3F", // names and rights
		"53", "54", // no memory, disk or connection left; a limit
		"P0": // PL/pgSQL, as in a trigger
		return unchanged
	}
	return ended // also 08 connections, 57 operators, 58 system, XX internal
}

// classOfNumber returns the class of the field Number of an error of
// go-sql-driver/mysql. An error that the server finds in a statement rolls back the
// statement, or the whole transaction. Numbers from 2000 to 2999 are errors of a
// client, such as a proxy. 1105 is for errors without a number of their own. An error
// during a COMMIT, or of a session that ends, does not show what was committed.
//
// https://dev.mysql.com/doc/refman/8.4/en/innodb-error-handling.html
// https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html
// https://mariadb.com/kb/en/mariadb-error-code-reference/
func classOfNumber(n uint64) class {
	switch n {
	case 1020, 1205, 1213: // the row has changed since the snapshot, a lock wait, a deadlock
		return conflict
	case 1021: // no room for the temporary table of an extension; a Save needs no such table
		return conflict
	case 1062: // a duplicate key
		return present
	case 1044, 1045, 1142, 1143, 1227, 1370, 1820, // rights and passwords
		1046, 1049, 1054, 1109, 1128, 1136, 1146, 1193, 1305, 1630, // names
		1064, 1149, 1235, // an invalid statement, or one that is not supported
		1048, 1231, 1264, 1292, 1364, 1366, 1406, 1690, // values
		1040, 1203, 1226, 1461, // a limit of connections, of a user, of prepared statements
		1114, 1118, // no room in the table or the row
		1665: // the statement is not fit for a binary log of statements
		return unchanged
	case 1153: // the packet is too long; the server ends the session
		return closed
	case 1290, 1792, 1836: // read-only
		return away
	case 1317, 1969, 3024: // the statement was stopped, perhaps during its COMMIT
		return unknown
	}
	return ended
}

// classOfCode returns the class of an error code of SQLite. modernc.org/sqlite has the
// code in the method Code, and mattn/go-sqlite3 in the field Code. The low byte of the
// code is its kind. A statement that fails is rolled back, unless the disk has failed or
// the file is damaged.
//
// https://sqlite.org/rescode.html
func classOfCode(code uint64) class {
	switch code & 0xff {
	case 5, 6: // BUSY, LOCKED: another connection has locked the file or a table
		return conflict
	case 0: // no code
		return unknown
	case 8: // READONLY; SQLite also returns it if the file was moved
		return away
	case 1, 3, 9, 13, 14, 15, // ERROR, PERM, INTERRUPT, FULL, CANTOPEN, PROTOCOL
		17, 18, 19, 20, 21, 23, 25: // SCHEMA, TOOBIG, CONSTRAINT, MISMATCH, MISUSE, AUTH, RANGE
		return unchanged
	}
	return ended
}

// advice returns the remedy for err and a colon, or "". It precedes the server's text,
// which can be long.
func advice(err error) string {
	switch n, state := field(err, "Number"), stateOf(err); {
	case isSecured(err):
		return "row-level security refuses the user, Check names the remedy: "
	case IsDenied(err):
		return "the user lacks a right, Check names the GRANT: "
	case isMissing(err):
		return "call Migrate: "
	case n == 1046:
		return "put the name of the database into the DSN: "
	case n == 1290, n == 1792, n == 1836, state == "25006", isStandby(err):
		return "the server is read-only, perhaps a replica: send all statements to the primary: "
	case n == 1665:
		return dialect.BinlogAdvice + ": "
	case state == "26000", state == "42P05":
		return "the session has other prepared statements, as behind a pooler: set default_query_exec_mode=exec in the DSN of pgx: "
	case n == 1064, state == "42601", state == "42703", strings.Contains(err.Error(), "syntax error"):
		return "the dialect may be that of another database: "
	}
	return ""
}

// IsDenied reports whether err is the error of a missing right to a database, a table or
// a column.
func IsDenied(err error) bool {
	n := field(err, "Number")
	return n == 1044 || n == 1142 || n == 1143 || stateOf(err) == "42501" && !isSecured(err)
}

// isSecured reports whether row-level security has refused a statement. The SQLSTATE
// also stands for a missing right, and the text can be in any language. So isSecured
// compares the names of the server's functions that return such an error, in the field
// Routine of errors of pgx and lib/pq.
func isSecured(err error) bool {
	r := routineOf(err)
	return stateOf(err) == "42501" && (r == "ExecWithCheckOptions" || r == "check_enable_rls")
}

// isStandby reports whether a standby has refused the level SERIALIZABLE.
func isStandby(err error) bool {
	return stateOf(err) == "0A000" && routineOf(err) == "GetSerializableTransactionSnapshot"
}

// routineOf returns the name of the server's function that returned err, or "".
func routineOf(err error) string {
	if v := fieldOf(err, "Routine"); v.Kind() == reflect.String {
		return v.String()
	}
	return ""
}

func isMissing(err error) bool {
	state := stateOf(err)
	return field(err, "Number") == 1146 || state == "42P01" || state == "3F000" || strings.Contains(err.Error(), "no such table")
}

// field returns the number in the field name of err, or of an error that err wraps, or
// 0.
func field(err error, name string) uint64 {
	switch f := fieldOf(err, name); {
	case f.CanUint():
		return f.Uint()
	case f.CanInt():
		return uint64(f.Int())
	}
	return 0
}

// fieldOf returns the field name of err, or of an error that err wraps, if it is a
// number or a text. Otherwise it returns the zero Value. With fieldOf this package
// recognizes the errors of drivers that it does not import.
func fieldOf(err error, name string) reflect.Value {
	for ; err != nil; err = errors.Unwrap(err) {
		v := reflect.Indirect(reflect.ValueOf(err))
		if v.Kind() != reflect.Struct {
			continue
		}
		switch f := v.FieldByName(name); {
		case f.CanUint(), f.CanInt(), f.Kind() == reflect.String:
			return f
		}
		if all, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range all.Unwrap() {
				if f := fieldOf(e, name); f.IsValid() && !f.IsZero() {
					return f
				}
			}
		}
	}
	return reflect.Value{}
}

// isCareful reports whether a driver returns driver.ErrBadConn only if nothing was sent,
// as database/sql/driver demands. lib/pq and pgx also return it if a reply was cut off.
func isCareful(driver any) bool { return packageOf(driver) == "github.com/go-sql-driver/mysql" }

// isQuiet reports whether a driver is known not to ping an idle connection that leaves
// the pool.
func isQuiet(driver any) bool {
	switch packageOf(driver) {
	case "github.com/go-sql-driver/mysql", "github.com/lib/pq":
		return true
	}
	return false
}

func packageOf(driver any) string {
	t := reflect.TypeOf(driver)
	if t == nil {
		return ""
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath()
}
