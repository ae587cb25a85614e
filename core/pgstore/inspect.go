package pgstore

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/internal/inspection"
	"github.com/lockkit/lockkit/core/store"
)

// Look implements store.Inspector in one round trip, or in two for a free key: the second
// one asks whether row-level security hides the table. It locks no row, and reads no value
// of a record.
func (s *Store) Look(ctx context.Context, key string) (store.State, error) {
	const op = "look"
	if err := claims.CheckKey("pgstore: look", key, false); err != nil {
		return store.State{}, err
	}
	states, err := s.shown(ctx, op, call("look").text(key).null("bytea").num(1).end())
	if err != nil || len(states) == 0 {
		return store.State{Key: key}, err
	}
	return states[0], nil
}

// List implements store.Inspector in one round trip a page, and one more for an empty
// one, in the order of the keys' bytes. Next is the last key of the page, in hex.
func (s *Store) List(ctx context.Context, after string, most int) (page []store.State, next string, err error) {
	const op = "list"
	if err := inspection.CheckPage("pgstore: list", most); err != nil {
		return nil, "", err
	}
	last, err := hex.DecodeString(after)
	if err != nil {
		return nil, "", fmt.Errorf("pgstore: list: there is no such page: %w", store.ErrInvalid)
	}
	states, err := s.shown(ctx, op, call("look").null("bytea").bytes(last).num(int64(most)).end())
	if err != nil {
		return nil, "", err
	}
	for _, state := range states {
		if claims.CheckKey("", state.Key, false) != nil {
			continue // no Store has written it
		}
		if len(state.Holds) > 0 || len(state.Waiters) > 0 || state.Run != nil {
			page = append(page, state)
		}
	}
	if len(states) == most {
		next = hex.EncodeToString([]byte(states[most-1].Key))
	}
	return page, next, nil
}

// Revoke implements store.Inspector in one round trip.
func (s *Store) Revoke(ctx context.Context, key, hold string, keep time.Duration) error {
	const op, name = "revoke", "pgstore: revoke"
	if err := claims.CheckKey(name, key, false); err != nil {
		return err
	}
	if err := inspection.CheckRevoke(name, hold, keep); err != nil {
		return err
	}
	id, err := base64.RawURLEncoding.DecodeString(hold)
	if err != nil || len(id) != idBytes {
		return inspection.Lost(name)
	}
	rows, err := s.do(ctx, op, call("revoke").text(key).bytes(id).num(millis(keep)).end())
	if err != nil {
		return needs(revoking, err)
	}
	if len(rows) == 1 && len(rows[0]) == 1 {
		return confirmed(op, string(rows[0][0]))
	}
	return confirmed(op, "")
}

// idBytes is how long the ID of a hold is, as bytes.
const idBytes = 8

func (s *Store) shown(ctx context.Context, op string, st statement) ([]store.State, error) {
	rows, err := s.do(ctx, op, st)
	if err != nil {
		return nil, needs(looking, unchanged(err))
	}
	if len(rows) == 0 {
		return nil, s.visible(ctx, op, "keys")
	}
	states, ok := parseStates(rows)
	if !ok {
		return nil, fmt.Errorf("pgstore: %s: %w: the answer cannot be read", op, store.ErrUnavailable)
	}
	return states, nil
}

// visible returns an error if row-level security hides a table, which then looks empty.
func (s *Store) visible(ctx context.Context, op, table string) error {
	rows, err := s.do(ctx, op, statement(concealed([]string{table})))
	if err != nil {
		return unchanged(err)
	}
	if secured := string(rows[0][0]); secured != "" {
		return fmt.Errorf("pgstore: %s: %w: %s", op, store.ErrUnavailable, secured)
	}
	return nil
}

