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

// replayedHeader marks a replayed response.
const replayedHeader = "Idempotent-Replayed"

// keptHeaders are the headers that belong to the response itself, and not to the
// connection, the time, the caller or an outer middleware. They include
// Content-Encoding, because a handler that sets Content-Encoding has encoded the stored
// body.
var keptHeaders = []string{
	"Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location", "Content-Type",
	"Etag", "Last-Modified", "Link", "Location",
}

// answer is a handler's response, as it is stored.
type answer struct {
	status int
	// written reports whether the handler wrote the header. Otherwise the outer writer
	// writes it.
	written bool
	header  []field
	body    []byte
}

// value returns the encoded response, with the headers in names that the handler has
// changed. ok is false if the response cannot be replayed. Otherwise it counts as stored
// after the call.
func (w *Recorder) value(names []string) (value []byte, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	value, ok = w.encoded(names)
	w.kept = w.kept || ok
	return value, ok
}

// encoded does the same as value, and the response does not count as stored. The caller
// holds the mutex.
func (w *Recorder) encoded(names []string) (value []byte, ok bool) {
	if w.passing {
		return nil, false
	}
	a, whole := w.answer(names)
	if value = a.encode(); !whole || len(value)-len(a.body) > maxKeptHeaders || len(value) > maxStored {
		return nil, false
	}
	return value, true
}

// answer returns the held response, with the headers in names that the handler has
// changed. whole is false if the body does not have the announced length. The caller
// holds the mutex.
func (w *Recorder) answer(names []string) (a answer, whole bool) {
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

// field is one header with all its values. There are no values if the handler removed
// the header, or set it to nil.
type field struct {
	name   string
	values []string
}

// answerVersion is the first byte of an encoded answer.
const answerVersion = 1

// encode returns the encoding of an answer:
//
//	version (1 byte), written (1 byte), status,
//	number of headers, for each: name, number of values, values
//	body
//
// Numbers are uvarints. A string is preceded by its length. The body has no length,
// because it is the rest of the encoding.
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

// errAnswer reports that a stored response was not written by encode.
var errAnswer = errors.New("the stored response cannot be read")

// decodeAnswer is the inverse of encode. The body of a is a part of data, not a copy.
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

// replay writes the response again, by the same calls as the first time.
func (a answer) replay(w Writer) {
	if w.Written() {
		return
	}
	list, chosen := a.noted()
	h, body, sized := w.Header(), a.body, false
	h.Set(replayedHeader, "true")
	if !chosen && w.Status() != a.status {
		w.WriteHeader(a.status) // an outer writer had chosen the first response's status
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

// foundOut is the maximum length of a body whose Content-Length net/http sets
// automatically.
const foundOut = 2048

// size sets the Content-Length of the response in the header of w, if net/http does not
// set it automatically. With the writer of an outer middleware it sets nothing, because
// that writer may send another length.
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

// bare reports whether w is the framework's own writer on one of net/http's servers.
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
		h[f.name] = nil // prevents net/http from guessing the value
	}
}

// changed returns those of the named headers that differ between the headers before and
// after.
func changed(before, after http.Header, names []string) (fields []field) {
	for _, name := range names {
		values, is := after[name]
		if _, was := before[name]; is != was || !slices.Equal(values, before[name]) {
			fields = append(fields, field{name, slices.Clone(values)})
		}
	}
	return fields
}
