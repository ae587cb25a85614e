package sqlstore

import (
	"errors"
	"reflect"
	"strings"
)

// class is what follows from an error of a database.
type class int

const (
	unknown   class = iota // the statement may have taken effect
	unchanged              // it has not
	there                  // it has not, as there is a row already
)

// errThere says that a row which was to be new is there.
var errThere = errors.New("there is a row already")

// classOfMySQL knows an error by its field Number, which that of go-sql-driver/mysql has. A
// server that has sent one has rolled back the statement, except for those that end a session.
func classOfMySQL(err error) class {
	switch n := field(err, "Number"); n {
	case 0, 1053, 1080, 1152, 1158, 1159, 1160, 1161, 1180, 1317, 1927, 2006, 2013, 3169:
		return unknown
	case 1062:
		return there
	default:
		return unchanged
	}
}

// classOfPostgreSQL knows an error by its method SQLState, which those of pgx and lib/pq have.
func classOfPostgreSQL(err error) class {
	var e interface{ SQLState() string }
	if !errors.As(err, &e) || len(e.SQLState()) != 5 {
		return unknown
	}
	code := e.SQLState()
	switch {
	case code == "23505":
		return there
	case code == "40003":
		return unknown
	case code == "57014", code == "57P03", code == "57P05":
		return unchanged
	}
	if strings.HasPrefix(code, "XX") || strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57") ||
		strings.HasPrefix(code, "58") || strings.HasPrefix(code, "F0") {
		return unknown
	}
	return unchanged
}

// classOfSQLite knows an error by its method or field Code, of which the low byte is SQLite's
// code: 19 is a constraint, 10 that the disk has failed, 11 and 26 that the file is damaged.
func classOfSQLite(err error) class {
	code := field(err, "Code")
	if e := (interface{ Code() int })(nil); errors.As(err, &e) {
		code = uint64(e.Code())
	}
	switch code & 0xff {
	case 0, 10, 11, 26:
		return unknown
	case 19:
		return there
	}
	return unchanged
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
