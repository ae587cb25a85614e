package core_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// source is a Go file of the repository.
type source struct {
	path  string // from the top of the repository
	lines []string
	file  *ast.File
}

// fset has the positions in all sources.
var fset = token.NewFileSet()

// sources returns the Go files of all modules of the repository, without generated
// files and testdata. Tests must not change them.
var sources = sync.OnceValues(func() (all []source, err error) {
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if d.Name() == "testdata" || path != ".." && d.Name()[0] == '.' {
				return filepath.SkipDir
			}
			return nil
		case filepath.Ext(path) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err == nil && !ast.IsGenerated(file) {
			name := strings.TrimPrefix(filepath.ToSlash(path), "../")
			all = append(all, source{name, strings.Split(string(text), "\n"), file})
		}
		return err
	})
	return all, err
})

// TestComments_Names checks that each doc comment of a declaration begins with the name
// and a verb. A comment above a group of constants or variables is exempt. The comment
// of an example describes a scene, and is exempt too.
func TestComments_Names(t *testing.T) {
	t.Parallel()
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, s := range all {
		check := func(name string, doc *ast.CommentGroup) {
			if doc == nil || doc.Text() == "" || isExample(s.path, name) {
				return
			}
			if seen++; !beginsWell(name, doc.Text()) {
				first, _, _ := strings.Cut(doc.Text(), "\n")
				t.Errorf("%s:%d: the comment of %s begins with %q, want the name and a verb", s.path, fset.Position(doc.Pos()).Line, name, first)
			}
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				check(d.Name.Name, d.Doc)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					name, doc := "", (*ast.CommentGroup)(nil)
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						name, doc = spec.Name.Name, spec.Doc
					case *ast.ValueSpec:
						name, doc = spec.Names[0].Name, spec.Doc
					}
					if !d.Lparen.IsValid() {
						doc = d.Doc
					}
					if name != "" {
						check(name, doc)
					}
				}
			}
		}
	}
	if seen < 5000 {
		t.Errorf("found %d doc comments, want at least 5000", seen)
	}
}

func isExample(path, name string) bool {
	return strings.HasSuffix(path, "_test.go") && strings.HasPrefix(name, "Example")
}

// verb matches a verb after a name. pluralVerb, without noVerb, matches a verb after a
// name in the plural or after several names.
var (
	verb       = regexp.MustCompile(`^(?:[a-z]+s|can|cannot|may|must),?\s`)
	pluralVerb = regexp.MustCompile(`^[a-z]+\s`)
	moreNames  = regexp.MustCompile(`^(?:, \w+)*,? and \w+ `)
	noVerb     = regexp.MustCompile(`^(?:(?:is|are) for|an?|the|of|for|in|to)\s`)
)

// beginsWell reports whether text begins with name and a verb. "Name is for" only says
// where a thing belongs.
func beginsWell(name, text string) bool {
	rest, ok := strings.CutPrefix(text, name)
	if !ok {
		return false
	}
	if more := moreNames.FindString(rest); more != "" {
		rest = rest[len(more):]
		return pluralVerb.MatchString(rest) && !noVerb.MatchString(rest)
	}
	rest, ok = strings.CutPrefix(rest, " ")
	return ok && !noVerb.MatchString(rest) && (verb.MatchString(rest) || strings.HasSuffix(name, "s") && pluralVerb.MatchString(rest))
}

func TestBeginsWell(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       bool
	}{
		{"Do", "Do runs f.", true},
		{"Do", "Do acquires, runs f and releases.", true},
		{"Do", "Do\nruns f.", false},
		{"Do", "Runs f.", false},
		{"Do", "Do, unlike Try, waits.", false},
		{"Do", "Do not call it.", false},
		{"Does", "Does the work.", false},
		{"Do", "Do of the kit.", false},
		{"Cause", "Cause of the loss.", false},
		{"LockWait", "LockWait is for a wait.", false},
		{"holds", "holds end together.", true},
		{"pingEvery", "pingEvery and pingLimit limit the silence.", true},
		{"pause", "pause, wipe and end do not belong to a command.", true},
	} {
		if got := beginsWell(c.name, c.text); got != c.want {
			t.Errorf("%s: %q: got %v, want %v", c.name, c.text, got, c.want)
		}
	}
}

// maxComment is the last column of a comment with its own lines. maxTrailing is the last
// column of a comment behind code, and of code in a comment.
const maxComment, maxTrailing = 90, 100

// directive matches a comment for a tool.
var directive = regexp.MustCompile(`^//[a-z]+(:[a-z]|$)`)

// TestComments_Columns checks the last column of comments in Go files. Directives, lines
// with a URL, and the output of examples are exempt.
func TestComments_Columns(t *testing.T) {
	t.Parallel()
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		for _, group := range s.file.Comments {
			for _, c := range group.List {
				if text := strings.ToLower(c.Text); strings.HasPrefix(text, "// output:") || strings.HasPrefix(text, "// unordered output:") {
					break
				}
				if directive.MatchString(c.Text) {
					continue
				}
				from, to := fset.Position(c.Pos()), fset.Position(c.End())
				for n := from.Line; n <= to.Line; n++ {
					line, limit := s.lines[n-1], maxComment
					behind := n == from.Line && strings.TrimSpace(line[:from.Column-1]) != ""
					if behind || strings.HasPrefix(c.Text, "//\t") {
						limit = maxTrailing
					}
					if last := columns(line); last > limit && !strings.Contains(line, "://") {
						t.Errorf("%s:%d: the comment ends at column %d, want at most %d", s.path, n, last, limit)
					}
				}
			}
		}
	}
}

// scripts returns the files outside packages that have comments: the Makefile, .ci, the
// YAML files of .github, and .golangci.yml.
func scripts() ([]string, error) {
	files := []string{"../Makefile", "../.golangci.yml"}
	for _, dir := range []string{"../.ci", "../.github"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch ext := filepath.Ext(path); {
			case err != nil:
				return err
			case d.IsDir():
				if d.Name() == "api" {
					return filepath.SkipDir
				}
			case ext == ".yml" || dir == "../.ci" && ext == "":
				files = append(files, path)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// ownHash matches a comment with its own line, and behindHash a comment behind code. The
// help texts of the Makefile begin with ##.
var (
	ownHash    = regexp.MustCompile(`^\s*@?#[^!]`)
	behindHash = regexp.MustCompile("\\S\\s+# [^\"'`]*$")
)

// TestComments_Scripts checks the last column of comments in scripts.
func TestComments_Scripts(t *testing.T) {
	t.Parallel()
	files, err := scripts()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 15 {
		t.Errorf("found %d files, want at least 15: %q", len(files), files)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			limit := columns(line)
			switch {
			case strings.Contains(line, "://"):
			case ownHash.MatchString(line):
				limit = maxComment
			case behindHash.MatchString(line):
				limit = maxTrailing
			}
			if last := columns(line); last > limit {
				t.Errorf("%s:%d: the comment ends at column %d, want at most %d", file, i+1, last, limit)
			}
		}
	}
}

// columns returns the number of columns of line. A tab has four.
func columns(line string) int {
	return utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
}
