// Package leaseid makes the IDs of leases and owners, and reads the process from them.
package leaseid

import (
	"crypto/rand"
	"strings"
)

// letters are the characters of IDs, in the alphabet of rand.Text: five bits each.
const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"

const (
	processLetters = 8  // of the process, at the beginning of each ID
	secretLetters  = 26 // after them: 130 bits, so that an owner cannot be guessed
)

// NewProcess returns the ID of a Locker. No two of those that run at a time should have
// the same.
func NewProcess() string { return rand.Text()[:processLetters] }

// New returns an ID for a lease or its owner, which begins with the ID of its process. No
// two are the same.
func New(process string) string {
	var id [processLetters + secretLetters]byte
	random := id[copy(id[:], process):]
	rand.Read(random) // it does not fail
	for i, b := range random {
		random[i] = letters[b%byte(len(letters))]
	}
	return string(id[:])
}

// ProcessOf returns the process of an ID, or "" if New has not made it.
func ProcessOf(id string) string {
	if len(id) != processLetters+secretLetters || strings.Trim(id, letters) != "" {
		return ""
	}
	return id[:processLetters]
}
