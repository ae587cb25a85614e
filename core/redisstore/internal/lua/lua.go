// Package lua holds the scripts of the store, also for the test proxy, which
// tells them apart by name.
package lua

import (
	"crypto/fips140"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"regexp"
)

// The scripts. The file of each says what it takes and answers.
var (
	Acquire = load("acquire", "state.lua", "acquire.lua")
	Extend  = load("extend", "extend.lua")
	Release = load("release", "state.lua", "release.lua")

	PlainAcquire = load("acquire", "plain_acquire.lua")
	PlainExtend  = load("extend", "plain_extend.lua")
	PlainRelease = load("release", "plain_release.lua")
)

// All is every script.
func All() []*Script {
	return []*Script{Acquire, Extend, Release, PlainAcquire, PlainExtend, PlainRelease}
}

// Script is a Lua program.
type Script struct {
	Name   string
	Source []byte // without comments: it travels when a server does not know it
	SHA    []byte // the name under which servers cache it, in hex
}

//go:embed *.lua
var files embed.FS

var noise = regexp.MustCompile(`(?m)^\s*--.*\n|^\s*\n|^\s+`)

// load joins files to one script.
func load(name string, parts ...string) *Script {
	s := &Script{Name: name}
	for _, p := range parts {
		text, err := files.ReadFile(p)
		if err != nil {
			panic(err) // the files are part of the program
		}
		s.Source = append(s.Source, noise.ReplaceAll(text, nil)...)
	}
	var sum [sha1.Size]byte
	// SHA-1 is what Redis names a script by, and secures nothing.
	fips140.WithoutEnforcement(func() { sum = sha1.Sum(s.Source) })
	s.SHA = []byte(hex.EncodeToString(sum[:]))
	return s
}
