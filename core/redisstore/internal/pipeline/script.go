package pipeline

import (
	"crypto/sha1"
	"encoding/hex"
)

// Script is a Lua program. A call sends its digest, and its text if the server does not
// know the digest.
type Script struct {
	source []byte
	sha    []byte // the SHA-1 under which servers cache it, in hex
}

// NewScript returns the script with this text, which must not change any more.
func NewScript(source []byte) *Script {
	var sum [sha1.Size]byte
	// Redis identifies a script by its SHA-1, which protects nothing here.
	unenforced(func() { sum = sha1.Sum(source) })
	return &Script{source: source, sha: []byte(hex.EncodeToString(sum[:]))}
}
