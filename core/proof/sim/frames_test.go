package sim_test

import (
	"bytes"
	"strconv"
	"strings"
)

// frame is one command as a client wrote it.
type frame struct {
	raw  []byte
	args []string
}

// cutFrame takes the first command off what a client wrote. It is false if that
// is not all there yet.
func cutFrame(buf []byte) (f frame, rest []byte, ok bool) {
	n, rest, ok := cutHead(buf, '*')
	if !ok {
		return frame{}, buf, false
	}
	for range n {
		var size int
		if size, rest, ok = cutHead(rest, '$'); !ok || len(rest) < size+2 {
			return frame{}, buf, false
		}
		f.args = append(f.args, string(rest[:size]))
		rest = rest[size+2:]
	}
	f.raw = buf[:len(buf)-len(rest)]
	return f, rest, true
}

// cutHead takes a line like *3 or $12 off buf.
func cutHead(buf []byte, kind byte) (n int, rest []byte, ok bool) {
	line, rest, ok := bytes.Cut(buf, []byte("\r\n"))
	if !ok {
		return 0, buf, false
	}
	n, err := strconv.Atoi(strings.TrimPrefix(string(line), string(kind)))
	if err != nil {
		panic("sim: " + strconv.Quote(string(line)) + " is no command")
	}
	return n, rest, true
}

// ofLock tells whether the command calls a script, or is the SET of an acquire.
func (f frame) ofLock() bool {
	if len(f.args) == 0 {
		return false
	}
	name := strings.ToLower(f.args[0])
	return strings.HasPrefix(name, "eval") || name == "set"
}

// greeting tells whether the command is one of those with which go-redis begins
// a connection.
func (f frame) greeting() bool {
	if len(f.args) == 0 {
		return false
	}
	switch strings.ToLower(f.args[0]) {
	case "hello", "client", "auth", "select":
		return true
	}
	return false
}
