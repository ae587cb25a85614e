package matrix_test

import "github.com/lockkit/lockkit/core"

// cell is the expected outcome of an operation whose message has a fault.
type cell struct {
	says   error  // the error that the caller receives; nil is success
	sent   int    // minimum number of times that the message is sent
	holds  int    // number of the key's holds right after the operation
	tokens uint64 // grants by the end; without a stored answer, the last one is another program's
	why    string
}

// table lists every operation with every fault. It applies to every kind of Redis,
// because one script on one key decides the effect of a message. The method lacks lists
// the exceptions for Redisson's keys.
var table = map[string]map[string]cell{
	"acquire": {
		"request lost":          {nil, 2, 1, 2, "the second attempt is granted"},
		"reply lost and closed": {nil, 2, 1, 2, "the same claim again is the same grant"},
		"reply lost and hung":   {nil, 2, 1, 2, "the same claim again is the same grant"},
		"late within the lease": {nil, 2, 1, 2, "the late claim is the one that is granted already"},
		"late beyond the lease": {nil, 2, 1, 2, "the late claim finds that its lease was released"},
		"duplicated":            {nil, 1, 1, 2, "the same claim again is the same grant"},
		"reordered":             {core.ErrUnavailable, 1, 0, 1, "the caller that gave up releases; the acquire that this overtook is refused"},
		"error reply":           {nil, 2, 1, 2, "the second attempt is granted"},
	},
	"re-enter": {
		"request lost":          {nil, 2, 2, 2, "the second attempt joins the outer hold"},
		"reply lost and closed": {nil, 2, 2, 2, "the same claim again is the same hold, not a third one"},
		"reply lost and hung":   {nil, 2, 2, 2, "the same claim again is the same hold, not a third one"},
		"late within the lease": {nil, 2, 2, 2, "the late claim is the hold that is there already"},
		"late beyond the lease": {nil, 2, 2, 2, "the late claim finds that its lease was released, and the outer one stands"},
		"duplicated":            {nil, 1, 2, 2, "the same claim again is the same hold, not a third one"},
		"reordered":             {core.ErrUnavailable, 1, 1, 2, "the caller that gave up releases; the outer hold stays, the overtaken acquire is refused"},
		"error reply":           {nil, 2, 2, 2, "the second attempt joins the outer hold"},
	},
	"renew": {
		"request lost":          {nil, 2, 1, 2, "it is asked again before the old end"},
		"reply lost and closed": {nil, 2, 1, 2, "what is not confirmed is asked again"},
		"reply lost and hung":   {nil, 2, 1, 2, "what is not confirmed is asked again"},
		"late within the lease": {nil, 2, 1, 2, "the late extension shortens nothing"},
		"late beyond the lease": {nil, 2, 1, 2, "the late extension changes nothing for the next holder"},
		"duplicated":            {nil, 1, 1, 2, "an extension names an end, not a step"},
		"reordered":             {nil, 1, 0, 2, "an extension after the release creates nothing"},
		"error reply":           {nil, 2, 1, 2, "it is asked again before the old end"},
	},
	"leave": {
		"request lost":          {nil, 2, 1, 2, "it is sent again; the outer hold stands"},
		"reply lost and closed": {nil, 2, 1, 2, "the second attempt finds it gone, which is success"},
		"reply lost and hung":   {nil, 2, 1, 2, "the second attempt finds it gone, which is success"},
		"late within the lease": {nil, 2, 1, 2, "the late release names a hold that is gone, not the outer one"},
		"late beyond the lease": {nil, 2, 1, 2, "the late release names a hold that is gone, not the outer one"},
		"duplicated":            {nil, 1, 1, 2, "a release names a hold, and gives up no other"},
		"reordered":             {nil, 2, 1, 2, "the outer release overtakes it; the key is free when both are done"},
		"error reply":           {nil, 2, 1, 2, "it is sent again; the outer hold stands"},
	},
	"release": {
		"request lost":          {nil, 2, 1, 2, "it is sent again; the waiter gets the key"},
		"reply lost and closed": {nil, 2, 1, 2, "the second attempt finds it gone, which is success"},
		"reply lost and hung":   {nil, 2, 1, 2, "the second attempt finds it gone, which is success"},
		"late within the lease": {nil, 2, 1, 2, "the late release does not touch the next hold"},
		"late beyond the lease": {nil, 2, 1, 2, "the late release does not touch the next hold"},
		"duplicated":            {nil, 1, 1, 2, "the second one does not touch the next hold"},
		"reordered":             {nil, 2, 1, 3, "its own repetition overtakes it, and two holders after that are not touched"},
		"error reply":           {nil, 2, 1, 2, "it is sent again; the waiter gets the key"},
	},
	"record": {
		"request lost":          {nil, 2, 0, 1, "it is sent again, and saved"},
		"reply lost and closed": {nil, 2, 0, 1, "the second attempt finds that this answer is saved"},
		"reply lost and hung":   {nil, 2, 0, 1, "the second attempt finds that this answer is saved"},
		"late within the lease": {nil, 2, 0, 1, "the late one saves nothing anew"},
		"late beyond the lease": {nil, 2, 0, 1, "the late one saves nothing anew"},
		"duplicated":            {nil, 1, 0, 1, "it is saved once"},
		"reordered":             {nil, 2, 0, 2, "the next run has begun, and the late one neither ends nor overwrites it"},
		"error reply":           {nil, 2, 0, 1, "it is sent again, and saved"},
	},
	"wait": {
		"request lost":          {nil, 3, 1, 3, "the waiter asks again, and is served"},
		"reply lost and closed": {nil, 3, 1, 3, "the waiter asks again in its own place, and is served"},
		"reply lost and hung":   {nil, 3, 1, 3, "the waiter asks again in its own place, and is served"},
		"late within the lease": {nil, 3, 1, 3, "the late claim keeps the same place"},
		"late beyond the lease": {nil, 3, 1, 3, "the late claim finds that its lease was released"},
		"duplicated":            {nil, 2, 1, 3, "one claim has one place"},
		"reordered":             {nil, 2, 1, 3, "the release overtakes it; whichever attempt comes first is the one grant"},
		"error reply":           {nil, 3, 1, 3, "the waiter asks again, and is served"},
	},
}
