package zkstore

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/internal/words"
	"github.com/lockkit/lockkit/core/store"
)

const (
	defaultRoot = "/lk1" // 1 is the version of the stored format
	maxRoot     = 256    // bytes
)

// Option configures a Store.
type Option func(*config)

type config struct {
	root    string
	acl     []zk.ACL
	session time.Duration
}

// WithRoot sets the node below which the Store creates all others. The default is
// "/lk1". Stores share locks if they share the servers and the root. The client library
// has no chroot. To stay inside a chroot, begin the path with the chroot's path. The
// Store creates missing nodes of the path when it locks the first key. The path must
// begin with a slash, have at most 256 bytes, and contain only printable characters. It
// must not end with a slash, have an empty or relative part, or lie in /zookeeper.
func WithRoot(path string) Option {
	return func(c *config) { c.root = path }
}

// WithACL sets the rights to the nodes that the Store creates, including the root and
// its missing parents. By default all clients have all rights. acl must have at least
// one entry. The Store itself needs the rights to read, write, create and delete. With
// digest authentication, for example, use zk.DigestACL(zk.PermAll, user, password) here,
// and AddAuth("digest", …) on the connection.
func WithACL(acl []zk.ACL) Option {
	return func(c *config) { c.acl = acl }
}

// WithSessionTimeout gives the Store the session time-out that the servers grant. The
// option is needed if New reports that this version of the client library hides the
// time-out. It is also needed if the servers of an ensemble grant different time-outs.
// Then set the shortest time-out. Set it also before the servers lower their limits, to
// the new time-out. The value must not be longer than the servers' time-out, because
// the trust in a lease follows from it. If the Store knows both time-outs, it uses the
// shorter. d is at least 10 ms, or 0 for the default.
func WithSessionTimeout(d time.Duration) Option {
	return func(c *config) { c.session = d }
}

func (c *config) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("zkstore: new: %s: %w", fmt.Sprintf(format, args...), store.ErrInvalid)
	}
	switch {
	case len(c.root) > maxRoot:
		return bad("root has %d bytes (at most %d)", len(c.root), maxRoot)
	case !strings.HasPrefix(c.root, "/") || c.root == "/" || strings.HasSuffix(c.root, "/"):
		return bad("root %q is not the path of a node, like /app/locks", c.root)
	case !utf8.ValidString(c.root) || strings.ContainsFunc(c.root, func(r rune) bool { return !unicode.IsGraphic(r) }):
		return bad("root %q contains a character that is not printable", c.root)
	case c.root == "/zookeeper" || strings.HasPrefix(c.root, "/zookeeper/"):
		return bad("root %q is of ZooKeeper itself", c.root)
	case len(c.acl) == 0:
		return bad("the ACL has no entries")
	case c.session < 0 || c.session > 0 && c.session < 10*time.Millisecond:
		return bad("session time-out %s is out of range (at least 10 ms)", words.Duration(c.session))
	}
	for part := range strings.SplitSeq(c.root[1:], "/") {
		if part == "" || part == "." || part == ".." {
			return bad("root %q has an empty or relative part", c.root)
		}
	}
	return nil
}
