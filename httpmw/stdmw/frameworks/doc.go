// Package frameworks tests stdmw on frameworks that take middlewares of net/http. It is
// a separate module, so that the kit's go.mod does not require these frameworks.
package frameworks
