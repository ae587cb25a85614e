package testserver

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// These are commands of MySQL's protocol. The proxy counts all of them except comQuit.
const (
	comQuit    = 0x01
	comQuery   = 0x03
	comPing    = 0x0e
	comPrepare = 0x16
	comExecute = 0x17
)

// These are capabilities of a client of MySQL's protocol.
const (
	canDatabase        = 1 << 3
	canProtocol41      = 1 << 9
	canSecure          = 1 << 15
	canMultiStatements = 1 << 16
	canMultiResults    = 1 << 17
	canPlugin          = 1 << 19
	canDeprecateEOF    = 1 << 24 // a result has one end packet, and none after its columns
)

// moreResults is the status flag of a server that continues with another result.
const moreResults = 8

// mysqlWire splits MySQL's protocol into messages. A packet consists of three bytes of
// length, a sequence number and its content. A client sends a command after it has
// received the whole reply to the previous command. The packet of a command has number
// 0.
type mysqlWire struct {
	command atomic.Int32 // the last command; 0 until the session is open
	short   atomic.Bool  // results have one end packet
}

func (w *mysqlWire) request(r *bufio.Reader) (message, error) {
	raw, err := readPacket(r)
	if err != nil {
		return message{}, err
	}
	if number := raw[3]; number != 0 || len(raw) < 5 { // part of the handshake, or of an upload
		if number == 1 && w.command.Load() == 0 && len(raw) >= 8 {
			w.short.Store(binary.LittleEndian.Uint32(raw[4:])&canDeprecateEOF != 0)
		}
		return message{raw: raw}, nil
	}
	m := message{raw: raw}
	switch raw[4] {
	case comQuery:
		m.request = &Request{Name: "query", Args: []string{string(raw[5:])}}
	case comPing:
		m.request = &Request{Name: "ping"}
	case comPrepare:
		m.request = &Request{Name: "prepare", Args: []string{"prepare", string(raw[5:])}}
	case comExecute:
		m.request = &Request{Name: "execute"}
	}
	w.command.Store(int32(raw[4]))
	return m, nil
}

// reply reads the whole reply to a command. Before the first command it reads single
// packets.
func (w *mysqlWire) reply(r *bufio.Reader) (message, error) {
	raw, err := readReply(r)
	if err != nil {
		return message{}, err
	}
	command := w.command.Load()
	if command == 0 {
		return message{raw: raw}, nil
	}
	m := message{raw: raw, answers: true, last: true}
	switch command {
	case comPrepare:
		err = w.prepared(&m, r)
	case comQuery, comExecute:
		err = w.results(&m, r)
	}
	return m, err
}

// prepared reads the rest of the reply to a prepare, after the first packet. The rest
// describes the statement's parameters and columns.
func (w *mysqlWire) prepared(m *message, r *bufio.Reader) error {
	body := m.raw[4:]
	if body[0] != 0 || len(body) < 9 {
		return nil
	}
	packets := 0
	for _, n := range []int{int(binary.LittleEndian.Uint16(body[5:])), int(binary.LittleEndian.Uint16(body[7:]))} {
		if packets += n; n > 0 && !w.short.Load() {
			packets++
		}
	}
	for range packets {
		if _, err := more(m, r); err != nil {
			return err
		}
	}
	return nil
}

// results reads the rest of the reply to a statement, after the first packet.
func (w *mysqlWire) results(m *message, r *bufio.Reader) error {
	body := m.raw[4:]
	for {
		status, err := uint16(0), error(nil)
		switch body[0] {
		case 0: // OK
			status = okStatus(body)
		case 0xff, 0xfb: // an error, or a request for a file
			return nil
		default:
			if status, err = w.rows(m, r); err != nil {
				return err
			}
		}
		if status&moreResults == 0 {
			return nil
		}
		if body, err = more(m, r); err != nil {
			return err
		}
	}
}

// rows reads columns and rows, and returns the status after them.
func (w *mysqlWire) rows(m *message, r *bufio.Reader) (status uint16, err error) {
	ends := 2
	if w.short.Load() {
		ends = 1
	}
	for ends > 0 {
		body, err := more(m, r)
		if err != nil {
			return 0, err
		}
		switch {
		case body[0] == 0xff:
			return 0, nil
		case body[0] != 0xfe || len(body) >= maxPacket: // a row of that size may begin with 0xfe
		case w.short.Load():
			ends, status = 0, okStatus(body)
		case len(body) >= 5:
			ends, status = ends-1, binary.LittleEndian.Uint16(body[3:])
		}
	}
	return status, nil
}

// more reads the next packet of a reply, and returns its content.
func more(m *message, r *bufio.Reader) ([]byte, error) {
	raw, err := readReply(r)
	if err != nil {
		return nil, err
	}
	m.raw = append(m.raw, raw...)
	return raw[4:], nil
}

// okStatus returns the status in an OK packet, where it follows two numbers.
func okStatus(body []byte) uint16 {
	rest := body[1:]
	for range 2 {
		_, rest = sizedNumber(rest)
	}
	if len(rest) < 2 {
		return 0
	}
	return binary.LittleEndian.Uint16(rest)
}

