package pgstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/internal/table"
	"github.com/lockkit/lockkit/core/store"
)

// session is what is known of a connection.
type session struct {
	asked     bool              // whether it keeps what is prepared
	keeps     bool              // what is prepared
	names     map[string]string // of the statements that are prepared, by their texts
	committed bool              // its transactions are known to be READ COMMITTED by default
}

// sessionKey is that of the session in what pgx keeps of a connection.
const sessionKey = "github.com/lockkit/lockkit/core/pgstore"

func sessionOf(conn *pgconn.PgConn) *session {
	s, ok := conn.CustomData()[sessionKey].(*session)
	if !ok {
		s = &session{names: make(map[string]string)}
		conn.CustomData()[sessionKey] = s
	}
	return s
}

// maxWords is how long the key, the lease and the owner of a claim are together in a statement
// that is prepared: its message fits into one segment of 1,280 bytes, the least that IPv6 has.
const maxWords = 640

// Take implements casstore.Usual.
func (p *place) Take(ctx context.Context, c store.Claim, version int64) (token uint64, ok bool, err error) {
	return p.by(ctx, c).Take(ctx, c, version)
}

// Give implements casstore.Usual.
func (p *place) Give(ctx context.Context, c store.Claim, version int64) (bool, error) {
	return p.by(ctx, c).Give(ctx, c, version)
}

// by returns the Place whose statements are prepared, if the connection of ctx keeps these, or
// the one that has them in full. Statements are prepared if pgx would do so, the words of c are
// short, and the connection leads to the server itself: a pooler may give the next statement to
// another session.
func (p *place) by(ctx context.Context, c store.Claim) *table.Place {
	conn, ok := ctx.Value(connected{}).(*pgxpool.Conn)
	if !ok || p.isolated.Load() || conn.Conn().Config().DefaultQueryExecMode != pgx.QueryExecModeCacheStatement ||
		len(c.Key)+len(c.Lease)+len(c.Owner) > maxWords {
		return &p.Place
	}
	pg := conn.Conn().PgConn()
	s := sessionOf(pg)
	if !s.asked {
		direct, err := isDirect(ctx, pg)
		if err != nil {
			return &p.Place // which fails too, or works
		}
		s.asked, s.keeps = true, direct
	}
	if !s.keeps {
		return &p.Place
	}
	return &p.prepared
}

// isDirect reports whether a connection leads to the server itself. A pooler that gives its
// connections to others in turn has given this one a number of its own.
func isDirect(ctx context.Context, conn *pgconn.PgConn) (bool, error) {
	a, err := results(ctx, conn, "SELECT pg_catalog.pg_backend_pid()", 1)
	if err != nil {
		return false, err
	}
	return string(a.rows[0][0]) == strconv.Itoa(int(conn.PID())), nil
}

// execPrepared executes a statement with arguments, which it prepares with its first use in a
// session. The message that executes it is one write. So the server gets all of it or nothing, as
// with a text, where it fits into one segment.
func (p *place) execPrepared(ctx context.Context, conn *pgconn.PgConn, st dialect.Statement) (answer, error) {
	s := sessionOf(conn)
	name, ok := s.names[st.Text]
	if !ok {
		// A statement that is there already, as after a Describe that has failed, has this text.
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

// failed is the error of a statement that is prepared or executed.
func (p *place) failed(ctx context.Context, conn *pgconn.PgConn, err error, preparing bool) error {
	c, answered := classOf(err)
	if answered && !c.kept {
		shut(conn)
	}
	switch {
	case hasCode(err, codeSerialization):
		p.hasSnapshots(ctx, conn)
	case hasCode(err, codeNoStatement): // somebody has taken it out of the session
		sessionOf(conn).keeps = false
	}
	err = verdict(err)
	if preparing && !errors.Is(err, store.ErrUnavailable) {
		err = errors.Join(store.ErrUnavailable, err)
	}
	return err
}