// unchanged gives the error of a call that reads its class.
func unchanged(err error) error {
	if errors.Is(err, store.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w (%w)", store.ErrUnavailable, err)
}

// parseStates reads the answer of the function look.
func parseStates(rows [][][]byte) (states []store.State, ok bool) {
	for _, row := range rows {
		if len(row) != 9 || len(row[1]) != 1 {
			return nil, false
		}
		key, err := hex.DecodeString(string(row[0]))
		if err != nil {
			return nil, false
		}
		kind := row[1][0]
		if kind == '0' {
			states = append(states, store.State{Key: string(key)})
			continue
		}
		if len(states) == 0 || states[len(states)-1].Key != string(key) {
			return nil, false
		}
		state := &states[len(states)-1]
		weight, okWeight := number(row[3]) // of a record its attempt
		age, okAge := number(row[5])
		rest, okRest := number(row[6])
		if !okWeight || !okAge || !okRest || weight < 0 || weight > store.All || weight == 0 && kind != '3' {
			return nil, false
		}
		h := store.Hold{Weight: weight, Fair: string(row[4]) == "t", Age: micros(age), Left: micros(rest)}
		switch {
		case kind == '1' && row[2] == nil:
			state.Holds = append(state.Holds, h)
		case kind == '1' || kind == '2':
			id, err := hex.DecodeString(string(row[2]))
			if err != nil || len(id) != idBytes {
				return nil, false
			}
			h.ID, h.Process = base64.RawURLEncoding.EncodeToString(id), inspection.Process(string(row[8]))
			if kind == '1' {
				state.Holds = append(state.Holds, h)
			} else {
				state.Waiters = append(state.Waiters, h)
			}
		case kind == '3':
			state.Run = &store.Run{Attempt: int(weight), Done: string(row[7]) == "t", Left: h.Left}
		default:
			return nil, false
		}
	}
	return states, true
}

// micros is a length of time of n microseconds, at most 200 years.
func micros(n int64) time.Duration {
	return time.Duration(min(max(n, 0), 200*365*24*int64(time.Hour/time.Microsecond))) * time.Microsecond
}

// Put implements store.Cards in one round trip.
func (s *Store) Put(ctx context.Context, c store.Card, ttl time.Duration) error {
	const op = "put a card"
	text, err := inspection.EncodeCard("pgstore: "+op, c, ttl)
	if err != nil {
		return err
	}
	_, err = s.do(ctx, op, call("put_card").text(c.Process).num(millis(ttl)).bytes(text).end())
	return needs(carding, err)
}

// Cards implements store.Cards in one round trip, or in two if there are none.
func (s *Store) Cards(ctx context.Context) ([]store.Card, error) {
	rows, err := s.do(ctx, "cards", call("shown_cards").end())
	if err != nil {
		return nil, needs(carding, unchanged(err))
	}
	if len(rows) == 0 {
		return nil, s.visible(ctx, "cards", "cards")
	}
	var cards []store.Card
	for _, row := range rows {
		if len(row) != 2 {
			continue
		}
		text, err := hex.DecodeString(string(row[1]))
		if err != nil {
			continue
		}
		if c, ok := inspection.DecodeCard(string(row[0]), text); ok {
			cards = append(cards, c)
		}
	}
	return cards, nil
}

// needs adds the GRANT that a user needs where it lacks a right: this one to a table, or
// the one without which no call gets that far. The server's message names what it is
// about, in any language.
func needs(grant string, err error) error {
	var reply *pgconn.PgError
	ok := errors.As(err, &reply)
	if !ok || reply.Code != codeRights || ofRows(err) {
		return err
	}
	switch {
	case ofSchema.MatchString(reply.Message):
		grant = "USAGE ON SCHEMA lockkit"
	case !ofTable.MatchString(reply.Message):
		grant = "EXECUTE ON ALL FUNCTIONS IN SCHEMA lockkit"
	}
	return fmt.Errorf("GRANT %s is needed: %w", grant, err)
}

var (
	ofSchema = regexp.MustCompile(`\blockkit\b`)
	ofTable  = regexp.MustCompile(`\b(keys|cards)\b`)
)

// What users need beside USAGE on the schema and EXECUTE on its functions.
const (
	looking  = "SELECT ON lockkit.keys"
	revoking = "SELECT, UPDATE ON lockkit.keys"
	carding  = "SELECT, INSERT, UPDATE, DELETE ON lockkit.cards"
)
