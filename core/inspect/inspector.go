package inspect

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/store"
)

// Inspector shows the locks of a store, and removes holds. Its methods are safe for
// concurrent use and return soon after ctx is done. Their errors match the errors of
// store.Inspector: ErrInvalid, ErrUnsupported or ErrUnavailable. Revoke and ReleaseNow
// can return other errors too, such as ErrLost. No error contains a key.
type Inspector struct {
	config
	store store.Inspector
	cards store.Cards // nil if the store has no cards
}

// Option is a setting of New.
type Option func(*config)

type config struct {
	observer core.Observer // nil without Observer
	secret   []byte
}

// Observer notifies o of each hold that was or may have been removed, with one
// core.Revoked event. By default no observer is notified.
func Observer(o core.Observer) Option {
	return func(c *config) { c.observer = core.Observers(o) } // which recovers panics
}

// Secret makes all processes with this secret use the same digests of keys, and accept
// each other's forms and positions in a list. Use Secret for several replicas of a page
// behind one address. By default each New creates its own secret. The secret must have
// at least 32 random bytes. Keep it confidential: with the secret, a guessed key can be
// checked against its digest.
func Secret(secret []byte) Option {
	return func(c *config) { c.secret = append([]byte{}, secret...) }
}

// leastSecret is the minimum length of a secret in bytes, the size of the digest.
const leastSecret = sha256.Size

// New returns an Inspector of the store s. It sends no request. It returns an error
// matching core.ErrUnsupported if s does not implement store.Inspector. If the options
// of s prevent inspection, the methods of the Inspector return that error instead. New
// returns an error matching core.ErrInvalid if s or an option is nil, or if the secret
// is too short.
func New(s core.Store, opts ...Option) (*Inspector, error) {
	if s == nil {
		return nil, fmt.Errorf("inspect: new: the store is nil: %w", core.ErrInvalid)
	}
	looked, ok := s.(store.Inspector)
	if !ok {
		return nil, fmt.Errorf("inspect: new: the store does not implement store.Inspector: %w", core.ErrUnsupported)
	}
	in := &Inspector{store: looked}
	in.cards, _ = s.(store.Cards)
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("inspect: new: an option is nil: %w", core.ErrInvalid)
		}
		o(&in.config)
	}
	switch {
	case in.secret == nil:
		in.secret = make([]byte, leastSecret)
		rand.Read(in.secret) // never fails
	case len(in.secret) < leastSecret:
		return nil, fmt.Errorf("inspect: new: Secret: %d bytes are too few (at least %d): %w", len(in.secret), leastSecret, core.ErrInvalid)
	}
	return in, nil
}

// Lock is a key as an operator sees it.
type Lock struct {
	Key     string
	Name    string // Name(Key)
	Digest  string // Digest(Key)
	Holds   []Hold // oldest first
	Waiters []Hold // in order of arrival, if the store knows the order
	Run     *store.Run
}

// Hold is a hold or a waiting claim, with its process. If the store does not know the
// age, Age is the age in the entry of the process's card.
type Hold struct {
	store.Hold
	// Card is the card of the hold's process, without entries, or nil. It is found by
	// the process's ID. If the store does not know the process, Card is found by the
	// hold's ID among the entries of all cards.
	Card  *core.Card
	Trace string    // from the card's entry
	named core.Mode // from the card's entry
}

// Mode returns the mode in the entry of the process's card. If no card has an entry of
// the hold, Mode derives the mode from the weight. The derived mode is
// core.ModeExclusive for store.All, core.ModePermits for a weight greater than 1 and
// less than store.All, core.ModeShared for 1, and 0 if the weight is unknown. A hold's
// weight distinguishes neither a reader from a single permit, nor a run of package once
// from an exclusive hold.
func (h Hold) Mode() core.Mode {
	switch {
	case h.named != 0:
		return h.named
	case h.Weight >= store.All:
		return core.ModeExclusive
	case h.Weight > 1:
		return core.ModePermits
	case h.Weight == 1:
		return core.ModeShared
	}
	return 0
}

