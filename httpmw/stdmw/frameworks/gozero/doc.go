// Package gozero tests stdmw on the REST server of go-zero. It is a separate module,
// because go-zero requires more modules than all other frameworks together.
package gozero
