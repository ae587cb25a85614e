package testserver

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// wire cuts the data of one connection of a protocol into messages. Each of its two
// methods is called by one goroutine.
type wire interface {
	request(r *bufio.Reader) (message, error)
	reply(r *bufio.Reader) (message, error)
}

// message is a part of the data in one direction.
type message struct {
	raw     []byte
	request *Request // nil for a message that the proxy does not count
	id      int32    // the ID of a request, or of the request that a reply answers
	came    time.Time

	// Only replies have these fields.
	answers bool // the message is part of the answer to a request
	last    bool // the message ends that answer
	event   bool // the message is a notification, which answers no request
}

// bytesWire passes on the bytes of any protocol, without recognizing requests.
type bytesWire struct{}

func (bytesWire) request(r *bufio.Reader) (message, error) {
	if _, err := r.Peek(1); err != nil {
		return message{}, err
	}
	raw := make([]byte, r.Buffered())
	_, err := io.ReadFull(r, raw)
	return message{raw: raw}, err
}

func (w bytesWire) reply(r *bufio.Reader) (message, error) { return w.request(r) }

// readSized reads a message that begins with head bytes and then its size. counted is 4
// if the size includes its own four bytes, and otherwise 0.
func readSized(r *bufio.Reader, head, counted int) ([]byte, error) {
	raw := make([]byte, head+4)
	if _, err := io.ReadFull(r, raw); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint32(raw[head:])) - counted
	if size < 0 || size > 1<<28 {
		return nil, fmt.Errorf("testserver: a message of %d bytes", size)
	}
	raw = append(raw, make([]byte, size)...)
	_, err := io.ReadFull(r, raw[head+4:])
	return raw, err
}
