package testserver

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"time"
)

// postgresWire splits PostgreSQL's protocol into messages, which begin with their type
// and size. The first message of a client has no type.
type postgresWire struct{ begun bool }

func (w *postgresWire) request(r *bufio.Reader) (message, error) {
	if !w.begun {
		w.begun = true
		raw, err := readSized(r, 0, 4)
		return message{raw: raw}, err
	}
	raw, err := readSized(r, 1, 4)
	if err != nil {
		return message{}, err
	}
	m := message{raw: raw}
	switch raw[0] {
	case 'Q':
		m.request = &Request{Name: "query", Args: []string{strings.TrimSuffix(string(raw[5:]), "\x00")}}
	case 'S':
		m.request = &Request{Name: "sync"}
	}
	return m, nil
}

func (w *postgresWire) reply(r *bufio.Reader) (message, error) {
	raw, err := readSized(r, 1, 4)
	if err != nil {
		return message{}, err
	}
	event := raw[0] == 'A'
	// 'Z' means that the server is ready for the next statement.
	return message{raw: raw, answers: !event, last: raw[0] == 'Z', event: event}, nil
}

// askPostgres runs statements on a new connection, and returns the first column of the
// last statement's rows. Without a statement it only connects.
func askPostgres(addr, database string, limit time.Duration, sql string) ([]string, error) {
	conn, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(limit))
	const version = 3 << 16
	hello := binary.BigEndian.AppendUint32(make([]byte, 4), version)
	hello = append(hello, "user\x00postgres\x00database\x00"+database+"\x00\x00"...)
	binary.BigEndian.PutUint32(hello, uint32(len(hello)))
	if _, err := conn.Write(hello); err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	if _, err := untilReady(r); err != nil || sql == "" {
		return nil, err
	}
	query := binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(len(sql)+5))
	if _, err := conn.Write(append(append(query, sql...), 0)); err != nil {
		return nil, err
	}
	return untilReady(r)
}

// untilReady reads until the server is ready for the next statement. It returns the
// first column of the last statement's rows.
func untilReady(r *bufio.Reader) (last []string, refused error) {
	var rows []string
	for {
		raw, err := readSized(r, 1, 4)
		if err != nil {
			return nil, errors.Join(refused, err)
		}
		switch body := raw[5:]; raw[0] {
		case 'D': // the number of columns, then the size and text of each
			text, _ := sizedText(body[2:])
			rows = append(rows, text)
		case 'C':
			last, rows = rows, nil
		case 'E':
			refused = errors.New(postgresError(body))
		case 'R':
			if binary.BigEndian.Uint32(body) != 0 {
				return nil, errors.New("the server wants a password")
			}
		case 'Z':
			return last, refused
		}
	}
}

// postgresError returns the text of an error, which consists of fields that each begin
// with a letter.
func postgresError(body []byte) string {
	for field := range bytes.SplitSeq(body, []byte{0}) {
		if text, ok := bytes.CutPrefix(field, []byte("M")); ok {
			return string(text)
		}
	}
	return "an error without a text"
}
