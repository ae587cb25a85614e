package redisstore

import (
	"crypto/fips140"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"regexp"
)

// script is a Lua program. The file of each says what it takes and answers.
type script struct {
	source []byte // without comments: it travels when a server does not know it
	sha    []byte // the name under which servers cache it, in hex
}

// The words with which scripts begin their answers.
const (
	okay int64 = iota
	busy
	lost
	heavy
	finished
)

var (
	acquireScript = newScript("clock.lua", "free.lua", "look.lua", "run.lua", "state.lua", "acquire.lua")
	extendScript  = newScript("clock.lua", "look.lua", "extend.lua")
	releaseScript = newScript("clock.lua", "only.lua", "look.lua", "relay.lua", "beside.lua", "state.lua", "release.lua")

	plainAcquireScript = newScript("plain_acquire.lua")
	plainExtendScript  = newScript("plain_extend.lua")
	plainReleaseScript = newScript("plain_release.lua")
)

//go:embed lua/*.lua
var luaFiles embed.FS

var luaNoise = regexp.MustCompile(`(?m)^\s*--.*\n|^\s*\n|^\s+`)

// newScript joins files to one script.
func newScript(parts ...string) *script {
	s := new(script)
	for _, p := range parts {
		text, err := luaFiles.ReadFile("lua/" + p)
		if err != nil {
			panic(err) // the files are part of the program
		}
		s.source = append(s.source, luaNoise.ReplaceAll(text, nil)...)
	}
	var sum [sha1.Size]byte
	// SHA-1 is what Redis names a script by, and secures nothing.
	fips140.WithoutEnforcement(func() { sum = sha1.Sum(s.source) })
	s.sha = []byte(hex.EncodeToString(sum[:]))
	return s
}

// whats are the first argument of a script for each set of its flags, made
// once: a verb, letters, and what all calls of a Store have in common. See state.lua.
type whats []any

func newWhats(verb, letters string, cluster bool, common string) whats {
	w := make(whats, 1<<len(letters))
	for set := range w {
		flags := ""
		for i, l := range letters {
			if set>>i&1 == 1 {
				flags += string(l)
			}
		}
		if cluster {
			flags += "c"
		}
		w[set] = verb + " " + flags + " " + common
	}
	return w
}

// word takes the flags in the order of their letters.
func (w whats) word(flags ...bool) any {
	set := 0
	for i, f := range flags {
		if f {
			set |= 1 << i
		}
	}
	return w[set]
}
