// Package clients tests httpretry with other HTTP clients that try again. It is a
// separate module, so that the kit's go.mod does not require these clients.
package clients
