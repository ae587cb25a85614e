package pgstore

import (
	"encoding/hex"
	"strconv"
)

// statement is the call of a function as SQL text. Keys and other bytes are written in hex, so
// they need no quoting and do not depend on the encoding and other settings of the connection.
//
// It is sent in the simple protocol: the server gets the whole call or nothing of it. In the
// extended protocol a client that vanishes before its last message leaves a transaction
// open, with the row of a lock locked.
type statement []byte

// call begins the call of a function; end completes it.
func call(function string) statement {
	st := make(statement, 0, 512)
	st = append(st, "SELECT * FROM lockkit."...)
	return append(append(st, function...), '(')
}

func (st statement) comma() statement {
	if st[len(st)-1] != '(' && st[len(st)-1] != '[' {
		return append(st, ',')
	}
	return st
}

func (st statement) bytes(b []byte) statement {
	st = append(st.comma(), "decode('"...)
	st = hex.AppendEncode(st, b)
	return append(st, "','hex')"...)
}

func (st statement) text(s string) statement { return st.bytes([]byte(s)) }

// word adds a text as it is. It must have no character with a meaning in SQL.
func (st statement) word(s string) statement {
	return append(append(append(st.comma(), '\''), s...), '\'')
}

func (st statement) num(n int64) statement {
	return append(strconv.AppendInt(st.comma(), n, 10), "::bigint"...)
}

func (st statement) bool(b bool) statement { return strconv.AppendBool(st.comma(), b) }

func (st statement) null(typ string) statement {
	return append(append(st.comma(), "NULL::"...), typ...)
}

func (st statement) end() statement { return append(st, ')') }
