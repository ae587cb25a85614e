package pgstore

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
)

var errUnread = errors.New("the answer cannot be read")

// scan reads a row, whose columns are texts, into variables.
func scan(row [][]byte, to []any) error {
	if len(row) != len(to) {
		return fmt.Errorf("%w: %d columns for %d", errUnread, len(row), len(to))
	}
	for i, text := range row {
		var err error
		switch to := to[i].(type) {
		case *bool:
			*to = string(text) == "t"
		case *int64:
			*to, err = strconv.ParseInt(string(text), 10, 64)
		case *int:
			*to, err = strconv.Atoi(string(text))
		case *string:
			*to = string(text)
		case *[]byte:
			*to, err = binary(text)
		default:
			err = errUnread
		}
		if err != nil {
			return fmt.Errorf("%w: column %d", errUnread, i)
		}
	}
	return nil
}

// binary returns the bytes of a bytea from its text. The text is in hex or in the
// escape format, as the server's setting bytea_output says. binary returns nil for
// NULL.
func binary(text []byte) ([]byte, error) {
	if text == nil {
		return nil, nil
	}
	if len(text) > 1 && text[0] == '\\' && text[1] == 'x' {
		return hex.AppendDecode([]byte{}, text[2:])
	}
	plain := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] != '\\':
			plain = append(plain, text[i])
		case i+1 < len(text) && text[i+1] == '\\':
			plain = append(plain, '\\')
			i++
		default:
			if i+3 >= len(text) {
				return nil, errUnread
			}
			n, err := strconv.ParseUint(string(text[i+1:i+4]), 8, 8)
			if err != nil {
				return nil, err
			}
			plain = append(plain, byte(n))
			i += 3
		}
	}
	return plain, nil
}
