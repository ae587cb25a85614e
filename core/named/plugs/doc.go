// Package plugs contains only tests, of package named with the libraries that it is
// for. It is a Go module of its own, so that they stay out of the kit's go.mod.
package plugs
