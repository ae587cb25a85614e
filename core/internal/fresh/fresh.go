// Package fresh asks a store to describe its server anew, and not from memory.
package fresh

import "context"

type wanted struct{}

// With returns a copy of ctx under which store.Node sends a request to the server.
func With(ctx context.Context) context.Context { return context.WithValue(ctx, wanted{}, true) }

// Wanted reports whether ctx, or a context from which it is derived, comes from With.
func Wanted(ctx context.Context) bool { return ctx.Value(wanted{}) != nil }
