package core

import (
	"crypto/rand"
	"strings"
)

// letters are what IDs are made of, in the alphabet of rand.Text: five bits each.
const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"

const (
	processLetters = 8  // of the process, at the beginning of each ID
	secretLetters  = 26 // after them: 130 bits, so that an owner cannot be guessed
)

// newProcess is the ID of a Locker, which no two of those that run at a time should
// have.
func newProcess() string { return rand.Text()[:processLetters] }

// newID names a lease, or its owner: no two have the same, and which process it is
// is told by its beginning.
func (l *Locker) newID() string {
	var id [processLetters + secretLetters]byte
	random := id[copy(id[:], l.process):]
	rand.Read(random) // it does not fail
	for i, b := range random {
		random[i] = letters[b%byte(len(letters))]
	}
	return string(id[:])
}

// ProcessOf is the ID of the process (to be exact, of its Locker) that made a claim
// with this Claim.Lease, 8 letters and digits; "" for a lease that no Locker has named.
// It is for stores that show their holds to operators. Unlike the lease it is no secret.
func ProcessOf(lease string) string {
	if len(lease) != processLetters+secretLetters || strings.Trim(lease, letters) != "" {
		return ""
	}
	return lease[:processLetters]
}
