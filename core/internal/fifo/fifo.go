// Package fifo provides a queue that any member can leave in constant time.
package fifo

// Queue contains members in order of arrival. Its zero value is empty. It is not safe
// for concurrent use, and must not be copied.
type Queue[T any] struct {
	ring   Node[T] // has no member: its next is the first node, and its prev the last
	length int
}

// Node links a member into a queue. It is a field of the member, so that Push allocates
// nothing. Its zero value is in no queue.
type Node[T any] struct {
	member     *T
	prev, next *Node[T] // nil if the node is in no queue
}

// Push adds member at the end. n is the node of member, and must be in no queue.
func (q *Queue[T]) Push(n *Node[T], member *T) {
	end := &q.ring
	if end.next == nil {
		end.prev, end.next = end, end
	}
	*n = Node[T]{member, end.prev, end}
	end.prev.next = n
	end.prev = n
	q.length++
}

// Remove removes the member whose node is n. The member must be in the queue.
func (q *Queue[T]) Remove(n *Node[T]) {
	n.prev.next = n.next
	n.next.prev = n.prev
	*n = Node[T]{}
	q.length--
}

// Len returns the number of members.
func (q *Queue[T]) Len() int { return q.length }

// First returns the member that was pushed first, or nil.
func (q *Queue[T]) First() *T { return q.ring.Next() }

// Next returns the member that follows the member of n, or nil.
func (n *Node[T]) Next() *T {
	if n.next == nil {
		return nil
	}
	return n.next.member
}

// Queued reports whether the member of n is in a queue.
func (n *Node[T]) Queued() bool { return n.next != nil }
