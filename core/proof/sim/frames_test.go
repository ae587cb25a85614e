package sim_test

import (
	"bytes"
	"strconv"
	"strings"
)

// frame is one command as the client wrote it.
type frame struct {
	raw  []byte
	args []string
}

// cutFrame cuts the first command off the bytes that a client wrote. It returns false
// while the command is incomplete.
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

// cutHead cuts a line like *3 or $12 off buf.
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

// ofLock reports whether the command calls a script, or is the SET of an acquire.
func (f frame) ofLock() bool {
	if len(f.args) == 0 {
		return false
	}
	name := strings.ToLower(f.args[0])
	return strings.HasPrefix(name, "eval") || name == "set"
}

// greeting reports whether go-redis sends the command at the start of a connection.
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
