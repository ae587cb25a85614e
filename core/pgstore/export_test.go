package pgstore

// Verdict is verdict, for its table.
var Verdict = verdict
