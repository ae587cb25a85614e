// Package gozero tests stdmw on the REST server of go-zero. It is a module of its own,
// because go-zero requires more modules than all other frameworks together.
package gozero
