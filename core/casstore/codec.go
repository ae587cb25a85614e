package casstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/internal/keystate"
	"github.com/lockkit/lockkit/core/store"
)

// These types define the text of a key's state. In the text, and in the keystate.State
// that is decoded from it, the digest of a record's value replaces the value. So a value
// is read and written only if it is needed.
type (
	stateText struct {
		V       int          `json:"v"`
		Written int64        `json:"written"` // times are in microseconds since 1970
		Token   uint64       `json:"token,omitempty"`
		Holds   []holdText   `json:"holds,omitempty"`
		Waiters []waiterText `json:"waiters,omitempty"`
		Tombs   []tombText   `json:"tombs,omitempty"`
		Record  *recordText  `json:"record,omitempty"`
	}
	holdText struct {
		Lease  word  `json:"lease"`
		Owner  word  `json:"owner,omitempty"`
		Weight int64 `json:"weight"`
		Since  int64 `json:"since"`
		Until  int64 `json:"until"`
	}
	waiterText struct {
		Lease  word  `json:"lease"`
		Owner  word  `json:"owner"`
		Via    word  `json:"via,omitempty"`
		Weight int64 `json:"weight"`
		Limit  int64 `json:"limit"`
		Fair   bool  `json:"fair,omitempty"`
		Run    bool  `json:"run,omitempty"`
		Since  int64 `json:"since"`
		Until  int64 `json:"until"`
	}
	tombText struct {
		Lease word  `json:"lease"`
		Until int64 `json:"until"`
	}
	recordText struct {
		Sum      []byte      `json:"sum,omitempty"` // SHA-256; empty in Before, which shares it
		Attempt  int         `json:"attempt"`
		Done     bool        `json:"done,omitempty"`
		Until    int64       `json:"until"`
		Saver    word        `json:"saver,omitempty"`
		Beginner word        `json:"beginner,omitempty"`
		Fresh    bool        `json:"fresh,omitempty"`
		Before   *recordText `json:"before,omitempty"`
	}
)

// textVersion is the version of the stored text of a key's state. Texts of other
// versions are refused.
const textVersion = 1

var (
	errDamaged = errors.New("the entry is damaged")
	errNewer   = errors.New("the entry was written by another version of this package")
)

// word is a lease or an owner. Printable ASCII without a leading "=" is stored
// unchanged. Any other word is stored as base64 after "=".
type word string

// MarshalText implements encoding.TextMarshaler.
func (w word) MarshalText() ([]byte, error) {
	plain := !strings.HasPrefix(string(w), "=") &&
		!strings.ContainsFunc(string(w), func(r rune) bool { return r < ' ' || r > '~' })
	if plain {
		return []byte(w), nil
	}
	return base64.StdEncoding.AppendEncode([]byte("="), []byte(w)), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *word) UnmarshalText(text []byte) error {
	*w = word(text)
	if code, coded := bytes.CutPrefix(text, []byte("=")); coded {
		plain, err := base64.StdEncoding.Strict().DecodeString(string(code))
		if err != nil {
			return errDamaged
		}
		*w = word(plain)
	}
	return nil
}

func digest(value []byte) []byte {
	sum := sha256.Sum256(value)
	return sum[:]
}

// encode returns the entry for s at the time now, without expired parts. If usual is
// set, encode stores a state with nothing but a token and at most one usual hold in
// Alone, without a text. A hold whose lease or owner does not fit into Alone needs a
// text.
func encode(s *keystate.State, now time.Time, usual bool) Entry {
	e := Entry{Due: now, Alone: Alone{Token: s.Token, Written: now}}
	text := stateText{V: textVersion, Written: now.UnixMicro(), Token: s.Token}
	last := func(until time.Time) bool {
		if !until.After(now) {
			return false
		}
		if until.After(e.Due) {
			e.Due = until
		}
		return true
	}
	for _, h := range s.Holds {
		if last(h.Until) {
			text.Holds = append(text.Holds, holdText{word(h.Lease), word(h.Owner), h.Weight, h.Since.UnixMicro(), h.Until.UnixMicro()})
		}
	}
	for _, w := range s.Waiters {
		if last(w.Until) {
			text.Waiters = append(text.Waiters, waiterText{
				word(w.Lease), word(w.Owner), word(w.Via), w.Weight, w.Limit, w.Fair, w.Run, w.Since.UnixMicro(), w.Until.UnixMicro(),
			})
		}
	}
	for _, t := range s.Tombs {
		if last(t.Until) {
			text.Tombs = append(text.Tombs, tombText{word(t.Lease), t.Until.UnixMicro()})
		}
	}
	if s.Record != nil && last(s.Record.Until) {
		text.Record = recordOf(s.Record)
		text.Record.Sum = s.Record.Value
	}
	if free := time.UnixMicro(int64(s.Token + store.TokenStep)); s.Token > 0 && free.After(e.Due) {
		e.Due = free
	}
	if usual && len(text.Holds) <= 1 && len(text.Waiters) == 0 && len(text.Tombs) == 0 && text.Record == nil {
		if len(text.Holds) == 0 {
			return e
		}
		if h := text.Holds[0]; h.Owner != "" && h.Weight == store.All && max(len(h.Lease), len(h.Owner)) <= maxWord {
			e.Alone.Lease, e.Alone.Owner = string(h.Lease), string(h.Owner)
			e.Alone.Since, e.Alone.Until = time.UnixMicro(h.Since), time.UnixMicro(h.Until)
			return e
		}
	}
	e.State, _ = json.Marshal(text) // never fails
	return e
}

