package pgstore

// Verdict is verdict, for its table.
var Verdict = verdict

// Classes are the SQLSTATEs of classes, of a class its last one, and what follows from each.
func Classes() map[string]class {
	all := make(map[string]class)
	for code, c := range classes {
		all[(code + "999")[:5]] = c
	}
	return all
}

func (c class) Unchanged() bool { return c.unchanged }

func (c class) Kept() bool { return c.kept }

func (c class) Again() bool { return c.again }

// Scan is scan, for what a database could answer.
var Scan = scan
