package redisstore_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	scriptFile  = regexp.MustCompile(`newScript\("([^"]*)"\)`)
	luaIncludes = regexp.MustCompile(`(?m)^-- (\w+\.lua)$`)
	headerNames = regexp.MustCompile(`(\w+\.lua) \(([^)]*)\)`)
	luaDefined  = regexp.MustCompile(`(?m)^local (?:function )?(\w+(?:, \w+)*)`)
	luaBound    = regexp.MustCompile(`\b(?:local |for )(\w+(?:, \w+)*)`)
	luaParams   = regexp.MustCompile(`\bfunction(?: \w+)?\((\w+(?:, \w+)*)`)
	luaWord     = regexp.MustCompile(`(?:^|[^.\w])([A-Za-z_]\w*)`)
	luaText     = regexp.MustCompile(`'(?:\\.|[^'\\])*'|--.*`)
)

// luaFile is one file of a script, as its header and its code say.
type luaFile struct {
	header         string
	takes          map[string][]string // names by the file that defines them, from the header
	defines, binds []string            // names of the whole script; of any part of it, but for functions
	uses           []string
	includes       []string // files that stand in it
}

func readLua(t *testing.T, name string) luaFile {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("lua", name))
	if err != nil {
		t.Fatal(err)
	}
	f := luaFile{takes: map[string][]string{}}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "--") {
			break
		}
		f.header += " " + strings.TrimSpace(line[2:])
	}
	for _, m := range headerNames.FindAllStringSubmatch(f.header, -1) {
		f.takes[m[1]] = strings.Split(m[2], ", ")
	}
	code := luaText.ReplaceAllString(string(text), "")
	all := func(in *regexp.Regexp) (names []string) {
		for _, m := range in.FindAllStringSubmatch(code, -1) {
			names = append(names, strings.Split(m[1], ", ")...)
		}
		return names
	}
	for _, m := range luaIncludes.FindAllStringSubmatch(string(text), -1) {
		f.includes = append(f.includes, m[1])
	}
	f.defines, f.uses = all(luaDefined), all(luaWord)
	f.binds = append(all(luaBound), all(luaParams)...)
	return f
}

// The header of each file says its keys, arguments and answers, and one that stands in
// others what it takes from those before it.
func TestHeadersOfScripts(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("scripts.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range scriptFile.FindAllStringSubmatch(string(source), -1) {
		seen[m[1]] = true
		before := map[string]luaFile{}
		for _, name := range readLua(t, m[1]).includes {
			f := readLua(t, name)
			seen[name] = true
			for from, names := range f.takes {
				for _, n := range names {
					if !slices.Contains(before[from].defines, n) || !slices.Contains(f.uses, n) {
						t.Errorf("%s says that it takes %s of %s: that is not before it, or does not define it, or it is not used", name, n, from)
					}
				}
			}
			for from, source := range before {
				for _, n := range source.defines {
					if slices.Contains(f.uses, n) && !slices.Contains(f.binds, n) && !slices.Contains(f.takes[from], n) {
						t.Errorf("%s uses %s of %s, and its header does not say so", name, n, from)
					}
				}
			}
			before[name] = f
		}
	}
	files, err := filepath.Glob("lua/*.lua")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		for _, word := range []string{"KEYS[1]", "ARGV", "answer"} {
			if !strings.Contains(readLua(t, filepath.Base(file)).header, word) {
				t.Errorf("the header of %s says nothing of %s", file, word)
			}
		}
		if !seen[filepath.Base(file)] {
			t.Errorf("%s is in no script", file)
		}
	}
}