// maxPacket is the length of a packet that continues in the next packet.
const maxPacket = 1<<24 - 1

// readPacket reads a packet including its continuations, with all headers.
func readPacket(r *bufio.Reader) ([]byte, error) {
	var raw []byte
	for {
		head, err := r.Peek(4)
		if err != nil {
			return nil, err
		}
		size := int(head[0]) | int(head[1])<<8 | int(head[2])<<16
		at := len(raw)
		raw = append(raw, make([]byte, 4+size)...)
		if _, err := io.ReadFull(r, raw[at:]); err != nil {
			return nil, err
		}
		if size < maxPacket {
			return raw, nil
		}
	}
}

// readReply reads a packet like readPacket, and fails if the packet is empty. A server
// never sends an empty packet.
func readReply(r *bufio.Reader) ([]byte, error) {
	raw, err := readPacket(r)
	if err == nil && len(raw) == 4 {
		err = errors.New("testserver: an empty packet")
	}
	return raw, err
}

// sizedNumber reads a length-encoded integer of MySQL's protocol. It returns the number
// and the rest of b.
func sizedNumber(b []byte) (uint64, []byte) {
	if len(b) == 0 {
		return 0, nil
	}
	size := map[byte]int{0xfc: 2, 0xfd: 3, 0xfe: 8}[b[0]]
	if size == 0 {
		return uint64(b[0]), b[1:]
	}
	if len(b) < 1+size {
		return 0, nil
	}
	var all [8]byte
	copy(all[:], b[1:1+size])
	return binary.LittleEndian.Uint64(all[:]), b[1+size:]
}

// askMySQL runs statements on a new connection as the user root. It returns the first
// column of the last statement's rows.
func askMySQL(addr, database string, limit time.Duration, sql string) ([]string, error) {
	conn, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(limit))
	r := bufio.NewReader(conn)
	greeting, err := readReply(r)
	if err != nil {
		return nil, err
	}
	if greeting[4] == 0xff {
		return nil, errors.New(mysqlError(greeting[4:]))
	}
	hello := binary.LittleEndian.AppendUint32(nil, canDatabase|canProtocol41|canSecure|canMultiStatements|canMultiResults|canPlugin)
	hello = binary.LittleEndian.AppendUint32(hello, 1<<24)
	hello = append(hello, 45) // utf8mb4
	hello = append(hello, make([]byte, 23)...)
	hello = append(hello, "root\x00\x00"+database+"\x00mysql_native_password\x00"...)
	if err := writePacket(conn, 1, hello); err != nil {
		return nil, err
	}
	for {
		raw, err := readReply(r)
		if err != nil {
			return nil, err
		}
		switch raw[4] {
		case 0:
			// Otherwise the server logs an error.
			defer func() { _ = writePacket(conn, 0, []byte{comQuit}) }()
			return mysqlQuery(conn, r, sql)
		case 0xfe: // the server switches to another authentication method; the password is empty
			if err := writePacket(conn, raw[3]+1, nil); err != nil {
				return nil, err
			}
		default:
			return nil, errors.New(mysqlError(raw[4:]))
		}
	}
}

func mysqlQuery(conn net.Conn, r *bufio.Reader, sql string) (last []string, err error) {
	if err := writePacket(conn, 0, append([]byte{comQuery}, sql...)); err != nil {
		return nil, err
	}
	for status := uint16(moreResults); status&moreResults != 0; {
		raw, err := readReply(r)
		if err != nil {
			return nil, err
		}
		body := raw[4:]
		last = nil
		if body[0] == 0 {
			status = okStatus(body)
			continue
		}
		for ends := 2; ends > 0; {
			if body[0] == 0xff {
				return nil, errors.New(mysqlError(body))
			}
			if raw, err = readReply(r); err != nil {
				return nil, err
			}
			body = raw[4:]
			switch {
			case body[0] == 0xfe && len(body) == 5:
				ends, status = ends-1, binary.LittleEndian.Uint16(body[3:])
			case ends == 1 && body[0] == 0xfb:
				last = append(last, "")
			case ends == 1 && body[0] != 0xff:
				n, text := sizedNumber(body)
				last = append(last, string(text[:min(n, uint64(len(text)))]))
			}
		}
	}
	return last, nil
}

func writePacket(w io.Writer, number byte, body []byte) error {
	n := len(body)
	_, err := w.Write(append([]byte{byte(n), byte(n >> 8), byte(n >> 16), number}, body...))
	return err
}

// mysqlError returns the number and the text of an error packet. Between them, the packet
// can have a '#' and the five letters of the SQL state.
func mysqlError(body []byte) string {
	if len(body) < 9 || body[0] != 0xff {
		return fmt.Sprintf("an unknown reply %q", body)
	}
	text := body[3:]
	if text[0] == '#' {
		text = text[6:]
	}
	return fmt.Sprintf("%d: %s", binary.LittleEndian.Uint16(body[1:]), text)
}
