// Package leaseid creates the IDs of leases and owners, and extracts the process from
// them.
package leaseid

import (
	"crypto/rand"
	"strings"
)

// letters contains the characters of IDs, the alphabet of rand.Text. Each stands for
// five bits.
const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"

const (
	processLetters = 8  // the process, at the beginning of each ID
	secretLetters  = 26 // 130 random bits after them, so that an owner cannot be guessed
)

// NewProcess returns a new ID for a Locker. IDs of concurrent Lockers should differ.
func NewProcess() string { return rand.Text()[:processLetters] }

// New returns a new ID for a lease or its owner. It begins with the ID of its process.
// An ID has 130 random bits, so that IDs do not repeat.
func New(process string) string {
	var id [processLetters + secretLetters]byte
	random := id[copy(id[:], process):]
	rand.Read(random) // never fails
	for i, b := range random {
		random[i] = letters[b%byte(len(letters))]
	}
	return string(id[:])
}

// ProcessOf returns the process of an ID, or "" if id does not have the form of New's
// IDs.
func ProcessOf(id string) string {
	if len(id) != processLetters+secretLetters || strings.Trim(id, letters) != "" {
		return ""
	}
	return id[:processLetters]
}