// Kind returns a description of the hold's mode: "exclusive", "shared", "3 permits".
// If no card has an entry of the hold, a weight of 1 is "shared or a permit".
func (h Hold) Kind() string {
	switch {
	case h.Weight == 1 && h.named == 0:
		return "shared or a permit"
	case h.Mode() == core.ModePermits && h.Weight == 1:
		return "1 permit"
	case h.Mode() == core.ModePermits:
		return strconv.FormatInt(h.Weight, 10) + " permits"
	}
	return h.Mode().String()
}

// entry is one hold or waiter of a card. A card lists only holds and waiters that are
// older than some seconds.
type entry struct {
	store.CardEntry
	card *core.Card
}

// cards has the cards of all processes.
type cards struct {
	of    map[string]*core.Card // by process, without entries
	holds map[string]entry      // by ID of the hold
}

// Look returns one lock. If the key has no live entries, the lock has no holds, no
// waiters and no run. Cards that cannot be read are ignored.
func (in *Inspector) Look(ctx context.Context, key string) (Lock, error) {
	state, err := in.store.Look(ctx, key)
	if err != nil {
		return Lock{}, fmt.Errorf("inspect: %w", err)
	}
	return in.lock(state, in.known(ctx)), nil
}

// List returns the locks with live entries, page by page, like List of store.Inspector.
// The pages are in no particular order. Within a page, the lock with the oldest hold is
// first. The store may have to walk over all its entries.
//
// next is the store's position after the page, or "" after the last page. It can
// contain a key.
func (in *Inspector) List(ctx context.Context, after string, most int) (page []Lock, next string, err error) {
	states, next, err := in.store.List(ctx, after, most)
	if err != nil {
		return nil, "", fmt.Errorf("inspect: %w", err)
	}
	if len(states) == 0 {
		return nil, next, nil
	}
	known := in.known(ctx)
	for _, s := range states {
		page = append(page, in.lock(s, known))
	}
	slices.SortStableFunc(page, func(a, b Lock) int {
		return cmp.Or(cmp.Compare(b.age(), a.age()), cmp.Compare(a.Key, b.Key))
	})
	return page, next, nil
}

func (l Lock) age() (age time.Duration) {
	for _, h := range l.Holds {
		age = max(age, h.Age)
	}
	return age
}

// Overview has the entries of the processes' cards.
type Overview struct {
	Held, Waiting []Long      // oldest first
	Processes     []core.Card // without entries
}

// Long is a hold or a wait of a process that has lasted for some seconds.
type Long struct {
	store.CardEntry           // For is the age when the card was written
	Digest          string    // digest of its key; "" if the card has no key
	Process         core.Card // without entries
}

// Now returns the longest holds and waits of all processes that write cards
// (store.Cards). It reads only the cards and no lock, so it is a cheap way to see the
// stuck holds of these processes. It returns an error matching core.ErrUnsupported if
// the store has no cards.
func (in *Inspector) Now(ctx context.Context) (Overview, error) {
	if in.cards == nil {
		return Overview{}, fmt.Errorf("inspect: now: the store has no cards: %w", core.ErrUnsupported)
	}
	cards, err := in.cards.Cards(ctx)
	if err != nil {
		return Overview{}, fmt.Errorf("inspect: now: %w", err)
	}
	var o Overview
	for _, c := range cards {
		entries := c.Entries
		c.Entries = nil
		o.Processes = append(o.Processes, c)
		for _, e := range entries {
			long := Long{CardEntry: e, Process: c}
			if e.Key != "" {
				long.Digest = in.Digest(e.Key)
			}
			if e.Waiting {
				o.Waiting = append(o.Waiting, long)
			} else {
				o.Held = append(o.Held, long)
			}
		}
	}
	for _, list := range [][]Long{o.Held, o.Waiting} {
		slices.SortStableFunc(list, func(a, b Long) int { return cmp.Compare(b.For, a.For) })
	}
	return o, nil
}

// Revoke removes the hold of key with the given ID, whichever lease has the hold now.
// The key stays taken for the rest of the hold. The holder's context is canceled with
// core.ErrLost before another process is granted the key.
//
// Revoke returns an error matching core.ErrLost if the hold does not exist. In that
// case nothing has changed. After an error that matches none of store.Inspector's
// errors, it is unknown whether the hold was removed. A second call removes the hold if
// it still exists. The hold is gone if that call returns nil or an error that matches
// core.ErrLost.
func (in *Inspector) Revoke(ctx context.Context, key, hold string) error {
	// The store keeps the key taken for the rest of the hold.
	return in.end(ctx, key, hold, time.Millisecond)
}