// maxWord is the maximum length of Lease and Owner of Alone, in bytes.
const maxWord = 255

func recordOf(r *keystate.Record) *recordText {
	text := &recordText{
		Attempt: r.Attempt, Done: r.Done, Until: r.Until.UnixMicro(),
		Saver: word(r.Saver), Beginner: word(r.Beginner), Fresh: r.Fresh,
	}
	if r.Before != nil {
		text.Before = recordOf(r.Before)
	}
	return text
}

// decode returns the state in e at the time e.Now; parts of it may have expired. If the
// clock was set back since e was written, decode sets all times back too. So nothing
// lasts longer. decode fails for a damaged entry, for a text of another version, and
// for a text with an unknown part. Such a part may exclude other claims.
func decode(e Entry) (*keystate.State, error) {
	switch {
	case e.Version == 0:
		return &keystate.State{Token: e.Floor}, nil
	case e.State == nil:
		return alone(e)
	}
	var text stateText
	d := json.NewDecoder(bytes.NewReader(e.State))
	d.DisallowUnknownFields()
	if err := d.Decode(&text); err != nil {
		var only struct{ V int }
		if json.Unmarshal(e.State, &only) == nil && only.V > textVersion {
			return nil, errNewer
		}
		return nil, errDamaged
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errDamaged
	}
	if text.V != textVersion {
		return nil, errNewer
	}
	at := moved(text.Written, e.Now)
	s := &keystate.State{Token: text.Token}
	for _, h := range text.Holds {
		if h.Lease == "" || h.Weight < 1 || h.Weight > store.All {
			return nil, errDamaged
		}
		s.Holds = append(s.Holds, keystate.Hold{
			Lease: string(h.Lease), Owner: string(h.Owner), Weight: h.Weight, Since: at(h.Since), Until: at(h.Until),
		})
	}
	for _, w := range text.Waiters {
		if w.Lease == "" || w.Owner == "" || w.Weight < 1 || w.Weight > w.Limit || w.Limit > store.All {
			return nil, errDamaged
		}
		s.Waiters = append(s.Waiters, keystate.Waiter{
			Lease: string(w.Lease), Owner: string(w.Owner), Via: string(w.Via), Weight: w.Weight, Limit: w.Limit,
			Fair: w.Fair, Run: w.Run, Since: at(w.Since), Until: at(w.Until),
		})
	}
	for _, t := range text.Tombs {
		if t.Lease == "" {
			return nil, errDamaged
		}
		s.Tombs = append(s.Tombs, keystate.Tombstone{Lease: string(t.Lease), Until: at(t.Until)})
	}
	if r := text.Record; r != nil {
		if len(r.Sum) != sha256.Size || r.Before != nil && (r.Before.Before != nil || r.Before.Sum != nil) {
			return nil, errDamaged
		}
		s.Record = recordIn(r, r.Sum, at)
	}
	return s, nil
}

func recordIn(text *recordText, sum []byte, at func(int64) time.Time) *keystate.Record {
	r := &keystate.Record{
		Value: sum, Attempt: text.Attempt, Done: text.Done, Until: at(text.Until),
		Saver: string(text.Saver), Beginner: string(text.Beginner), Fresh: text.Fresh,
	}
	if text.Before != nil {
		r.Before = recordIn(text.Before, sum, at)
	}
	return r
}

// alone returns the state of an entry without a text.
func alone(e Entry) (*keystate.State, error) {
	a := e.Alone
	s := &keystate.State{Token: a.Token}
	if a.Lease == "" && a.Owner == "" {
		return s, nil
	}
	if a.Lease == "" || a.Owner == "" {
		return nil, errDamaged
	}
	at := moved(a.Written.UnixMicro(), e.Now)
	s.Holds = []keystate.Hold{{
		Lease: a.Lease, Owner: a.Owner, Weight: store.All, Since: at(a.Since.UnixMicro()), Until: at(a.Until.UnixMicro()),
	}}
	return s, nil
}

// moved returns a function that converts stored microseconds to times. If the clock was
// set back since written, the function sets the times back by the same amount.
func moved(written int64, now time.Time) func(us int64) time.Time {
	back := max(written-now.UnixMicro(), 0)
	return func(us int64) time.Time { return time.UnixMicro(us - back) }
}

// nowOf returns the time by which the rule decides on e. This is e.Now, or the time of
// the write of e if that is later by less than callLimit. A place can fix its time
// before it reads e. So a small difference does not show that the clock was set back.
func nowOf(e Entry) time.Time {
	if written := writtenAt(e); written.After(e.Now) && written.Before(e.Now.Add(callLimit)) {
		return written
	}
	return time.UnixMicro(e.Now.UnixMicro())
}

// wasSetBack reports whether the clock was set back since e was written. The times that
// decode has set back must then be saved. Otherwise each later decode would set them
// back further, and they would never be reached.
func wasSetBack(e Entry) bool { return e.Version != 0 && writtenAt(e).After(e.Now) }

// writtenAt returns the time of the write of e, or the zero time if it is unknown.
func writtenAt(e Entry) time.Time {
	var text struct{ Written int64 }
	if e.State == nil || !e.Alone.Written.IsZero() || json.Unmarshal(e.State, &text) != nil {
		return e.Alone.Written
	}
	return time.UnixMicro(text.Written)
}

// same reports whether a and b contain the same state, ignoring Alone.Written.
func same(a, b Entry) bool {
	if (a.State == nil) != (b.State == nil) {
		return false
	}
	a.Alone.Written = b.Alone.Written
	return slices.Equal(a.State, b.State) && a.Alone == b.Alone
}
