// Package plugs tests package named with the libraries that it is for. It contains no
// other code. It is a separate Go module, so that these libraries stay out of the kit's
// go.mod.
package plugs
