package mutants_test

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// switchVar is the environment variable with the number of the mutant that is switched
// on in a switched build.
const switchVar = "LOCKKIT_MUTANT"

// switched is one build with many mutants. One build for all saves time, because a build
// takes longer than most tests. A function that mutants change begins with a switch to
// its copies. Each mutant has one copy:
//
//	func (h *hold) due(now clock.Moment) bool {
//		if mutantOn == 3 {
//			return h.due_mutant3(now)
//		}
//		…
//
// An embedded file is read through a type that returns the copy of the mutant that is
// switched on.
type switched struct {
	root    string
	places  map[string]*place // by their names in the mutants
	numbers map[*mutant]int   // numbers of the mutants in the build
}

// place is a function or an embedded file that mutants change.
type place struct {
	file     string
	from, to int    // its position in the file
	text     string // its text
	head     string // the beginning of a function, up to its body
	name     int    // the end of the name in head
	call     string // the call of a copy: the receiver, %s for its name, the arguments
	copies   map[int]string
}

// newSwitched returns a build with the mutants that can be switched. Changes of
// constants, variables, types and parameters of functions cannot be switched.
func newSwitched(root string, mutants []*mutant) (*switched, error) {
	b := &switched{root, make(map[string]*place), make(map[*mutant]int)}
	for i, m := range mutants {
		copies := make(map[string]string)
		fits := true
		for _, e := range m.edits {
			p, err := b.place(e.place)
			if err != nil {
				return nil, fmt.Errorf("stale: %s: %s: %w", m.Breaks, e.place, err)
			}
			text := cmp.Or(copies[e.place], p.text)
			if n := strings.Count(text, e.from); n != 1 {
				return nil, fmt.Errorf("stale: %s: %s has the text %d times:\n%s", m.Breaks, e.place, n, e.from)
			}
			copies[e.place] = strings.Replace(text, e.from, e.to, 1)
			fits = fits && p.call != "" && strings.HasPrefix(copies[e.place], p.head)
		}
		if !fits {
			continue
		}
		b.numbers[m] = i + 1
		for name, text := range copies {
			b.places[name].copies[i+1] = text
		}
	}
	return b, nil
}

// place returns the place with this name.
func (b *switched) place(name string) (*place, error) {
	if p := b.places[name]; p != nil {
		return p, nil
	}
	file, text, from, to, err := find(b.root, name, nil)
	if err != nil {
		return nil, err
	}
	p := &place{file: file, from: from, to: to, text: text[from:to], copies: make(map[int]string)}
	if strings.HasSuffix(file, ".go") {
		p.parse()
	} else {
		p.call = "embedded"
	}
	b.places[name] = p
	return p, nil
}

// parse sets the call of a copy, if the function can call copies.
func (p *place) parse() {
	const before = "package p\n"
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, "", before+p.text, parser.SkipObjectResolution)
	if err != nil || len(tree.Decls) != 1 {
		return
	}
	d, ok := tree.Decls[0].(*ast.FuncDecl)
	if !ok {
		return
	}
	at := func(pos token.Pos) int { return set.Position(pos).Offset - len(before) }
	call := "%s"
	if d.Recv != nil {
		if len(d.Recv.List[0].Names) == 0 {
			return
		}
		call = d.Recv.List[0].Names[0].Name + ".%s"
	}
	if types := names(d.Type.TypeParams); len(types) > 0 {
		call += "[" + strings.Join(types, ", ") + "]"
	}
	args := names(d.Type.Params)
	if slices.Contains(args, "_") || d.Type.Params.NumFields() != len(args) {
		return // a parameter has no name
	}
	if n := len(d.Type.Params.List); n > 0 {
		if _, variadic := d.Type.Params.List[n-1].Type.(*ast.Ellipsis); variadic {
			args[len(args)-1] += "..."
		}
	}
	call += "(" + strings.Join(args, ", ") + ")"
	if d.Type.Results.NumFields() > 0 {
		call = "return " + call
	} else {
		call += "; return"
	}
	p.head, p.name, p.call = p.text[:at(d.Body.Lbrace)+1], at(d.Name.End()), call
}

// names returns the names of parameters.
func names(list *ast.FieldList) (all []string) {
	if list == nil {
		return nil
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			all = append(all, name.Name)
		}
	}
	return all
}

