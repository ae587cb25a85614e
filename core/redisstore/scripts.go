package redisstore

import (
	"bytes"
	"embed"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
)

// The first words of the scripts' answers.
const (
	okay int64 = iota
	busy
	lost
	heavy
	finished
	behind
)

// scripts contains the scripts for one form of keys. Each script consists of files, in
// order. The shortcuts come before the files that define functions. A script that
// returns in the shortcuts does not execute these definitions.
type scripts struct{ acquire, extend, release, show *pipeline.Script }

var (
	usualScripts = scripts{
		acquire: newScript("clock", "acquire_shortcuts", "crowd", "state", "messages", "waiters", "acquire"),
		extend:  newScript("clock", "extend_shortcuts", "crowd", "state", "extend"),
		release: newScript("clock", "release_shortcuts", "release_relay", "crowd", "state", "messages", "waiters", "release"),
		show:    newScript("clock", "crowd", "state", "show"),
	}
	// silentScripts replace scripts under WithoutScriptedWakeUps.
	silentScripts = scripts{
		acquire: newScript("clock", "acquire_shortcuts", "crowd", "state", "silent", "waiters", "acquire"),
		extend:  usualScripts.extend,
		release: newScript("clock", "release_shortcuts", "crowd", "state", "silent", "waiters", "release"),
		show:    usualScripts.show,
	}
	redissonScripts = scripts{
		acquire: newScript("redisson", "redisson_acquire"),
		extend:  newScript("redisson", "redisson_extend"),
		release: newScript("redisson", "redisson_release"),
		show:    newScript("redisson", "redisson_show"),
	}
	plainScripts = scripts{
		acquire: newScript("plain_acquire"),
		extend:  newScript("plain_extend"),
		release: newScript("plain_release"),
		show:    newScript("plain_show"),
	}

	cardScript = newScript("card")
)

func (c *config) scripts() scripts {
	switch {
	case c.plain:
		return plainScripts
	case c.redisson:
		return redissonScripts
	case c.silent:
		return silentScripts
	}
	return usualScripts
}

//go:embed lua/*.lua
var luaFiles embed.FS

// newScript returns the script that consists of these files. It removes comments and
// indentation, because the text is sent to servers that do not know the script.
func newScript(files ...string) *pipeline.Script {
	var text []byte
	for _, name := range files {
		for line := range bytes.Lines(luaFile(name)) {
			line = bytes.TrimLeft(line, "\t \n")
			if !bytes.HasPrefix(line, []byte("--")) {
				text = append(text, line...)
			}
		}
	}
	return pipeline.NewScript(text)
}

func luaFile(name string) []byte {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // the files are embedded in the program
	}
	return text
}

// acquireLetters and releaseLetters are the letters of the flags in the first argument
// of acquire and release, in the order of the fields below.
const (
	acquireLetters = "fwg"
	releaseLetters = "ul"
)

// acquireFlags are the flags that acquire.lua explains.
type acquireFlags struct {
	fair      bool // f
	wait      bool // w
	byMessage bool // g
}

// releaseFlags are the flags that release.lua explains.
type releaseFlags struct {
	undo bool // u
	left bool // l
}

// flagArgs contains the first argument of a script for each set of flags, prepared in
// advance. The argument is a verb, letters, and the values that all calls of a Store
// share. waiters.lua describes the argument.
type flagArgs []any

func newFlagArgs(verb, letters string, cluster bool, common string) flagArgs {
	w := make(flagArgs, 1<<len(letters))
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

func (w flagArgs) acquire(f acquireFlags) any { return w.word(f.fair, f.wait, f.byMessage) }

func (w flagArgs) release(f releaseFlags) any { return w.word(f.undo, f.left) }

// word returns the argument for flags, which are in the order of their letters.
func (w flagArgs) word(flags ...bool) any {
	set := 0
	for i, f := range flags {
		if f {
			set |= 1 << i
		}
	}
	return w[set]
}
