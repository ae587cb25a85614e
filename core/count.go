package core

import "context"

// count is the number of things under way. Its user has a mutex for it.
type count struct {
	n    int
	none chan struct{} // closed when n is 0; nil if no caller waits
}

func (c *count) add(n int) {
	c.n += n
	if c.n == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

// zero returns a channel that is closed when there is none.
func (c *count) zero() <-chan struct{} {
	if c.none == nil {
		c.none = make(chan struct{})
	}
	none := c.none
	c.add(0)
	return none
}

// done waits until what is closed, and returns false if ctx ends before that.
func done(ctx context.Context, what <-chan struct{}) bool {
	select {
	case <-what:
	case <-ctx.Done():
	}
	select {
	case <-what:
		return true
	default:
		return false
	}
}
