// Package sqlstore keeps locks in a SQL database behind database/sql: MariaDB 10.6 and
// later, MySQL 8.0 and later, PostgreSQL 14 and later, and SQLite 3.35 and later. It imports
// no driver.
//
// A key is a row. The usual lock is one statement each way, and everything else is a read
// and a compare-and-set. No row is locked between two round trips, and no function is
// needed in the database. Nothing depends on the isolation level, the time zone, the SQL
// mode or the driver's parameters, except that each statement must commit by itself.
package sqlstore
