package pgstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/internal/table"
	"github.com/lockkit/lockkit/core/store"
)

// session has the known properties of a connection and its session.
type session struct {
	asked     bool              // direct is known
	direct    bool              // the connection leads to the server itself, and not to a pooler
	forgets   bool              // somebody else removes prepared statements from the session
	names     map[string]string // the names of prepared statements, by text
	committed bool              // its transactions are known to be READ COMMITTED by default
}

// sessionKey is the key of a session in the custom data of its connection.
const sessionKey = "github.com/lockkit/lockkit/core/pgstore"

// sessionOf returns the session of conn.
func sessionOf(conn *pgconn.PgConn) *session {
	s, ok := conn.CustomData()[sessionKey].(*session)
	if !ok {
		s = &session{names: make(map[string]string)}
		conn.CustomData()[sessionKey] = s
	}
	return s
}

// maxWords limits the bytes of a claim's key, lease and owner in a prepared statement.
// With this limit the message fits into one packet of 1,280 bytes, the minimum MTU of
// IPv6.
const maxWords = 640

// Take implements casstore.Usual.
func (p *place) Take(ctx context.Context, c store.Claim, version int64) (token uint64, ok bool, err error) {
	by, err := p.by(ctx, c)
	if err != nil {
		return 0, false, err
	}
	return by.Take(ctx, c, version)
}

// Give implements casstore.Usual.
func (p *place) Give(ctx context.Context, c store.Claim, version int64) (bool, error) {
	by, err := p.by(ctx, c)
	if err != nil {
		return false, err
	}
	return by.Give(ctx, c, version)
}

// by returns the Place with prepared statements if ctx and c allow them. Otherwise by
// returns the Place whose statements contain their values as literals. Prepared
// statements need all of these conditions:
//   - pgx would prepare statements by default;
//   - the key, the lease and the owner of c are short;
//   - statements need not set their isolation level;
//   - the session of the connection keeps its prepared statements. Behind a pooler the
//     next statement may be sent to another session.
//
// To recognize a pooler, by may send a query. If the query closes the connection, by
// returns the error of the query. The error matches store.ErrUnavailable, because
// nothing was sent for c.
func (p *place) by(ctx context.Context, c store.Claim) (*table.Place, error) {
	conn, ok := ctx.Value(connected{}).(*pgxpool.Conn)
	if !ok || p.isolated.Load() || conn.Conn().Config().DefaultQueryExecMode != pgx.QueryExecModeCacheStatement ||
		len(c.Key)+len(c.Lease)+len(c.Owner) > maxWords {
		return &p.Place, nil
	}
	pg := conn.Conn().PgConn()
	s := sessionOf(pg)
	if s.forgets {
		return &p.Place, nil
	}
	direct, err := s.isDirect(ctx, pg)
	switch {
	case direct:
		return &p.prepared, nil
	case err != nil && pg.IsClosed():
		p.note(ctx, err)
		return nil, unsent(err)
	}
	return &p.Place, nil
}

// isDirect reports whether conn, the connection of s, is known to lead to the server
// itself.
func (s *session) isDirect(ctx context.Context, conn *pgconn.PgConn) (bool, error) {
	if s.asked {
		return s.direct, nil
	}
	direct, err := isDirect(ctx, conn)
	s.asked, s.direct = err == nil, direct
	return direct, err
}

// isDirect reports whether a connection leads to the server itself. A pooler that shares
// its connections among clients reports a process ID of its own to each client.
func isDirect(ctx context.Context, conn *pgconn.PgConn) (bool, error) {
	pid, err := value(ctx, conn, "SELECT pg_catalog.pg_backend_pid()", 1)
	return err == nil && pid == strconv.Itoa(int(conn.PID())), err
}

// execPrepared executes a statement with arguments. Before the first use in a session
// it prepares the statement. The message that executes the statement is one write of
// one segment. So the server receives the whole message or nothing, as in the simple
// protocol.
func (p *place) execPrepared(ctx context.Context, conn *pgconn.PgConn, st dialect.Statement) (answer, error) {
	s := sessionOf(conn)
	name, ok := s.names[st.Text]
	if !ok {
		// The name is a hash of the text. So a statement that exists already, for
		// example after a Describe that failed, has this text.
		sum := sha256.Sum256([]byte(st.Text))
		name = "lockkit_" + hex.EncodeToString(sum[:16])
		if _, err := conn.Prepare(ctx, name, st.Text, nil); err != nil && !hasCode(err, codeStatementExists) {
			return answer{}, p.failed(ctx, conn, err, true)
		}
		s.names[st.Text] = name
	}
	values, formats := make([][]byte, len(st.Args)), make([]int16, len(st.Args))
	for i, arg := range st.Args {
		switch arg := arg.(type) {
		case []byte:
			values[i], formats[i] = arg, pgx.BinaryFormatCode
		case int64:
			values[i] = strconv.AppendInt(nil, arg, 10)
		}
	}
	r := conn.ExecPrepared(ctx, name, values, formats, nil).Read()
	if r.Err != nil {
		return answer{}, p.failed(ctx, conn, r.Err, false)
	}
	return answer{r.Rows, r.CommandTag.RowsAffected()}, nil
}

// failed returns the error of a statement whose preparation or execution failed with
// err.
func (p *place) failed(ctx context.Context, conn *pgconn.PgConn, err error, preparing bool) error {
	c, answered := classOf(err)
	if answered && !c.kept {
		shut(conn)
	}
	switch {
	case hasCode(err, codeSerialization):
		p.hasSnapshots(ctx, conn)
	case hasCode(err, codeNoStatement): // somebody has removed the statement from the session
		sessionOf(conn).forgets = true
	}
	if err = verdict(err); preparing {
		return unsent(err)
	}
	return err
}

// unsent returns err, the error of a statement that precedes the statement of a call.
// The call itself has changed nothing, so the result matches store.ErrUnavailable.
func unsent(err error) error {
	if errors.Is(err, store.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}