// code returns the function, which calls the copy of the mutant that is switched on,
// followed by the copies.
func (p *place) code() string {
	var calls, copies strings.Builder
	for _, n := range slices.Sorted(maps.Keys(p.copies)) {
		suffix := fmt.Sprintf("_mutant%d", n)
		name := p.head[strings.LastIndexAny(p.head[:p.name], " )\t")+1 : p.name]
		fmt.Fprintf(&calls, "\nif mutantOn == %d { "+p.call+" }", n, name+suffix)
		fmt.Fprintf(&copies, "\n\n%s%s%s", p.copies[n][:p.name], suffix, p.copies[n][p.name:])
	}
	return p.head + calls.String() + "\n" + p.text[len(p.head):] + copies.String()
}

// embeds matches the declaration of a variable with embedded files.
var embeds = regexp.MustCompile(`(?m)^(//go:embed .+\nvar )(\w+) embed\.FS$`)

// changed returns the files of the build that differ from the module's.
func (b *switched) changed() (map[string]string, error) {
	byFile := make(map[string][]*place)
	for _, p := range b.places {
		if len(p.copies) > 0 {
			byFile[p.file] = append(byFile[p.file], p)
		}
	}
	files := make(map[string]string)
	// texts has the texts of embedded files, by package, mutant and name.
	texts := make(map[string]map[int]map[string]string)
	for file, places := range byFile {
		if !strings.HasSuffix(file, ".go") {
			dir, name, err := b.embedding(file)
			if err != nil {
				return nil, err
			}
			if texts[dir] == nil {
				texts[dir] = make(map[int]map[string]string)
			}
			for n, text := range places[0].copies {
				if texts[dir][n] == nil {
					texts[dir][n] = make(map[string]string)
				}
				texts[dir][n][name] = text
			}
			continue
		}
		text, err := read(b.root, file, nil)
		if err != nil {
			return nil, err
		}
		// The last place comes first.
		slices.SortFunc(places, func(p, q *place) int { return q.from - p.from })
		for _, p := range places {
			text = text[:p.from] + p.code() + text[p.to:]
		}
		files[file] = text
		if dir := path.Dir(file); texts[dir] == nil {
			texts[dir] = make(map[int]map[string]string)
		}
	}
	for dir, embedded := range texts {
		if err := b.addSwitch(files, dir, embedded); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// embedding returns the package that embeds a file, and the file's name in it.
func (b *switched) embedding(file string) (dir, name string, err error) {
	for dir = path.Dir(file); dir != "."; dir = path.Dir(dir) {
		sources, err := filepath.Glob(filepath.Join(b.root, dir, "*.go"))
		if err != nil {
			return "", "", err
		}
		if len(sources) > 0 {
			return dir, strings.TrimPrefix(file, dir+"/"), nil
		}
	}
	return "", "", errors.New(file + " is in no package")
}

// addSwitch adds the code that reads the number of the mutant to the files of the
// package in dir. It also makes the package read its embedded files through the switch.
func (b *switched) addSwitch(files map[string]string, dir string, embedded map[int]map[string]string) error {
	sources, err := filepath.Glob(filepath.Join(b.root, dir, "*.go"))
	if err != nil {
		return err
	}
	sources = slices.DeleteFunc(sources, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	tree, err := parser.ParseFile(token.NewFileSet(), sources[0], nil, parser.PackageClauseOnly)
	if err != nil {
		return err
	}
	imports, more := "", ""
	if len(embedded) > 0 {
		imports = `"embed"`
		more = fmt.Sprintf(`
type mutantFiles struct{ embed.FS }

func (f mutantFiles) ReadFile(name string) ([]byte, error) {
	if text, ok := mutantTexts[mutantOn][name]; ok {
		return []byte(text), nil
	}
	return f.FS.ReadFile(name)
}

var mutantTexts = %#v
`, embedded)
		for _, source := range sources {
			file := dir + "/" + filepath.Base(source)
			text, err := read(b.root, file, files)
			if err != nil {
				return err
			}
			if embeds.MatchString(text) {
				files[file] = embeds.ReplaceAllString(text, "${1}${2}Embedded embed.FS\n\nvar ${2} = mutantFiles{${2}Embedded}")
			}
		}
	}
	files[dir+"/mutant_switch.go"] = fmt.Sprintf(`package %s

import (
	%s
	"os"
	"strconv"
)

var mutantOn, _ = strconv.Atoi(os.Getenv(%q))
%s`, tree.Name.Name, imports, switchVar, more)
	return nil
}
