package zkstore

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/store"
)

// reply is the meaning of a request's error. In the zero value the outcome is unknown,
// and possibly no server has answered. The client itself replaces a connection that is
// closed or silent.
type reply struct {
	// unchanged is set if the servers have not executed the request.
	unchanged bool
	// refused is set if the servers have not executed the request for a reason other
	// than the state of the nodes. Then a call that has changed nothing fails with
	// store.ErrUnavailable.
	refused bool
	// answered is set if the error comes from a server.
	answered bool
	// advice precedes the client's error text.
	advice string
}

var (
	ofNodes   = reply{unchanged: true, answered: true}
	refusal   = reply{unchanged: true, refused: true, answered: true}
	unsentYet = reply{unchanged: true, refused: true}
	uncertain = reply{answered: true}
)

// replies maps each error for which the client has a variable to its reply.
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
	zk.ErrConnectionClosed: {}, // the request may have been sent before
	zk.ErrClosing:          {},
}

// codes maps the codes of ZooKeeper's KeeperException.Code for which the client has no
// variable to their replies.
var codes = map[zk.ErrCode]reply{
	-1: uncertain, // system error
	-2: uncertain, // inconsistency at run time
	-3: uncertain, // inconsistent data
	-4: {},        // connection loss
	-5: uncertain, // marshalling error: any failure of a server
	-6: {unchanged: true, refused: true, answered: true, advice: "the servers are too old (at least ZooKeeper 3.5)"},
	-7: uncertain, // time-out of an operation

	-12: refusal, // unknown session
	-13: refusal, // no quorum for a new configuration
	-14: refusal, // a reconfiguration is in progress

	-113: refusal, // invalid callback
	-119: {unchanged: true, refused: true, answered: true, advice: "the server is read-only, it has no majority"},
	-120: {unchanged: true, refused: true, answered: true, advice: "the session is local to its server: set localSessionsUpgradingEnabled=true"},
	-121: refusal,   // no such watch
	-122: uncertain, // time-out of a request
	-124: {unchanged: true, refused: true, answered: true, advice: "the servers want SASL authentication, which the client does not have"},
	-125: {unchanged: true, refused: true, answered: true, advice: "a quota of the servers is used up"},
	-127: {unchanged: true, refused: true, answered: true, advice: "the servers are throttled, they have too many requests"},
}

// byText maps the client's error text for each code in codes to its reply.
var byText = func() map[string]reply {
	all := make(map[string]reply, len(codes))
	for code, r := range codes {
		all[fmt.Sprintf("unknown error: %v", code)] = r
	}
	return all
}()

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

// outcome returns the error of a call whose request failed with err. If the call has
// changed something, its error never matches store.ErrUnavailable.
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
