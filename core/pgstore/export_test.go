package pgstore

import "github.com/lockkit/lockkit/core"

// Verdict is verdict, for its table.
var Verdict = verdict

// States reads what the function show answers.
func States(rows [][][]byte) ([]core.State, bool) { return parseStates(rows) }
