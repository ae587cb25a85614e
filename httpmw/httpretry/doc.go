// Package httpretry x.
package httpretry
