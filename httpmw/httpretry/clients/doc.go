// Package clients tests httpretry with other HTTP clients that try again. It is a module of
// its own, so that they stay out of the kit's go.mod.
package clients
