package guard

import "fmt"

// Package is the name of the package that the program uses. Its panics and errors begin
// with that name.
type Package string

func (p Package) text(format string, args ...any) string {
	return string(p) + ": " + fmt.Sprintf(format, args...)
}

func (p Package) panic(format string, args ...any) { panic(p.text(format, args...)) }

// wrap returns err with the package's name before it, and nil for nil.
func (p Package) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", p, err)
}
