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
	name   any    // a string, its first argument, for who reads SLOWLOG or MONITOR
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
	acquireScript = newScript("acquire", "clock.lua", "free.lua", "state.lua", "acquire.lua")
	extendScript  = newScript("extend", "clock.lua", "extend.lua")
	releaseScript = newScript("release", "clock.lua", "only.lua", "state.lua", "release.lua")

	handoverScript = newScript("handover", "clock.lua", "state.lua", "handover.lua")

	plainAcquireScript = newScript("acquire", "plain_acquire.lua")
	plainExtendScript  = newScript("extend", "plain_extend.lua")
	plainReleaseScript = newScript("release", "plain_release.lua")

	plainHandoverScript = newScript("handover", "plain_handover.lua")
)

//go:embed lua/*.lua
var luaFiles embed.FS

var luaNoise = regexp.MustCompile(`(?m)^\s*--.*\n|^\s*\n|^\s+`)

// newScript joins files to one script.
func newScript(name string, parts ...string) *script {
	s := &script{name: name}
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
