package core

import "context"

// count counts operations in flight. The caller provides the locking.
type count struct {
	n    int
	none chan struct{} // closed when n becomes 0; nil if no caller waits
}

func (c *count) add(n int) {
	c.n += n
	if c.n == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

// zero returns a channel that is closed when the count is zero.
func (c *count) zero() <-chan struct{} {
	if c.none == nil {
		c.none = make(chan struct{})
	}
	none := c.none
	c.add(0)
	return none
}

// done waits until ch is closed or ctx is done, and reports whether ch is closed.
func done(ctx context.Context, ch <-chan struct{}) bool {
	select {
	case <-ch:
	case <-ctx.Done():
	}
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
