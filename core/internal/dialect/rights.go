package dialect

// Right describes a right that a user of a store needs.
type Right struct {
	Try   string // a statement that changes nothing; it is refused to a user without the right
	Grant string // "GRANT … ON …", without the user
}

// rightsOn returns the rights to the tables of the locks and of the version. The sweep
// needs DELETE on the locks and UPDATE on the version.
func rightsOn(locks, version string) []Right {
	const columns = "name,version,token,since,until,written,due"
	return []Right{
		{"SELECT version FROM " + version + " WHERE 1=0", "GRANT SELECT ON " + version},
		{"UPDATE " + version + " SET token=0 WHERE 1=0", "GRANT UPDATE ON " + version},
		{"SELECT version FROM " + locks + " WHERE 1=0", "GRANT SELECT ON " + locks},
		{
			"INSERT INTO " + locks + " (" + columns + ") SELECT NULL,NULL,NULL,NULL,NULL,NULL,NULL FROM (SELECT 1 AS n) d WHERE n=0",
			"GRANT INSERT ON " + locks,
		},
		{"UPDATE " + locks + " SET due=0 WHERE 1=0", "GRANT UPDATE ON " + locks},
		{"DELETE FROM " + locks + " WHERE 1=0", "GRANT DELETE ON " + locks},
	}
}

// TokenRights implements Dialect.
func (PostgreSQL) TokenRights() string {
	return "GRANT USAGE ON SCHEMA lockkit and GRANT SELECT, INSERT, UPDATE ON lockkit.seen"
}

// TokenRights implements Dialect.
func (MySQL) TokenRights() string { return "GRANT SELECT, INSERT, UPDATE ON lockkit_seen" }

// TokenRights implements Dialect.
func (SQLite) TokenRights() string { return "" }

// CommitRights implements Dialect.
func (PostgreSQL) CommitRights() string {
	return "GRANT USAGE ON SCHEMA lockkit, GRANT SELECT ON lockkit.version and GRANT SELECT, UPDATE ON lockkit.locks"
}

// CommitRights implements Dialect.
func (MySQL) CommitRights() string {
	return "GRANT SELECT ON lockkit_version and GRANT SELECT, UPDATE ON lockkit_locks"
}

// CommitRights implements Dialect.
func (SQLite) CommitRights() string { return "" }
