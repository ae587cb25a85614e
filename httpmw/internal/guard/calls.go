package guard

import (
	"encoding/binary"
	"math"
	"net/http"
	"slices"
	"strings"
)

// calls records a handler's calls of its writer, in order, so that they can be repeated
// with another writer. A writer that compresses, signs or counts depends on the status
// and the header at one of these calls.
type calls struct {
	list    []call
	headers []http.Header
	seen    http.Header // the header at the last call; this map is never changed
	begun   bool        // something was written
	most    int         // the maximum number of calls that are distinguished
	short   bool        // the list lacks some flushes
}

// call is one call of a writer. n is the status, the length of the written data, or the
// index in headers.
type call struct {
	kind callKind
	n    int
}

type callKind uint8

const (
	callHeader      callKind = iota // the handler changed the header
	callStatus                      // WriteHeader
	callNow                         // WriteHeaderNow
	callWrite                       // Write
	callWriteString                 // WriteString
	callFlush                       // Flush
)

func (k callKind) writes() bool { return k == callWrite || k == callWriteString }

// maxCalls limits the number of distinguished calls of a held response. maxKeptCalls
// limits the number of stored calls. The rest of the body is written in one call.
// Otherwise a handler that writes single bytes would use a lot of memory.
const (
	maxCalls     = 4096
	maxKeptCalls = 64
)

func (l *calls) add(kind callKind, n int) {
	last := len(l.list) - 1
	switch {
	case last < l.most || !l.begun:
		l.list = append(l.list, call{kind, n})
	case !kind.writes():
		l.short = l.short || kind == callFlush
	case l.list[last].kind.writes():
		l.list[last].n += n
	default:
		l.list = append(l.list, call{kind, n})
	}
}

// addHeader records the state of the header, which must not be changed afterwards.
func (l *calls) addHeader(h http.Header) {
	l.headers, l.seen = append(l.headers, h), h
	l.add(callHeader, len(l.headers)-1)
}

// play makes the calls on w. before is the header at the beginning, and body the data
// of all writes.
func (l *calls) play(w Writer, before http.Header, body []byte) {
	for _, c := range l.list {
		if c.kind == callHeader {
			update(w.Header(), before, l.headers[c.n])
			before = l.headers[c.n]
			continue
		}
		body = c.make(w, body)
	}
}

// make makes the call on w, and returns the rest of body.
func (c call) make(w Writer, body []byte) []byte {
	switch c.kind {
	case callStatus:
		w.WriteHeader(c.n)
	case callNow:
		w.WriteHeaderNow()
	case callWrite:
		_, _ = w.Write(body[:c.n:c.n])
		return body[c.n:]
	case callWriteString:
		_, _ = w.WriteString(string(body[:c.n]))
		return body[c.n:]
	case callFlush:
		w.Flush()
	}
	return body
}

// callsField is the name under which an answer stores the calls that wrote it. It is
// not a valid header name, so net/http drops the field if it is used as a header.
const callsField = ":calls"

// usual appends to list the calls by which gin's c.JSON and most other functions write
// an answer. In this list, callHeader sets only the field at n.
func (a *answer) usual(list []call) []call {
	list = append(list, call{callStatus, a.status})
	for i := range a.header {
		list = append(list, call{callHeader, i})
	}
	switch {
	case len(a.body) > 0:
		list = append(list, call{callWrite, len(a.body)})
	case a.written:
		list = append(list, call{callNow, 0})
	}
	return list
}

// note adds to the answer the calls that wrote it, if they are not the usual calls. The
// note has no flushes, and at most about maxKeptCalls calls. It records each header
// field at the first call at which the field has its final value.
func (a *answer) note(l *calls, after http.Header) {
	var few [8]call
	kept := calls{list: few[:0], most: maxKeptCalls}
	set := make([]bool, len(a.header))
	add := func(now http.Header) {
		for i, f := range a.header {
			if !set[i] && agree(f.name, now, after) {
				set[i] = true
				kept.add(callHeader, i)
			}
		}
	}
	for _, c := range l.list {
		switch c.kind {
		case callHeader:
			add(l.headers[c.n])
		case callFlush:
		default:
			kept.begun = kept.begun || c.kind != callStatus
			kept.add(c.kind, max(c.n, -1))
		}
	}
	add(after)
	var usual [8]call
	if slices.Equal(kept.list, a.usual(usual[:0])) {
		return
	}
	var b []byte
	for _, c := range kept.list {
		// n can be -1, for a status.
		b = binary.AppendUvarint(append(b, byte(c.kind)), uint64(c.n+1))
	}
	a.header = append(a.header, field{callsField, []string{string(b)}})
}

// agree reports whether two headers have the same values of name.
func agree(name string, one, other http.Header) bool {
	a, isOne := one[name]
	b, isOther := other[name]
	return isOne == isOther && slices.Equal(a, b)
}

// noted removes the note from the answer, and returns the calls that write the answer.
// Without a valid note these are the usual calls. chosen reports whether one of the
// calls sets the status. If no call sets the status, the outer writer chooses the
// status.
func (a *answer) noted() (list []call, chosen bool) {
	at := slices.IndexFunc(a.header, func(f field) bool { return f.name == callsField })
	if at < 0 {
		return a.usual(nil), true
	}
	d := decoder{rest: []byte(strings.Join(a.header[at].values, ""))}
	a.header = slices.Delete(slices.Clone(a.header), at, at+1)
	length, written, set, status := 0, false, make([]bool, len(a.header)), a.status
	for len(d.rest) > 0 && !d.broken {
		c := call{kind: callKind(d.number(int(callWriteString)))}
		c.n = d.number(math.MaxInt32) - 1
		switch {
		case c.n < 0 && c.kind != callStatus, c.kind == callHeader && (c.n >= len(set) || set[c.n]):
			return a.usual(nil), true
		case c.kind == callHeader:
			set[c.n] = true
		case c.kind == callStatus && c.n > 0 && !written:
			status, chosen = c.n, true
		case c.kind.writes():
			length, written = length+c.n, true
		case c.kind == callNow:
			written = true
		}
		if length > len(a.body) {
			break
		}
		list = append(list, c)
	}
	if d.broken || length != len(a.body) || written != a.written || status != a.status || slices.Contains(set, false) {
		return a.usual(nil), true
	}
	return list, chosen
}

// same reports whether two headers are equal. A name without values differs from a
// missing name.
func same(a, b http.Header) bool {
	if len(a) != len(b) {
		return false
	}
	for name, values := range a {
		if other, ok := b[name]; !ok || !slices.Equal(values, other) {
			return false
		}
	}
	return true
}

// update applies to h the difference between the headers from and to. The other headers
// in h stay, because an outer writer may have changed them.
func update(h, from, to http.Header) {
	for name := range from {
		if _, ok := to[name]; !ok {
			delete(h, name)
		}
	}
	for name, values := range to {
		old, was := from[name]
		switch added := len(old) < len(values) && slices.Equal(old, values[:len(old)]); {
		case was && slices.Equal(old, values):
		case added && !slices.Equal(old, h[name]) && (was || isList[name]):
			h[name] = append(slices.Clip(h[name]), values[len(old):]...)
		default:
			h[name] = slices.Clone(values)
		}
	}
}

// isList contains the headers to which several middlewares add values.
var isList = map[string]bool{"Set-Cookie": true, "Vary": true}
