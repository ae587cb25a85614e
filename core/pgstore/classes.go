package pgstore

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/brief"
)

// codeRights is the code of the error for a missing right.
const codeRights = "42501"

// codeIsolation is what begin_call raises, see sql/state.sql.
const codeIsolation = "LK001"

// codeSerialization is that of a transaction with one snapshot that met another one.
const codeSerialization = "40001"

// refusals are the classes of SQLSTATE with which a server tells that it did
// not do a statement, whose transaction has ended then. Not among them are those
// that also a pooler uses for a connection that it has lost (08), that tell of a
// shutdown or a crash (57P), and errors of the system (58, XX, F0).
var refusals = map[string]bool{
	"0A": true,                         // not supported
	"21": true, "22": true, "23": true, // data
	"25": true,             // among others: the server is a replica
	"28": true,             // the user's name or password
	"3D": true, "3F": true, // no such database or schema
	"40": true,             // serialization failure, deadlock
	"42": true,             // no such function, no right to it
	"53": true,             // too few resources
	"54": true, "55": true, // too complex; a row is locked
	"P0": true, codeIsolation[:2]: true,
}

// refusalCodes are those of other classes: a cancelled statement, one out of
// time, and a server that does not take connections.
var refusalCodes = map[string]bool{"57014": true, "57P03": true}

// verdict says of an error of the server or of the connection whether anything
// can have changed. It does not ask pgconn.SafeToRetry: a connection that breaks
// while an answer is read fails with an error that claims to be safe, since the
// first look at the next message closes it and the second one tells of that.
func verdict(err error) error {
	reply, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil:
		return nil
	case ok && missing(reply):
		return fmt.Errorf("%w: the schema lockkit is missing or of another version: call pgstore.Migrate: %w", core.ErrUnavailable, brief.Error(err))
	case ok && reply.Code == codeRights:
		return fmt.Errorf("%w: the user lacks a right, Check says which GRANT is missing: %w", core.ErrUnavailable, brief.Error(err))
	case ok && refused(reply):
		return fmt.Errorf("%w: %w", core.ErrUnavailable, brief.Error(err))
	}
	return fmt.Errorf("outcome unknown: %w", brief.Error(err))
}

// refused tells that the server changed nothing.
func refused(e *pgconn.PgError) bool {
	if len(e.Code) != 5 || e.Code == "40003" { // whether it was completed is not known
		return false
	}
	return refusals[e.Code[:2]] || refusalCodes[e.Code]
}

// missing tells that the server does not know what Migrate makes.
func missing(e *pgconn.PgError) bool {
	switch e.Code {
	case "3F000", "42883", "42P01", "42704", "42703": // schema, function, table, type, column
		return true
	}
	return false
}

func hasCode(err error, code string) bool {
	reply, ok := errors.AsType[*pgconn.PgError](err)
	return ok && reply.Code == code
}
