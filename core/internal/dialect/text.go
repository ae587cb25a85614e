package dialect

import (
	"encoding/hex"
	"strconv"

	"github.com/lockkit/lockkit/core/store"
)

// text is a statement that is being written.
type text struct {
	b     []byte
	args  []any
	mark  func(n int) string // of the n-th argument; nil: values are literals
	quote [2]string          // what is around bytes in hex
	bin   string             // what follows bytes, to say their type
	int   string             // what follows numbers
}

func (t *text) add(parts ...string) *text {
	for _, p := range parts {
		t.b = append(t.b, p...)
	}
	return t
}

// maxLiteral is how long bytes may be as a literal, which doubles them.
const maxLiteral = 64 << 10

// bytes adds a value. In hex it needs no escapes, and does not depend on an encoding.
func (t *text) bytes(v []byte) *text {
	switch {
	case v == nil:
		return t.add("NULL", t.bin)
	case t.mark == nil && len(v) <= maxLiteral:
		t.b = hex.AppendEncode(append(t.b, t.quote[0]...), v)
		return t.add(t.quote[1])
	}
	return t.arg(v, t.bin)
}

func (t *text) name(s string) *text { return t.bytes([]byte(s)) }

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

// cell is a column of a row and how to add its value.
type cell struct {
	column string
	add    func(t *text)
}

// cells are what Save writes, apart from the name and the version.
func (r *Row) cells() []cell {
	num := func(n int64) func(*text) { return func(t *text) { t.num(n) } }
	bin := func(v []byte) func(*text) { return func(t *text) { t.bytes(v) } }
	all := []cell{
		{"token", num(r.Token)}, {"lease", bin(r.Lease)}, {"owner", bin(r.Owner)}, {"since", num(r.Since)},
		{"until", num(r.Until)}, {"written", num(r.Written)}, {"due", num(r.Until/bucket + 1)}, {"state", bin(r.State)},
	}
	if !r.Keep {
		all = append(all, cell{"answer", bin(r.Answer)})
	}
	return all
}

// insert adds the statement for a row that is new. The floor is compared: a row that came
// and went since old was loaded has raised it.
func (t *text) insert(locks, floor, key string, old, r *Row) *text {
	t.add("INSERT INTO ", locks, " (name,version")
	for _, c := range r.cells() {
		t.add(",", c.column)
	}
	t.add(") SELECT ").name(key).add(",").num(r.Version)
	for _, c := range r.cells() {
		c.add(t.add(","))
	}
	return t.add(" FROM ", floor, " f WHERE f.token=").num(old.Floor)
}

// update adds the statement for a row that is there.
func (t *text) update(locks, key string, old, r *Row) *text {
	t.add("UPDATE ", locks, " SET version=version+1")
	for _, c := range r.cells() {
		c.add(t.add(",", c.column, "="))
	}
	return t.add(" WHERE name=").name(key).add(" AND version=").num(old.Version)
}

// these adds the condition on the leases of claims, of a table that is named before each column.
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

// loadColumns are what Load reads of the row k and the floor f, apart from the answer.
const loadColumns = "f.token,COALESCE(k.version,0),COALESCE(k.token,f.token),k.lease,k.owner," +
	"COALESCE(k.since,0),COALESCE(k.until,0),COALESCE(k.written,0),k.state"

func answerColumn(wanted bool) string {
	if wanted {
		return ",k.answer"
	}
	return ",NULL"
}

const clockAdvice = "the database's clock is more than a minute behind tokens that it has given: set it"
