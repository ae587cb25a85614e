package once

// StoreKey returns the key of a call's record.
func StoreKey(c Call) string { return c.storeKey() }

// The states of a record.
const (
	Begun         = begun
	Failed        = failed
	Done          = done
	Unreplayable  = unreplayable
	Indeterminate = indeterminate
)

// Encode returns the encoded record of a call.
func Encode(c Call, s state, settled int, value []byte) []byte {
	return encode(&c, s, settled, value)
}

// Decoded is a decoded record.
type Decoded struct {
	Call     Call
	Settled  int
	Value    []byte
	Finished bool
	again    []byte
}

// Again returns the record, encoded again.
func (d Decoded) Again() []byte { return d.again }

// Decode decodes a record.
func Decode(b []byte) (Decoded, error) {
	r, err := decode(b)
	if err != nil {
		return Decoded{}, err
	}
	c := Call{string(r.name), string(r.scope), string(r.key), r.fingerprint}
	return Decoded{c, r.settled, r.value, r.state.finished(), encode(&c, r.state, r.settled, r.value)}, nil
}
