// Package interop has tests of the kit beside libraries that it does not depend
// on. It is a module of its own, so that they stay out of the kit's go.mod.
package interop
