package testserver

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// maxHTTPMessage is the maximum length of a body, or of one chunk of a chunked body, in
// bytes.
const maxHTTPMessage = 1 << 28

// httpWire splits HTTP/1.1 into messages. Replies arrive in the order of the requests.
type httpWire struct{}

func (httpWire) request(r *bufio.Reader) (message, error) {
	raw, err := readHTTPHeader(r)
	if err != nil {
		return message{}, err
	}
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil {
		return message{}, err
	}
	body, err := readHTTPBody(r, req.ContentLength, len(req.TransferEncoding) > 0)
	request := Request{Name: req.Method, Args: []string{req.Method, req.RequestURI}, Path: req.URL.Path}
	return message{raw: append(raw, body...), request: &request}, err
}

func (httpWire) reply(r *bufio.Reader) (message, error) {
	raw, err := readHTTPHeader(r)
	if err != nil {
		return message{}, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), nil)
	if err != nil {
		return message{}, err
	}
	body, err := readHTTPBody(r, resp.ContentLength, len(resp.TransferEncoding) > 0)
	return message{raw: append(raw, body...), answers: true, last: resp.StatusCode >= http.StatusOK}, err
}

// readHTTPHeader reads the first line and the header fields, with the empty line after
// them.
func readHTTPHeader(r *bufio.Reader) (raw []byte, err error) {
	for {
		line, err := r.ReadBytes('\n')
		raw = append(raw, line...)
		switch {
		case err != nil:
			return nil, err
		case len(bytes.TrimRight(line, "\r\n")) == 0:
			return raw, nil
		}
	}
}

// readHTTPBody reads a body of the given length, or a chunked body, as it was sent. A
// body without a length ends with the connection.
func readHTTPBody(r *bufio.Reader, length int64, chunked bool) (raw []byte, err error) {
	switch {
	case length > maxHTTPMessage:
		return nil, fmt.Errorf("testserver: a message of %d bytes", length)
	case length >= 0:
		raw = make([]byte, length)
		_, err = io.ReadFull(r, raw)
		return raw, err
	case !chunked:
		return io.ReadAll(io.LimitReader(r, maxHTTPMessage))
	}
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		raw = append(raw, line...)
		size, _, _ := strings.Cut(strings.TrimSpace(string(line)), ";")
		n, err := strconv.ParseInt(size, 16, 32)
		if err != nil || n < 0 || n > maxHTTPMessage {
			return nil, fmt.Errorf("testserver: a chunk of size %q", size)
		}
		if n == 0 {
			trailer, err := readHTTPHeader(r)
			return append(raw, trailer...), err
		}
		chunk := make([]byte, n+2) // including the line end
		if _, err := io.ReadFull(r, chunk); err != nil {
			return nil, err
		}
		raw = append(raw, chunk...)
	}
}
