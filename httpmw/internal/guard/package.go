package guard

import "fmt"

// Package names the package that the program uses, which begins its panics and
// errors.
type Package string

func (p Package) text(format string, args ...any) string {
	return string(p) + ": " + fmt.Sprintf(format, args...)
}

// panic panics with a text that begins with the package.
func (p Package) panic(format string, args ...any) { panic(p.text(format, args...)) }

// wrap returns err with the package before it, and nil for nil.
func (p Package) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", p, err)
}
