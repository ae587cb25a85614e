package once

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
)

type state byte

const (
	begun         state = 1 // a run began, and its result is unknown
	failed        state = 2 // fn failed, and the call can be run again
	done          state = 3 // done, with its answer
	unreplayable  state = 4 // done, without its answer
	indeterminate state = 5 // a run died midway, and is not run again
)

// finished reports whether a record in this state answers all later calls.
func (s state) finished() bool { return s == done || s == unreplayable || s == indeterminate }

// format is the first byte of every record. A program that finds another first byte
// must neither replay nor run the call.
const format = 1

// encode returns the record of c in state s. The number of attempts is not part of the
// record, because the store counts the attempts. settled is the number of the last
// attempt with a known result, or 0. If the store has counted further attempts before
// the current attempt, an attempt died midway. The record is
//
//	format, state, settled, name, scope, key, fingerprint, value
//
// The first two fields are one byte each, and settled is a uvarint. Each other field is
// the uvarint of its length and its bytes.
func encode(c *Call, s state, settled int, value []byte) []byte {
	n := 2 + 6*binary.MaxVarintLen32 + len(c.Name) + len(c.Scope) + len(c.Key) + len(c.Fingerprint) + len(value)
	b := append(make([]byte, 0, n), format, byte(s))
	b = binary.AppendUvarint(b, uint64(settled))
	b = appendField(b, c.Name)
	b = appendField(b, c.Scope)
	b = appendField(b, c.Key)
	b = appendField(b, c.Fingerprint)
	return appendField(b, value)
}

func appendField[T string | []byte](b []byte, field T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(field))), field...)
}

type record struct {
	state                                state
	settled                              int
	name, scope, key, fingerprint, value []byte
}

// decode decodes a record of encode, and fails for any other bytes. The result shares
// the memory of b.
func decode(b []byte) (record, error) {
	if len(b) < 2 {
		return record{}, recordError("is no record of a run")
	}
	if b[0] != format {
		return record{}, recordError(fmt.Sprintf("has format %d, this program knows %d", b[0], format))
	}
	r := record{state: state(b[1])}
	in := reader{rest: b[2:]}
	r.settled = in.number()
	for _, field := range [...]*[]byte{&r.name, &r.scope, &r.key, &r.fingerprint, &r.value} {
		*field = in.field()
	}
	switch {
	case in.bad || len(in.rest) > 0:
		return record{}, recordError("is damaged")
	case r.state < begun || r.state > indeterminate:
		return record{}, recordError(fmt.Sprintf("has the unknown state %d", r.state))
	}
	return r, nil
}

// reader reads the fields of a record from rest.
type reader struct {
	rest []byte
	bad  bool
}

// number reads a uvarint. Only the shortest form is valid.
func (in *reader) number() int {
	v, n := binary.Uvarint(in.rest)
	if in.bad || n <= 0 || v > math.MaxInt32 || n > 1 && in.rest[n-1] == 0 {
		in.bad = true
		return 0
	}
	in.rest = in.rest[n:]
	return int(v)
}

func (in *reader) field() []byte {
	n := in.number()
	if in.bad || n > len(in.rest) {
		in.bad = true
		return nil
	}
	field := in.rest[:n:n]
	in.rest = in.rest[n:]
	return field
}

// check returns an error unless r is the record of the call c, for a request with the
// same fingerprint.
func (r *record) check(c *Call) error {
	switch {
	case string(r.name) != c.Name, string(r.scope) != c.Scope, string(r.key) != c.Key:
		return recordError("belongs to another call")
	case !bytes.Equal(r.fingerprint, c.Fingerprint):
		return ErrMismatch
	}
	return nil
}
