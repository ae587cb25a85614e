package keys

import "fmt"

// maxName is the maximum length of a name, in bytes.
const maxName = 64

// CheckName returns an error if name cannot be the name of a lock or a run. core.Name
// and once.Call require a name of 1 to 64 letters, digits, '.', '_' and '-'.
func CheckName(name string) error {
	if !IsLabel(name) || len(name) > maxName {
		return fmt.Errorf("name %.80q is not of the form [A-Za-z0-9._-]+ (at most %d bytes)", name, maxName)
	}
	return nil
}

// IsLabel reports whether s is of the form [A-Za-z0-9._-]+, of any length.
func IsLabel(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return s != ""
}
