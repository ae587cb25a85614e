package rows

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"

	"github.com/lockkit/lockkit/core/store"
)

// class is what follows from an error of a database.
type class int

const (
	unknown   class = iota // the statement may have taken effect
	unchanged              // it has not
	conflict               // it has not, because of another one; it may be sent again
)

// errConflict is an error of class conflict.
var errConflict = errors.New("another statement was faster")

// classify returns err so that it matches store.ErrUnavailable if nothing was changed, and
// errConflict too if another statement is the reason.
func classify(err error) error {
	if err == nil {
		return nil
	}
	switch classOf(err) {
	case unchanged:
		return fmt.Errorf("%w: %w%s", store.ErrUnavailable, err, advice(err))
	case conflict:
		return fmt.Errorf("%w: %w: %w", store.ErrUnavailable, errConflict, err)
	}
	return err
}

// classOf knows errors by the fields and methods that those of the drivers have, whatever
// dialect was chosen.
func classOf(err error) class {
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" || errors.Is(err, driver.ErrBadConn) {
		return unchanged // a driver returns ErrBadConn only before anything was sent
	}
	if state := stateOf(err); state != "" {
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
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok && len(e.SQLState()) == 5 {
		return e.SQLState()
	}
	return ""
}

func classOfState(state string) class {
	switch state {
	case "40001", "40P01":
		return conflict
	case "40003":
		return unknown
	case "57014", "57P03", "57P05":
		return unchanged
	}
	for _, kind := range []string{"XX", "08", "57", "58", "F0"} {
		if strings.HasPrefix(state, kind) {
			return unknown
		}
	}
	return unchanged
}

// classOfNumber is for the field Number, which an error of go-sql-driver/mysql has. A server
// that has sent one has rolled back the statement, except for those that end a session.
func classOfNumber(n uint64) class {
	switch n {
	case 1062, 1205, 1213: // a row that was to be new is there, a lock wait, a deadlock
		return conflict
	case 1053, 1080, 1152, 1158, 1159, 1160, 1161, 1180, 1317, 1927, 2006, 2013, 3169:
		return unknown
	}
	return unchanged
}

// classOfCode is for SQLite's code, the method Code of modernc.org/sqlite and the field of
// mattn/go-sqlite3. Its low byte is the kind: 5 and 6 that another connection has locked the
// file or a table, 10 that the disk has failed, 11 and 26 that the file is damaged.
func classOfCode(code uint64) class {
	switch code & 0xff {
	case 0, 10, 11, 26:
		return unknown
	case 5, 6:
		return conflict
	}
	return unchanged
}

// advice is what to do about err, or "".
func advice(err error) string {
	switch n, state := field(err, "Number"), stateOf(err); {
	case n == 1146, state == "42P01", state == "3F000", strings.Contains(err.Error(), "no such table"):
		return ": call Migrate"
	case n == 1046:
		return ": put the name of the database into the DSN"
	case n == 1064, state == "42601", state == "42703", strings.Contains(err.Error(), "syntax error"):
		return ": the dialect may be that of another database"
	}
	return ""
}

// field returns the number in a field of err, or of an error that it wraps, 0 if there is none.
// So the package knows the errors of drivers that it does not import.
func field(err error, name string) uint64 {
	for ; err != nil; err = errors.Unwrap(err) {
		v := reflect.Indirect(reflect.ValueOf(err))
		if v.Kind() != reflect.Struct {
			continue
		}
		switch f := v.FieldByName(name); {
		case f.CanUint():
			return f.Uint()
		case f.CanInt():
			return uint64(f.Int())
		}
	}
	return 0
}
