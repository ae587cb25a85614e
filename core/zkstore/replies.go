package zkstore

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/store"
)

// reply is the meaning of an error of a request. Its zero value is that of an unknown
// error: the outcome is unknown, and no server may have answered. The client decides
// about the connection: it replaces one that is closed or silent, and begins a new
// session when the servers have expired the old one.
type reply struct {
	// unchanged is set if the servers have not executed the request.
	unchanged bool
	// refused is set if the request is unchanged for a reason other than the state of
	// the nodes. Calls fail with store.ErrUnavailable.
	refused bool
	// answered is set if the error comes from a server.
	answered bool
	// advice precedes the client's text.
	advice string
}

var (
	ofNodes   = reply{unchanged: true, answered: true}
	refusal   = reply{unchanged: true, refused: true, answered: true}
	unsentYet = reply{unchanged: true, refused: true}
	uncertain = reply{answered: true}
)

// replies has the reply of each error for which the client has a variable.
var replies = map[error]reply{
	zk.ErrNoNode:                  ofNodes,
	zk.ErrBadVersion:              ofNodes,
	zk.ErrNodeExists:              ofNodes,
	zk.ErrNotEmpty:                ofNodes,
	zk.ErrNoChildrenForEphemerals: ofNodes,

	zk.ErrNoServer:    unsentYet,
	zk.ErrInvalidPath: unsentYet,

	zk.ErrNoAuth:           refusal,
	zk.ErrInvalidACL:       refusal,
	zk.ErrAuthFailed:       refusal,
	zk.ErrInvalidFlags:     refusal,
	zk.ErrBadArguments:     refusal,
	zk.ErrReconfigDisabled: refusal,
	zk.ErrSessionExpired:   refusal, // the client begins a new session
	zk.ErrSessionMoved:     refusal, // the server closes the connection

	zk.ErrUnknown:          uncertain,
	zk.ErrAPIError:         uncertain,
	zk.ErrNothing:          uncertain,
	zk.ErrConnectionClosed: {}, // it may have been sent before
	zk.ErrClosing:          {},
}

// codes has the reply of each error code of ZooKeeper's KeeperException.Code for which
// the client has no variable.
var codes = map[zk.ErrCode]reply{
	-1: uncertain, // system error
	-2: uncertain, // inconsistency at run time
	-3: uncertain, // inconsistent data
	-4: {},        // connection loss
	-5: uncertain, // marshalling error: any failure of a server
	-6: {unchanged: true, refused: true, answered: true, advice: "the servers are too old, ZooKeeper 3.5 or later is needed"},
	-7: uncertain, // time-out of an operation

	-12: refusal, // unknown session
	-13: refusal, // no quorum of a new configuration
	-14: refusal, // a reconfiguration is under way

	-113: refusal, // invalid callback
	-119: {unchanged: true, refused: true, answered: true, advice: "the server is read-only, it has no majority"},
	-120: {unchanged: true, refused: true, answered: true, advice: "the session is local to its server: set localSessionsUpgradingEnabled=true"},
	-121: refusal,   // no such watch
	-122: uncertain, // time-out of a request
	-124: {unchanged: true, refused: true, answered: true, advice: "the servers want SASL authentication, which the client does not have"},
	-125: {unchanged: true, refused: true, answered: true, advice: "a quota of the servers is used up"},
	-127: {unchanged: true, refused: true, answered: true, advice: "the servers are throttled, they have too many requests"},
}

// byText has codes by the text that the client makes of them.
var byText = func() map[string]reply {
	all := make(map[string]reply, len(codes))
	for code, r := range codes {
		all[fmt.Sprintf("unknown error: %v", code)] = r
	}
	return all
}()

// replyOf returns the meaning of err.
func replyOf(err error) reply {
	for known, r := range replies {
		if errors.Is(err, known) {
			return r
		}
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if r, ok := byText[err.Error()]; ok {
			return r
		}
	}
	return reply{}
}

// unknown reports whether the servers may have executed a request that failed with err.
func unknown(err error) bool {
	return err != nil && !errors.Is(err, store.ErrUnavailable) && !replyOf(err).unchanged
}

// outcome returns the error of a call for that of a request. After a step that has
// changed something, it never matches store.ErrUnavailable.
func outcome(op string, err error, changed bool) error {
	r := replyOf(err)
	if r.advice != "" {
		err = fmt.Errorf("%s: %w", r.advice, err)
	}
	switch {
	case changed && errors.Is(err, store.ErrUnavailable):
		return fmt.Errorf("zkstore: %s: %v", op, err)
	case !changed && r.refused && !errors.Is(err, store.ErrUnavailable):
		return unsent(op, err)
	}
	return fmt.Errorf("zkstore: %s: %w", op, err)
}
