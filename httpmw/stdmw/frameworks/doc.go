// Package frameworks tests stdmw on frameworks that take middlewares of net/http. It is
// a module of its own, so that they stay out of the kit's go.mod.
package frameworks
