package pgstore

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/internal/brief"
	"github.com/lockkit/lockkit/core/store"
)

const (
	// codeRights is the SQLSTATE of a missing right.
	codeRights = "42501"
	// codeNoTransaction is the SQLSTATE of a SAVEPOINT outside a transaction.
	codeNoTransaction = "25P01"
	// codeNoStatement is the SQLSTATE for a prepared statement that does not exist.
	codeNoStatement = "26000"
	// codeStatementExists is the SQLSTATE for a prepared statement that exists already.
	codeStatementExists = "42P05"
	// codeSerialization is the SQLSTATE of a transaction with a single snapshot that
	// conflicts with another transaction.
	codeSerialization = "40001"
)

// class describes the consequences of an error of a server or a pooler. The zero value
// is for an unknown error: the outcome is unknown, and the connection is closed.
type class struct {
	// unchanged reports that the server has not executed the statement, or has rolled it
	// back.
	unchanged bool
	// kept reports that the connection can be used for the next call. If kept is false,
	// the session is closed or belongs to the wrong server. The connection is then
	// closed, and the next call dials.
	kept bool
	// away reports that no lock can be taken at this server. Acquires fail until a probe
	// finds a server that takes locks.
	away bool
	// again reports that the failed statement did not cause the error, and can be sent
	// again.
	again bool
	// advice precedes the server's message.
	advice string
}

var (
	refusal   = class{unchanged: true, kept: true}
	rival     = class{unchanged: true, kept: true, again: true}
	ended     = class{unchanged: true}
	uncertain = class{}
	standby   = class{unchanged: true, away: true, advice: "the server is read-only, perhaps a standby: connect to the primary (target_session_attrs=read-write)"}
	missing   = class{unchanged: true, kept: true, advice: "the schema lockkit is missing or of another version: call pgstore.Migrate"}
)

// classes maps an SQLSTATE, or its first two characters, to a class. The whole SQLSTATE
// takes precedence.
var classes = map[string]class{
	"08": uncertain, // connection; poolers use it for a server's connection that broke
	"0A": standby,   // not supported: READ WRITE and SERIALIZABLE while the server is in recovery
	"21": refusal,   // cardinality
	"22": refusal,   // data
	"23": refusal,   // constraints
	"25": refusal,   // state of the transaction
	"28": refusal,   // the user's name or password
	"3D": refusal,   // no such database
	"3F": refusal,   // no such schema
	"40": refusal,   // rolled back
	"42": refusal,   // no such table, no right to it
	"53": refusal,   // out of memory, disk full
	"54": refusal,   // too complex
	"55": refusal,   // a row stayed locked for a second
	"57": uncertain, // shutdown, crash, dropped database: the transaction may be committed
	"58": uncertain, // system errors; poolers use it too
	"F0": uncertain, // configuration files
	"P0": refusal,   // raised in a function, for example of a trigger
	"XX": uncertain, // internal errors

	"25006": standby, // read-only: a standby, or a host name that now leads to another server
	"25P03": ended,   // idle in a transaction for too long
	"25P04": ended,   // in a transaction for too long
	"3F000": missing,
	"26000": rival,     // no such prepared statement
	"40001": rival,     // serialization failure
	"40003": uncertain, // the server does not know whether it was completed
	"40P01": rival,     // deadlock
	"42501": {unchanged: true, kept: true, advice: "the user lacks a right, Check says which GRANT is missing"},
	"42703": missing,                       // column
	"42704": missing,                       // type
	"42883": missing,                       // function
	"42P01": missing,                       // table
	"53300": ended,                         // too many connections
	"55000": ended,                         // the server is not in a state for the request
	"57014": refusal,                       // canceled, or timed out
	"57P03": {unchanged: true, away: true}, // the server starts, stops or recovers
	"57P05": ended,                         // the session was idle for too long
}

// classOf returns the class of err, and reports whether a server has sent err.
func classOf(err error) (class, bool) {
	var reply *pgconn.PgError
	ok := errors.As(err, &reply)
	if !ok || len(reply.Code) != 5 {
		return uncertain, ok
	}
	c, known := classes[reply.Code]
	if !known {
		c = classes[reply.Code[:2]]
	}
	switch {
	case reply.Routine == "RevalidateCachedQuery": // a prepared statement's table has changed
		c = ended
	case ofRows(err):
		c.advice = "row-level security keeps rows of the schema lockkit from the user: disable it there, or ALTER ROLE … BYPASSRLS"
	}
	return c, true
}

// ofRows reports whether the server has refused a statement because of row-level
// security. The SQLSTATE also stands for a missing right, and the text can be in any
// language. So ofRows compares the names of the server's functions that return such an
// error.
func ofRows(err error) bool {
	var reply *pgconn.PgError
	ok := errors.As(err, &reply)
	return ok && reply.Code == codeRights && (reply.Routine == "ExecWithCheckOptions" || reply.Routine == "check_enable_rls")
}

// verdict returns the error of a call that failed with err, an error of the server or of
// the connection. The result matches store.ErrUnavailable if certainly nothing has
// changed. verdict does not use pgconn.SafeToRetry, which also reports true for a
// connection that breaks during the read of an answer.
func verdict(err error) error {
	c, _ := classOf(err)
	switch {
	case err == nil:
		return nil
	case !c.unchanged:
		return brief.Error(err)
	case c.again:
		return fmt.Errorf("%w: %w: %w", store.ErrUnavailable, casstore.ErrConflict, brief.Error(err))
	case c.advice != "":
		return fmt.Errorf("%w: %s: %w", store.ErrUnavailable, c.advice, brief.Error(err))
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, brief.Error(err))
}

func hasCode(err error, code string) bool {
	var reply *pgconn.PgError
	ok := errors.As(err, &reply)
	return ok && reply.Code == code
}
