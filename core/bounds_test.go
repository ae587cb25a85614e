package core_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"
)

// units has the number of bytes or nanoseconds in each unit of PROOF.md.
var units = map[string]int64{
	"": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20,
	"ms": int64(time.Millisecond), "s": int64(time.Second), "min": int64(time.Minute), "h": int64(time.Hour),
}

// cited matches a number that is followed by the name of its constant: 10 ms
// (`core.passTime`).
var cited = regexp.MustCompile("([0-9][0-9,]*)(?: ([A-Za-z]+))? \\(`([a-z/0-9]+)\\.([A-Za-z]\\w*)`\\)")

// bare matches a number with a unit, even without the name of a constant.
var bare = regexp.MustCompile("\\b[0-9][0-9,]*(?:\\.[0-9]+)? (?:ms|s|min|h|bytes|KiB|MiB)\\b(?: \\(`)?")

// TestProofBounds compares the bounds in PROOF.md with the constants that it names. It
// requires a constant for each number with a unit in the tables, except in the tables
// of limits and of mutants.
func TestProofBounds(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("PROOF.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range cited.FindAllStringSubmatch(string(document), -1) {
		found++
		if complaint := compare(m); complaint != "" {
			t.Error("PROOF.md: " + complaint)
		}
	}
	if found < 15 {
		t.Errorf("PROOF.md cites %d constants, want 15 at least", found)
	}
	_, rest, _ := strings.Cut(string(document), "\n## What a stranger can grow\n")
	before, after, _ := strings.Cut(rest, "\n<!-- mutants")
	_, after, _ = strings.Cut(after, "\n<!-- /mutants -->")
	for line := range strings.Lines(before + after) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		for _, number := range bare.FindAllString(line, -1) {
			if !strings.HasSuffix(number, "`") {
				t.Errorf("PROOF.md gives %s without the constant: %.60s…", number, line)
			}
		}
	}
}

func TestProofBounds_Compared(t *testing.T) {
	t.Parallel()
	for text, fine := range map[string]bool{
		"10 ms (`core.passTime`)":                                  true,
		"11 ms (`core.passTime`)":                                  false,
		"10 s (`core.passTime`)":                                   false,
		"10 parsecs (`core.passTime`)":                             false,
		"10 ms (`core.noSuchTime`)":                                false,
		"10 ms (`core/nowhere.passTime`)":                          false,
		"16,384 (`core.defaultWaitingPerKey`)":                     true,
		"1 MiB (`httpmw/internal/guard.DefaultLimit`)":             true,
		"1 KiB (`httpmw/internal/guard.DefaultLimit`)":             false,
		"64 (`core/store.TokenStep`) of the grant, the 10 seconds": true,
	} {
		m := cited.FindStringSubmatch(text)
		if m == nil {
			t.Errorf("%s is not seen", text)
		} else if complaint := compare(m); (complaint == "") != fine {
			t.Errorf("%s: got %q", text, complaint)
		}
	}
}

// compare returns the mistake in a cited number, or "".
func compare(m []string) (complaint string) {
	unit, ok := units[m[2]]
	if !ok {
		return fmt.Sprintf("%s: the unit is unknown", m[0])
	}
	want := constant.BinaryOp(constant.MakeFromLiteral(strings.ReplaceAll(m[1], ",", ""), token.INT, 0), token.MUL, constant.MakeInt64(unit))
	got, err := valueOf(m[3], m[4])
	if err != nil {
		return fmt.Sprintf("%s: %v", m[0], err)
	}
	if !constant.Compare(got, token.EQL, want) {
		return fmt.Sprintf("%s: the constant is %s", m[0], got)
	}
	return ""
}

// valueOf returns the value of a constant of a package of this module.
func valueOf(pkg, name string) (constant.Value, error) {
	all, err := sources()
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		if path.Dir(f.path) != pkg || strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		for _, d := range f.file.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.CONST {
				continue
			}
			for _, s := range decl.Specs {
				spec := s.(*ast.ValueSpec)
				for i, id := range spec.Names {
					if id.Name == name && i < len(spec.Values) {
						return eval(pkg, spec.Values[i])
					}
				}
			}
		}
	}
	return nil, fmt.Errorf("%s has no constant %s with a value", pkg, name)
}

// eval returns the value of an expression of integers, times and constants of pkg or
// core.
func eval(pkg string, x ast.Expr) (constant.Value, error) {
	switch x := x.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(x.Value, x.Kind, 0), nil
	case *ast.ParenExpr:
		return eval(pkg, x.X)
	case *ast.Ident:
		return valueOf(pkg, x.Name)
	case *ast.SelectorExpr:
		from, _ := x.X.(*ast.Ident)
		of := map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}
		switch d, isTime := of[x.Sel.Name]; {
		case from != nil && from.Name == "time" && isTime:
			return constant.MakeInt64(int64(d)), nil
		case from != nil && from.Name == "core":
			return valueOf("core", x.Sel.Name)
		}
	case *ast.BinaryExpr:
		a, err := eval(pkg, x.X)
		if err != nil {
			return nil, err
		}
		b, err := eval(pkg, x.Y)
		if err != nil {
			return nil, err
		}
		if x.Op == token.SHL {
			by, _ := constant.Uint64Val(b)
			return constant.Shift(a, token.SHL, uint(by)), nil
		}
		if x.Op == token.QUO {
			return constant.BinaryOp(a, token.QUO_ASSIGN, b), nil // division of integers
		}
		return constant.BinaryOp(a, x.Op, b), nil
	}
	return nil, fmt.Errorf("%s: an expression of %T is not evaluated", pkg, x)
}
