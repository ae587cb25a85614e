// Package interop tests the kit together with libraries on which the kit does not
// depend. It is a separate module, which keeps these libraries out of the kit's go.mod.
package interop