// ReleaseNow removes a hold like Revoke, but the key is free at once. Until the old
// holder is notified of the loss, there can be two holders. The notification takes up
// to a third of the old holder's TTL. It takes longer after Lease.Extend, for a lease
// that is not extended, and if that process cannot reach the store or is paused.
func (in *Inspector) ReleaseNow(ctx context.Context, key, hold string) error {
	return in.end(ctx, key, hold, 0)
}

func (in *Inspector) end(ctx context.Context, key, hold string, keep time.Duration) error {
	err := in.store.Revoke(ctx, key, hold, keep)
	if in.observer != nil && (err == nil || !unchanged(err)) {
		in.observer.Observe(ctx, adapter.OfHold(core.Event{Kind: core.Revoked, Name: Name(key), Err: err}, hold))
	}
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	return nil
}

// unchanged reports whether the error of a Revoke means that nothing has changed.
func unchanged(err error) bool {
	for _, e := range []error{core.ErrLost, core.ErrUnavailable, core.ErrUnsupported, core.ErrInvalid} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Digest returns a text that represents a key where keys are not shown: 11 letters,
// digits, '-' and '_'. Equal keys have equal digests. Without the secret of this
// Inspector, a key cannot be guessed from its digest.
func (in *Inspector) Digest(key string) string {
	return base64.RawURLEncoding.EncodeToString(in.derive("key\x00" + key)[:8])
}

// derive returns 32 bytes derived from the secret and a purpose.
func (in *Inspector) derive(purpose string) []byte {
	mac := hmac.New(sha256.New, in.secret)
	mac.Write([]byte(purpose))
	return mac.Sum(nil)
}

// maxName is the maximum length of a name, in bytes.
const maxName = 64

// Name returns the name of a lock of this key without core.Name. The name is the part
// of the key before the first ':'. It returns "lock" if the key has no ':', or if the
// part is not 1 to 64 letters, digits, '.', '_' and '-'. Such a part may be data.
func Name(key string) string {
	name, _, ok := strings.Cut(key, ":")
	if !ok || name == "" || len(name) > maxName {
		return "lock"
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return "lock"
		}
	}
	return name
}

// known returns the contents of all cards. It returns nothing if the store has no
// cards, or if the cards cannot be read.
func (in *Inspector) known(ctx context.Context) (known cards) {
	if in.cards == nil {
		return known
	}
	all, err := in.cards.Cards(ctx)
	if err != nil {
		return known // the store's data is useful without cards too
	}
	known = cards{make(map[string]*core.Card), make(map[string]entry)}
	for _, c := range all {
		entries := c.Entries
		c.Entries = nil
		known.of[c.Process] = &c
		for _, e := range entries {
			if e.Hold != "" {
				known.holds[e.Hold] = entry{e, &c}
			}
		}
	}
	return known
}

func (known cards) join(h store.Hold) Hold {
	e := known.holds[h.ID]
	if h.Process != "" {
		card := known.of[h.Process]
		if e.card != card {
			e = entry{card: card} // the card of another process is not trusted
		}
	}
	if h.Age == 0 {
		h.Age = e.For
	}
	return Hold{Hold: h, Card: e.card, Trace: e.Trace, named: modeOf(e.Mode)}
}

// modeOf returns the mode with this name, or 0 if the name is unknown.
func modeOf(name string) core.Mode {
	for m := core.ModeExclusive; m <= core.ModeRun; m++ {
		if m.String() == name {
			return m
		}
	}
	return 0
}

func (in *Inspector) lock(s store.State, known cards) Lock {
	l := Lock{Key: s.Key, Name: Name(s.Key), Digest: in.Digest(s.Key), Run: s.Run}
	for _, h := range s.Holds {
		l.Holds = append(l.Holds, known.join(h))
	}
	for _, h := range s.Waiters {
		l.Waiters = append(l.Waiters, known.join(h))
	}
	slices.SortStableFunc(l.Holds, func(a, b Hold) int {
		return cmp.Or(cmp.Compare(b.Age, a.Age), cmp.Compare(a.ID, b.ID))
	})
	return l
}
