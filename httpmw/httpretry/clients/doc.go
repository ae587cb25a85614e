// Package clients tests httpretry with other HTTP clients that try again. It is a separate module,
// so that these clients stay out of the kit's go.mod.
package clients
