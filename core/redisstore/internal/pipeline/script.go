package pipeline

import (
	"crypto/sha1"
	"encoding/hex"
)

// Script is a Lua program. A server is sent its name, and its text if the server does
// not know the name.
type Script struct {
	source []byte
	sha    []byte // the name under which servers cache it, in hex
}

// NewScript returns the script with this text, which must not change any more.
func NewScript(source []byte) *Script {
	var sum [sha1.Size]byte
	// Redis names a script by its SHA-1, which secures nothing.
	unenforced(func() { sum = sha1.Sum(source) })
	return &Script{source: source, sha: []byte(hex.EncodeToString(sum[:]))}
}
