package testserver

import (
	"bufio"
	"encoding/binary"
	"fmt"
)

// zooKeeperWire splits ZooKeeper's protocol into messages, which begin with their size.
// A reply has the number of its request. The first message of each side opens the
// session.
type zooKeeperWire struct{ asked, answered bool }

func (w *zooKeeperWire) request(r *bufio.Reader) (message, error) {
	raw, err := readSized(r, 0, 0)
	if err != nil {
		return message{}, err
	}
	first := !w.asked
	w.asked = true
	if first || len(raw) < 12 {
		return message{raw: raw}, nil
	}
	request := parseZooKeeper(raw[4:])
	if request.Name == "ping" || request.Name == "auth" {
		return message{raw: raw}, nil
	}
	return message{raw: raw, request: &request, id: int32(binary.BigEndian.Uint32(raw[4:]))}, nil
}

func (w *zooKeeperWire) reply(r *bufio.Reader) (message, error) {
	raw, err := readSized(r, 0, 0)
	if err != nil {
		return message{}, err
	}
	first := !w.answered
	w.answered = true
	if first || len(raw) < 8 {
		return message{raw: raw}, nil
	}
	id := int32(binary.BigEndian.Uint32(raw[4:]))
	return message{raw: raw, id: id, answers: id != -1, last: true, event: id == -1}, nil
}

const opMulti = 14

func operation(op int32) string {
	names := map[int32]string{
		1: "create", 2: "delete", 3: "exists", 4: "getData", 5: "setData", 6: "getACL", 7: "setACL", 8: "getChildren", 9: "sync",
		11: "ping", 12: "getChildren", 13: "check", opMulti: "multi", 19: "createContainer", -11: "close", 100: "auth",
		101: "setWatches",
	}
	if name, ok := names[op]; ok {
		return name
	}
	return fmt.Sprint("operation ", op)
}

// parseZooKeeper parses the request b, which lacks its length.
func parseZooKeeper(b []byte) Request {
	op := int32(binary.BigEndian.Uint32(b[4:]))
	r := Request{Name: operation(op)}
	b = b[8:]
	if op != opMulti {
		r.Path, _ = sizedText(b)
		return r
	}
	// Each operation is a header (type, done, error) and a request, whose size depends
	// on the type.
	for len(b) >= 9 {
		name, done := operation(int32(binary.BigEndian.Uint32(b))), b[4] != 0
		if done {
			return r
		}
		r.Inner = append(r.Inner, name)
		path, rest := sizedText(b[9:])
		if r.Path == "" {
			r.Path = path
		}
		switch name {
		case "create":
			_, rest = sizedText(rest)
			if len(rest) < 4 {
				return r
			}
			n := int(binary.BigEndian.Uint32(rest))
			rest = rest[4:]
			for range n {
				if len(rest) < 4 {
					return r
				}
				_, rest = sizedText(rest[4:])
				_, rest = sizedText(rest)
			}
		case "setData":
			_, rest = sizedText(rest)
		}
		if len(rest) < 4 { // flags or version
			return r
		}
		b = rest[4:]
	}
	return r
}

// sizedText reads a string, or bytes, and returns it and the rest of b.
func sizedText(b []byte) (string, []byte) {
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
