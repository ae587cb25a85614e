package testserver

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// wire cuts the data of one connection of a protocol into messages. Its two methods are
// called by a goroutine each.
type wire interface {
	request(r *bufio.Reader) (message, error)
	reply(r *bufio.Reader) (message, error)
}

// message is a part of the data in one direction.
type message struct {
	raw     []byte
	request *Request // nil for a message that is neither counted nor answered
	id      int32    // a reply has that of its request
	came    time.Time

	// Of replies.
	answers bool // it belongs to a request
	last    bool // it is the end of the answer to the request
	event   bool // it answers nothing
}

// bytesWire is the wire of any protocol.
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

// readSized reads a message that begins with head bytes and then its size. counted
// bytes of the size are those of the size itself.
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
