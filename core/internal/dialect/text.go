package dialect

import (
	"encoding/hex"
	"strconv"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/store"
)

type text struct {
	b     []byte
	args  []any
	mark  func(n int) string // the placeholder of argument n; nil: values are literals
	quote [2]string          // the texts before and after bytes in hex
	bin   string             // the type after bytes
	int   string             // the type after numbers
	most  int                // the maximum bytes of a literal
}

func (t *text) add(parts ...string) *text {
	for _, p := range parts {
		t.b = append(t.b, p...)
	}
	return t
}

// maxLiteral is the maximum number of bytes of a value that MySQL's statements contain
// as a literal. A literal is in hex, and so twice as long. Longer values are arguments.
const maxLiteral = 64 << 10

// bytes adds a value. In hex a value needs no escapes, and does not depend on an
// encoding.
func (t *text) bytes(v []byte) *text {
	switch {
	case v == nil:
		return t.add("NULL", t.bin)
	case t.mark == nil && len(v) <= t.most:
		t.b = hex.AppendEncode(append(t.b, t.quote[0]...), v)
		return t.add(t.quote[1])
	}
	return t.arg(v, t.bin)
}

func (t *text) name(s string) *text { return t.bytes([]byte(s)) }

// word adds a text that needs no escapes.
func (t *text) word(s string) *text {
	if t.mark == nil {
		return t.add("'", s, "'::text")
	}
	return t.arg(s, "::text")
}

func (t *text) num(n int64) *text {
	if t.mark == nil {
		t.b = strconv.AppendInt(t.b, n, 10)
		return t.add(t.int)
	}
	return t.arg(n, t.int)
}

func (t *text) arg(v any, cast string) *text {
	t.args = append(t.args, v)
	if t.mark == nil {
		return t.add("?", cast)
	}
	return t.add(t.mark(len(t.args)), cast)
}

func (t *text) end() Statement { return Statement{string(t.b), t.args} }

// cell is a column and the function that adds its value.
type cell struct {
	column string
	add    func(t *text)
}

// cells returns the columns that Save writes, without the name.
func cells(e *casstore.Entry) []cell {
	num := func(n int64) func(*text) { return func(t *text) { t.num(n) } }
	bin := func(v []byte) func(*text) { return func(t *text) { t.bytes(v) } }
	word := func(v string) func(*text) {
		if v == "" {
			return bin(nil)
		}
		return bin([]byte(v))
	}
	a := &e.Alone
	all := []cell{
		{"version", num(e.Version)}, {"token", num(int64(a.Token))}, {"lease", word(a.Lease)}, {"owner", word(a.Owner)},
		{"since", num(micros(a.Since))}, {"until", num(micros(a.Until))}, {"written", num(micros(a.Written))},
		{"due", num(e.Due.UnixMicro()/bucket + 1)}, {"state", bin(e.State)},
	}
	if !e.KeepValue {
		all = append(all, cell{"value", bin(e.Value)})
	}
	return all
}

// insert adds the statement for a new row. It compares the floor. A row that was made
// and deleted since the Load of old has raised the floor.
func (t *text) insert(locks, version, key string, old, e *casstore.Entry) *text {
	t.add("INSERT INTO ", locks, " (name")
	for _, c := range cells(e) {
		t.add(",", c.column)
	}
	t.add(") SELECT ").name(key)
	for _, c := range cells(e) {
		c.add(t.add(","))
	}
	return t.add(" FROM ", version, " f WHERE f.token=").num(int64(old.Floor))
}

// update adds the statement for a row that exists.
func (t *text) update(locks, key string, old, e *casstore.Entry) *text {
	t.add("UPDATE ", locks, " SET ")
	for i, c := range cells(e) {
		if i > 0 {
			t.add(",")
		}
		c.add(t.add(c.column, "="))
	}
	return t.add(" WHERE name=").name(key).add(" AND version=").num(old.Version)
}

// soon adds the condition that the server's time is at most a second after old.Now, and
// not before it. So a Save does not depend on the clock of another server. For a long
// value the limit is later, because the value takes longer to arrive.
func (t *text) soon(now string, old, e *casstore.Entry) *text {
	at := old.Now.UnixMicro()
	return t.add(" AND ", now, " BETWEEN ").num(at).add(" AND ").num(at + settled + int64(len(e.Value)/pace))
}

// written adds the statement that reads the names of the claims' rows with this
// version.
func (t *text) written(locks string, claims []store.Claim, version int64) *text {
	t.add("SELECT name FROM ", locks, " WHERE version=").num(version).add(" AND name IN (")
	for i, c := range claims {
		if i > 0 {
			t.add(",")
		}
		t.name(c.Key)
	}
	return t.add(")")
}

// these adds the condition on the names and leases of claims. Each column has the text
// table as its prefix.
func (t *text) these(claims []store.Claim, table string) *text {
	t.add("(")
	for i, c := range claims {
		if i > 0 {
			t.add(" OR ")
		}
		t.add(table, "name=").name(c.Key).add(" AND ", table, "lease=").name(c.Lease)
	}
	return t.add(")")
}

// rowColumns are the columns of the row k, which follow the time and the floor.
const rowColumns = ",k.name,COALESCE(k.version,0),COALESCE(k.token,0),k.lease,k.owner," +
	"COALESCE(k.since,0),COALESCE(k.until,0),COALESCE(k.written,0),COALESCE(k.due,0),k.state"

func valueColumn(wanted bool) string {
	if wanted {
		return ",k.value"
	}
	return ",NULL"
}

// thisVersion replaces the columns before the time in statements that do not check the
// version.
var thisVersion = "SELECT 1=1,1=1,1=1," + strconv.Itoa(SchemaVersion) + ",'',0,"

// noID replaces the ID of the tables and the maximum bytes of a statement.
const noID = "'',0"

// ofThisVersion is true if the tables are of SchemaVersion.
var ofThisVersion = "f.version=" + strconv.Itoa(SchemaVersion)

const clockAdvice = "the database's clock is more than a minute behind tokens that it has given: set it"
