package zktest

import "encoding/binary"

// Op is what a request asks for.
type Op int32

// The requests that tests are about.
const (
	Create    Op = 1
	Delete    Op = 2
	Exists    Op = 3
	GetData   Op = 4
	SetData   Op = 5
	Sync      Op = 9
	Ping      Op = 11
	Children  Op = 12
	Multi     Op = 14
	Container Op = 19
	Close     Op = -11
	Auth      Op = 100
	Watches   Op = 101
)

// Request is one request of a client.
type Request struct {
	Op    Op
	Inner []Op   // of a Multi
	Path  string // of the first operation
}

// Creates tells whether the request creates a node, by itself or in a Multi.
func (r Request) Creates() bool {
	for _, op := range append([]Op{r.Op}, r.Inner...) {
		if op == Create {
			return true
		}
	}
	return false
}

// parse reads the frame of a request, without its length.
func parse(b []byte) Request {
	r := Request{Op: Op(int32(binary.BigEndian.Uint32(b[4:])))}
	b = b[8:]
	if r.Op != Multi {
		r.Path, _ = text(b)
		return r
	}
	// Each operation is a header (type, done, error) and its request, of which
	// the sizes differ.
	for len(b) >= 9 {
		op, done := Op(int32(binary.BigEndian.Uint32(b))), b[4] != 0
		if done {
			return r
		}
		r.Inner = append(r.Inner, op)
		path, rest := text(b[9:])
		if r.Path == "" {
			r.Path = path
		}
		switch op {
		case Create:
			_, rest = text(rest)
			if len(rest) < 4 {
				return r
			}
			n := int(binary.BigEndian.Uint32(rest))
			rest = rest[4:]
			for range n {
				if len(rest) < 4 {
					return r
				}
				_, rest = text(rest[4:])
				_, rest = text(rest)
			}
		case SetData:
			_, rest = text(rest)
		}
		if len(rest) < 4 { // flags or version
			return r
		}
		b = rest[4:]
	}
	return r
}

// text reads a string, or bytes, and returns what follows.
func text(b []byte) (string, []byte) {
	if len(b) < 4 {
		return "", nil
	}
	n := int32(binary.BigEndian.Uint32(b))
	if n < 0 {
		return "", b[4:]
	}
	if int(n) > len(b)-4 {
		return "", nil
	}
	return string(b[4 : 4+n]), b[4+n:]
}
