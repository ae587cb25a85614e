// Package frameworks tests stdmw on frameworks that take middlewares of net/http. It is
// a separate module, so that these frameworks stay out of the kit's go.mod.
package frameworks
