package pgstore_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// posing is a connection to a server that reports another version.
type posing struct {
	net.Conn
	replies io.Reader
}

func (c posing) Read(b []byte) (int, error) { return c.replies.Read(b) }

// as returns a function that changes a pool's configuration, so that the server seems to
// report version.
func as(version string) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) {
		dial := config.ConnConfig.DialFunc
		config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			out, in := io.Pipe()
			go func() { in.CloseWithError(pose(conn, in, version)) }()
			return posing{conn, out}, nil
		}
	}
}

// pose forwards the messages of a server, and replaces the version in one of them.
func pose(server net.Conn, out io.Writer, version string) error {
	messages := pgproto3.NewFrontend(server, server)
	for {
		m, err := messages.Receive()
		if err != nil {
			return err
		}
		if s, ok := m.(*pgproto3.ParameterStatus); ok && s.Name == "server_version" {
			s.Value = version
		}
		raw, err := m.Encode(nil)
		if err != nil {
			return err
		}
		if _, err := out.Write(raw); err != nil {
			return err
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, version string
		fit           bool
	}{
		{"12", "12.22", false},
		{"13 of Debian", "13.23 (Debian 13.23-0+deb11u1)", false},
		{"14", "14.0", true},
		{"beta of 19", "19beta1", true},
		{"another format", "unknown", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			database := durable.Get(t).NewDatabase(t)
			pool := testclient.Postgres(t, database.URL(), as(c.version))
			err := pgstore.Migrate(t.Context(), pool)
			if c.fit {
				if err != nil {
					t.Errorf("migrate: got %v, want nil", err)
				}
				return
			}
			if !errors.Is(err, store.ErrUnsupported) || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "PostgreSQL "+c.version+" (at least 14)") {
				t.Errorf("migrate: got %v, want ErrUnsupported with the versions", err)
			}
			if schemas := database.Exec("SELECT nspname FROM pg_namespace WHERE nspname = 'lockkit'"); len(schemas) > 0 {
				t.Errorf("got schemas %v, want none", schemas)
			}
			err = newStore(t, pool).Check(t.Context())
			if err == nil || !strings.Contains(err.Error(), "PostgreSQL "+c.version+" (at least 14)") {
				t.Errorf("check: got %v, want the versions", err)
			}
		})
	}
}

func TestMigrate_RefusedSchema(t *testing.T) {
	t.Parallel()
	database := durable.Get(t).NewDatabase(t)
	database.Exec("CREATE SCHEMA lockkit; CREATE VIEW lockkit.locks AS SELECT 1 AS name")
	err := pgstore.Migrate(t.Context(), testclient.Postgres(t, database.URL()))
	if !errors.Is(err, store.ErrUnsupported) || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnsupported", err)
	}
	if err != nil && !strings.Contains(err.Error(), "refuses the schema") {
		t.Errorf("got %v, want that the schema is refused", err)
	}
	if tables := database.Exec("SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = 'lockkit' AND relkind = 'r'"); len(tables) > 0 {
		t.Errorf("got tables %v, want none", tables)
	}
}
