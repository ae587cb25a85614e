package testserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// redisWire splits RESP2 or RESP3 into messages.
type redisWire struct {
	free atomic.Bool // the client has subscribed, so messages do not answer its commands one by one
}

func (w *redisWire) request(r *bufio.Reader) (message, error) {
	f, err := readRESP(r)
	if err != nil {
		return message{}, err
	}
	request := &Request{Name: lower(f.words), Args: f.words, Script: scriptName(f.words)}
	switch request.Name {
	case "subscribe", "psubscribe", "ssubscribe", "monitor":
		w.free.Store(true)
	}
	return message{raw: f.raw, request: request}, nil
}

func (w *redisWire) reply(r *bufio.Reader) (message, error) {
	f, err := readRESP(r)
	if err != nil {
		return message{}, err
	}
	pushed := f.raw[0] == '>'
	return message{raw: f.raw, answers: !pushed && !w.free.Load(), last: true, event: pushed}, nil
}

// scriptName returns the name of the script of package redisstore that a command calls,
// or "". The name is the first word of the first argument after the keys. A SET NX
// counts as the acquire of a plain key.
func scriptName(words []string) string {
	name := lower(words)
	if len(words) == 6 && name == "set" && words[3] == "nx" {
		return "acquire"
	}
	if len(words) < 5 || name != "evalsha" && name != "eval" {
		return ""
	}
	keys, err := strconv.Atoi(words[2])
	if err != nil || keys < 1 || len(words) <= 3+keys {
		return ""
	}
	switch name, _, _ := strings.Cut(words[3+keys], " "); name {
	case "acquire", "extend", "release":
		return name
	}
	return ""
}

// respValue is one value of RESP2 or RESP3.
type respValue struct {
	raw   []byte
	words []string // the strings in it; for a command, its words
	value any      // nil, string, int64, float64, bool, redisError, []any or map[any]any
}

func readRESP(r *bufio.Reader) (*respValue, error) {
	f := &respValue{}
	var err error
	f.value, err = f.read(r, 0)
	return f, err
}

func (f *respValue) read(r *bufio.Reader, depth int) (any, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	f.raw = append(f.raw, line...)
	if len(line) < 3 || depth > 16 {
		return nil, fmt.Errorf("testserver: %q is not RESP", line)
	}
	head := string(line[1 : len(line)-2])
	switch line[0] {
	case '+', '(':
		return head, nil
	case '-':
		return redisError(head), nil
	case '_':
		return nil, nil
	case '#':
		return head == "t", nil
	case ',':
		return strconv.ParseFloat(head, 64)
	case ':':
		return strconv.ParseInt(head, 10, 64)
	}
	n, err := strconv.Atoi(head)
	if err != nil {
		return nil, fmt.Errorf("testserver: %q is not RESP", line)
	}
	switch line[0] {
	case '$', '=', '!':
		return f.text(r, line[0], n)
	case '*', '~', '>', '%', '|':
		return f.list(r, line[0], n, depth)
	}
	return nil, fmt.Errorf("testserver: %q is not RESP", line)
}

// text reads a string of n bytes.
func (f *respValue) text(r *bufio.Reader, kind byte, n int) (any, error) {
	if n < 0 {
		return nil, nil
	}
	start := len(f.raw)
	f.raw = append(f.raw, make([]byte, n+2)...)
	if _, err := io.ReadFull(r, f.raw[start:]); err != nil {
		return nil, err
	}
	text := string(f.raw[start : start+n])
	f.words = append(f.words, text)
	switch {
	case kind == '!':
		return redisError(text), nil
	case kind == '=' && len(text) >= 4:
		return text[4:], nil // after "txt:"
	}
	return text, nil
}

// list reads n values, or n pairs of a map.
func (f *respValue) list(r *bufio.Reader, kind byte, n, depth int) (any, error) {
	if kind == '%' || kind == '|' {
		n *= 2
	}
	var all []any
	for range n {
		v, err := f.read(r, depth+1)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	switch {
	case n < 0:
		return nil, nil
	case kind == '|': // attributes precede the value that they describe
		return f.read(r, depth+1)
	case kind == '%':
		pairs := make(map[any]any)
		for i := 0; i < n; i += 2 {
			pairs[all[i]] = all[i+1]
		}
		return pairs, nil
	}
	return all, nil
}

// redisError is the error reply of a server.
type redisError string

func (e redisError) Error() string { return string(e) }

// askRedis sends one command on a new connection and returns the reply. It returns an
// error reply as a redisError.
func askRedis(addr string, limit time.Duration, args ...any) (any, error) {
	command := fmt.Appendf(nil, "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n*%d\r\n", len(args))
	for _, arg := range args {
		text := fmt.Sprint(arg)
		command = fmt.Appendf(command, "$%d\r\n%s\r\n", len(text), text)
	}
	conn, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(limit))
	if _, err := conn.Write(command); err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	if _, err := readRESP(r); err != nil { // reply to HELLO, which may be a refusal
		return nil, err
	}
	f, err := readRESP(r)
	if err != nil {
		return nil, err
	}
	if refusal, ok := f.value.(redisError); ok {
		return nil, refusal
	}
	return f.value, nil
}
