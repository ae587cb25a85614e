package dialect

import (
	"fmt"
	"strings"
)

// Server implements Dialect.
func (PostgreSQL) Server() Statement {
	return Statement{Text: "SELECT pg_catalog.current_setting('server_version')"}
}

// Server implements Dialect. By its documentation, ProxySQL itself answers a bare SELECT
// VERSION(), with a version from its settings. It passes the statement to the server if
// a comment precedes it. No test runs ProxySQL.
func (MySQL) Server() Statement { return Statement{Text: "/* of the server */ SELECT VERSION()"} }

// Server implements Dialect.
func (SQLite) Server() Statement { return Statement{Text: "SELECT sqlite_version()"} }

// Outdated implements Dialect.
func (PostgreSQL) Outdated(version string) string { return outdated("PostgreSQL", version, 14, 0) }

// Outdated implements Dialect. Some servers of MariaDB put 5.5.5- before their version.
func (MySQL) Outdated(version string) string {
	if strings.Contains(version, "MariaDB") {
		return outdated("MariaDB", strings.TrimPrefix(version, "5.5.5-"), 10, 6)
	}
	return outdated("MySQL", version, 8, 0)
}

// Outdated implements Dialect.
func (SQLite) Outdated(version string) string { return outdated("SQLite", version, 3, 35) }

// outdated returns the fault and its remedy if version is below major.minor. It returns
// "" if version does not begin with a number.
func outdated(name, version string, major, minor int) string {
	var first, second int
	if n, _ := fmt.Sscanf(version, "%d.%d", &first, &second); n == 0 || first > major || first == major && second >= minor {
		return ""
	}
	least := fmt.Sprint(major)
	if minor > 0 || name == "MySQL" {
		least = fmt.Sprintf("%d.%d", major, minor)
	}
	return fmt.Sprintf("the server is %s %s (at least %s): upgrade it", name, version, least)
}

// Hidden implements Dialect. A table is hidden if row-level security is active for the
// user, and no policy lets the user read. Hidden reads only the catalogs.
func (PostgreSQL) Hidden(tables ...string) Statement {
	return Statement{Text: `SELECT coalesce('row-level security hides ' || pg_catalog.string_agg('lockkit.' || c.relname, ', ' ORDER BY c.relname) ||
		' from the user: ' || pg_catalog.string_agg('ALTER TABLE lockkit.' || c.relname || ' DISABLE ROW LEVEL SECURITY', '; ' ORDER BY c.relname) ||
		'; or ALTER ROLE ' || pg_catalog.quote_ident(current_user) || ' BYPASSRLS', '')
	FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'lockkit'
	WHERE c.relname IN ('` + strings.Join(tables, "','") + `') AND pg_catalog.row_security_active(c.oid) AND NOT EXISTS (
		SELECT FROM pg_catalog.pg_policy p, pg_catalog.unnest(p.polroles) r
			WHERE p.polrelid = c.oid AND p.polpermissive AND p.polcmd IN ('r', '*')
				AND (r = 0 OR pg_catalog.pg_has_role(r, 'USAGE')))`}
}

// Hidden implements Dialect.
func (MySQL) Hidden(...string) Statement { return Statement{} }

// Hidden implements Dialect.
func (SQLite) Hidden(...string) Statement { return Statement{} }

// Creation implements Dialect.
func (PostgreSQL) Creation() string { return "GRANT CREATE ON DATABASE" }

// Creation implements Dialect.
func (MySQL) Creation() string { return "GRANT CREATE, SELECT, INSERT, UPDATE ON the database" }

// Creation implements Dialect.
func (SQLite) Creation() string { return "" }
