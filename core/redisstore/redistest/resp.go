package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// frame is one command or reply as it travels.
type frame struct {
	raw  []byte
	kind byte     // its first byte
	args []string // the strings in it, for a command its words
}

// readFrame reads one RESP2 or RESP3 value, whatever it contains.
func readFrame(r *bufio.Reader) (*frame, error) {
	f := &frame{}
	if err := f.value(r, 0); err != nil {
		return nil, err
	}
	f.kind = f.raw[0]
	return f, nil
}

func (f *frame) value(r *bufio.Reader, depth int) error {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return err
	}
	f.raw = append(f.raw, line...)
	if len(line) < 3 || depth > 16 {
		return fmt.Errorf("redistest: %q is not RESP", line)
	}
	head := string(line[1 : len(line)-2])
	switch line[0] {
	case '+', '-', ':', '_', ',', '#', '(':
		return nil
	case '$', '=', '!':
		n, err := strconv.Atoi(head)
		if err != nil || n < 0 {
			return err
		}
		start := len(f.raw)
		f.raw = append(f.raw, make([]byte, n+2)...)
		if _, err := io.ReadFull(r, f.raw[start:]); err != nil {
			return err
		}
		f.args = append(f.args, string(f.raw[start:start+n]))
		return nil
	case '*', '~', '>', '%', '|':
		n, err := strconv.Atoi(head)
		if err != nil {
			return err
		}
		if line[0] == '%' || line[0] == '|' {
			n *= 2
		}
		if line[0] == '|' {
			n++ // attributes precede the value that they describe
		}
		for range n {
			if err := f.value(r, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("redistest: %q is not RESP", line)
}

// word is the command's name in lower case.
func (f *frame) word() string {
	if len(f.args) == 0 {
		return ""
	}
	return strings.ToLower(f.args[0])
}

func errorFrame(text string) []byte {
	return []byte("-" + string(bytes.ReplaceAll([]byte(text), []byte("\r\n"), []byte(" "))) + "\r\n")
}
