package once

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/keys"
)

const (
	maxName  = 64 // bytes
	maxField = 512
)

// Call identifies one request for work. Calls with the same Name, Scope and Key are the
// same call, so all duplicates of a request need the same Name, Scope and Key.
type Call struct {
	// Name is the static label of the operation, such as "charge": 1 to 64 letters,
	// digits, '.', '_' and '-'. It appears in messages and events.
	Name string
	// Scope identifies the caller by a value that the caller cannot choose. Use the
	// authenticated tenant or account, and not a token that changes between retries.
	// Calls of different scopes never share an answer. Scope has at most 512 bytes of
	// UTF-8 without control characters. It may be empty if there is only one caller.
	Scope string
	// Key is the caller's own name for this call, such as an idempotency key. It has 1
	// to 512 bytes of UTF-8 without control characters.
	Key string
	// Fingerprint distinguishes duplicates from other requests under the same key. It
	// is a digest of the request, of at most 512 bytes. It is stored and compared
	// unchanged. So use a keyed digest if the request could be guessed from its digest.
	// An empty Fingerprint is compared like any other.
	Fingerprint []byte
}

// check returns core.ErrInvalid for a call that is not allowed. The error contains no
// value of the call.
func (c *Call) check() error {
	err := c.flaw()
	if err != nil {
		return fmt.Errorf("once: do: %w: %w", err, core.ErrInvalid)
	}
	return nil
}

func (c *Call) flaw() error {
	switch {
	case !keys.IsLabel(c.Name):
		return errors.New("name is not of the form [A-Za-z0-9._-]+")
	case len(c.Name) > maxName:
		return fmt.Errorf("name has %d bytes (at most %d)", len(c.Name), maxName)
	case c.Key == "":
		return errors.New("key is empty")
	case len(c.Fingerprint) > maxField:
		return fmt.Errorf("fingerprint has %d bytes (at most %d)", len(c.Fingerprint), maxField)
	}
	if err := checkText("scope", c.Scope); err != nil {
		return err
	}
	return checkText("key", c.Key)
}

func checkText(field, s string) error {
	switch {
	case len(s) > maxField:
		return fmt.Errorf("%s has %d bytes (at most %d)", field, len(s), maxField)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s is not valid UTF-8", field)
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return fmt.Errorf("%s contains control character %U", field, r)
		}
	}
	return nil
}

// storeKey returns the key of c's record. The digest covers each part with its length,
// so that no two different calls have the same input.
func (c *Call) storeKey() string {
	b := make([]byte, 0, 256) // usually enough; this buffer is not allocated on the heap
	for _, s := range [...]string{c.Name, c.Scope, c.Key} {
		b = appendField(b, s)
	}
	sum := sha256.Sum256(b)
	return core.Key("once", c.Name, hex.EncodeToString(sum[:]))
}
