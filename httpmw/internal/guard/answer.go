package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
)

// replayedHeader marks an answer that was given before.
const replayedHeader = "Idempotent-Replayed"

// keptHeaders are those that belong to the answer itself, and not to the
// connection, the moment, the caller or a middleware outside. Content-Encoding
// is among them because a handler that sets it has encoded what is kept.
var keptHeaders = []string{
	"Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location", "Content-Type",
	"Etag", "Last-Modified", "Link", "Location",
}

// answer is what a handler answered, as it is kept.
type answer struct {
	status int
	// written tells whether the header was written, and not left to what is outside.
	written bool
	header  []field
	body    []byte
}

// answer is what was held back, with those of its headers that are of names. It is
// not whole if it is not as long as it says. From now on it counts as kept.
func (w *Recorder) answer(names []string) (a answer, whole bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = true
	a = answer{status: w.status, written: w.log.begun, body: w.body}
	after := w.sent
	if !a.written {
		after = w.header
	}
	a.header = changed(w.before, after, names)
	if length := after.Get("Content-Length"); length != "" && a.written && bodyAllowed(a.status) {
		if length != strconv.Itoa(len(a.body)) {
			return a, false
		}
		a.header = append(a.header, field{"Content-Length", []string{length}})
	}
	a.note(&w.log, after)
	return a, true
}

// field is one header with all its values; none if the handler removed it, or
// set it to nil.
type field struct {
	name   string
	values []string
}

// answerVersion is the first byte of an encoded answer.
const answerVersion = 1

// encode makes of an answer:
//
//	version (1 byte), written (1 byte), status,
//	number of headers, for each: name, number of values, values
//	body
//
// Numbers are uvarints; strings have their length before them, but the body,
// which is the rest.
func (a answer) encode() []byte {
	n := 2 + 2*binary.MaxVarintLen16 + len(a.body)
	for _, f := range a.header {
		n += 2*binary.MaxVarintLen32 + len(f.name)
		for _, v := range f.values {
			n += binary.MaxVarintLen32 + len(v)
		}
	}
	b := append(make([]byte, 0, n), answerVersion, 0)
	if a.written {
		b[1] = 1
	}
	b = binary.AppendUvarint(b, uint64(a.status))
	b = binary.AppendUvarint(b, uint64(len(a.header)))
	for _, f := range a.header {
		b = appendString(b, f.name)
		b = binary.AppendUvarint(b, uint64(len(f.values)))
		for _, v := range f.values {
			b = appendString(b, v)
		}
	}
	return append(b, a.body...)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// errAnswer says that what is kept was not written by encode.
var errAnswer = errors.New("the answer that is kept cannot be read")

// decodeAnswer is the inverse of encode. The body stays in data.
func decodeAnswer(data []byte) (a answer, err error) {
	if len(data) < 2 || data[0] != answerVersion {
		return a, fmt.Errorf("%w: unknown version", errAnswer)
	}
	if data[1] > 1 {
		return a, errAnswer
	}
	d := decoder{rest: data[2:]}
	a.written = data[1] == 1
	a.status = d.number(999)
	for range d.number(len(d.rest)) {
		f := field{name: d.text()}
		for range d.number(len(d.rest)) {
			f.values = append(f.values, d.text())
		}
		a.header = append(a.header, f)
		if d.broken {
			break
		}
	}
	if d.broken || a.status < http.StatusContinue {
		return answer{}, errAnswer
	}
	a.body = d.rest
	return a, nil
}

// decoder takes encoded values off the front of rest.
type decoder struct {
	rest   []byte
	broken bool
}

// number is the next number, which is most at most; 0 if there is none.
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
	if n > len(d.rest) { // the length itself took some
		d.rest, d.broken = nil, true
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

// replay gives the answer again, by the calls by which it was given first.
func (a answer) replay(w Writer) {
	if w.Written() {
		return
	}
	list, chosen := a.noted()
	h, body, sized := w.Header(), a.body, false
	h.Set(replayedHeader, "true")
	if !chosen && w.Status() != a.status {
		w.WriteHeader(a.status) // what is outside had chosen it the first time
	}
	for _, c := range list {
		if c.kind == callHeader {
			a.header[c.n].set(h)
			continue
		}
		if c.kind != callStatus && !sized {
			a.size(w)
			sized = true
		}
		body = c.make(w, body)
	}
}

// foundOut is the length up to which net/http finds it out by itself.
const foundOut = 2048

// size says the length of the answer in the header of w, where net/http does not
// find it out by itself. Any other writer, which a middleware outside has put in its
// place, may send another length.
func (a answer) size(w Writer) {
	h := w.Header()
	if len(a.body) <= foundOut || !bare(w) || !bodyAllowed(a.status) {
		return
	}
	for _, other := range []string{"Content-Length", "Transfer-Encoding", "Trailer"} {
		if _, ok := h[other]; ok {
			return
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
}

// bare tells whether w is the framework's own writer on one of net/http's servers.
func bare(w Writer) bool {
	in, ok := w.(interface{ Unwrap() http.ResponseWriter })
	if own := reflect.TypeOf(w).String(); !ok || own != "*gin.responseWriter" && own != "*stdmw.outside" {
		return false
	}
	server := reflect.TypeOf(in.Unwrap())
	if server == nil {
		return false
	}
	switch server.String() {
	case "*http.response", "*http.http2responseWriter", "*http2.responseWriter":
		return true
	}
	return false
}

func (f field) set(h http.Header) {
	switch {
	case len(f.values) > 0:
		h[f.name] = f.values
	case len(h[f.name]) > 0:
		delete(h, f.name)
	default:
		h[f.name] = nil // not to be guessed by net/http either
	}
}

// changed are the headers of names that are not as they were before.
func changed(before, after http.Header, names []string) (fields []field) {
	for _, name := range names {
		values, is := after[name]
		if _, was := before[name]; is != was || !slices.Equal(values, before[name]) {
			fields = append(fields, field{name, slices.Clone(values)})
		}
	}
	return fields
}
