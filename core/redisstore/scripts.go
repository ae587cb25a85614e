package redisstore

import (
	"crypto/fips140"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"regexp"
)

var (
	//go:embed lua/state.lua
	stateLua string
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/extend.lua
	extendLua string
	//go:embed lua/release.lua
	releaseLua string

	//go:embed lua/plain_acquire.lua
	plainAcquireLua string
	//go:embed lua/plain_extend.lua
	plainExtendLua string
	//go:embed lua/plain_release.lua
	plainReleaseLua string
)

var (
	acquireScript = newScript(stateLua, acquireLua)
	extendScript  = newScript(extendLua)
	releaseScript = newScript(stateLua, releaseLua)

	plainAcquireScript = newScript(plainAcquireLua)
	plainExtendScript  = newScript(plainExtendLua)
	plainReleaseScript = newScript(plainReleaseLua)
)

// script is a Lua program and the name under which a server caches it.
type script struct {
	source, sha []byte
}

var luaComments = regexp.MustCompile(`(?m)^\s*--.*\n|^\s*\n|^\s+`)

// newScript joins parts to one script. Comments stay here: the text travels
// whenever a server does not know the script.
func newScript(parts ...string) *script {
	var source []byte
	for _, p := range parts {
		source = append(source, luaComments.ReplaceAllString(p, "")...)
	}
	var sum [sha1.Size]byte
	// SHA-1 is what Redis names a script by, and secures nothing.
	fips140.WithoutEnforcement(func() { sum = sha1.Sum(source) })
	return &script{source: source, sha: []byte(hex.EncodeToString(sum[:]))}
}
