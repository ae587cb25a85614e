package guard

import "encoding/binary"

// decoder reads encoded values from the front of rest.
type decoder struct {
	rest   []byte
	broken bool
}

// number returns the next number. If there is no number, or if it exceeds the limit
// most, number returns 0 and sets broken.
func (d *decoder) number(most int) int {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 || n > uint64(most) {
		d.rest, d.broken = nil, true
		return 0
	}
	d.rest = d.rest[size:]
	return int(n)
}

func (d *decoder) text() string {
	n := d.number(len(d.rest))
	if n > len(d.rest) { // the length itself took some bytes
		d.rest, d.broken = nil, true
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}
