package watermillmw_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/taskmw/watermillmw"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	own := errors.New("secret")
	for _, c := range []struct {
		name  string
		key   watermillmw.KeyFunc
		want  string // the locked key; "" means an error
		fault string // a part of the error's text
	}{
		{"metadata of a message", watermillmw.Metadata("tenant"), "order:a%3Ab", ""},
		{"metadata of another case", watermillmw.Metadata("Tenant"), "", `the metadata "Tenant" is missing`},
		{"empty metadata", watermillmw.Metadata("empty"), "", `the metadata "empty" is empty`},
		{"control character", watermillmw.Metadata("bell"), "", `the metadata "bell" contains a control character`},
		{"UUID", watermillmw.UUID(), "order:u-1", ""},
		{"payload field", watermillmw.Payload("order.id"), "order:9007199254740993", ""},
		{"missing field", watermillmw.Payload("order.no"), "", `the payload field "order.no" is missing`},
		{"ambiguous field", watermillmw.Payload("twice"), "", `the payload field "twice"`},
		{"two parts", watermillmw.Join(watermillmw.UUID(), watermillmw.Payload("order.id")), "order:u-1:9007199254740993", ""},
		{"a missing part", watermillmw.Join(watermillmw.UUID(), watermillmw.Metadata("no")), "", `the metadata "no" is missing`},
		{"own function", func(*message.Message) (string, error) { return "9", nil }, "order:9", ""},
		{"empty function", func(*message.Message) (string, error) { return "", nil }, "", "the key is empty"},
		{"invalid function", func(*message.Message) (string, error) { return "", fmt.Errorf("%w: %w", own, core.ErrInvalid) }, "", "the key could not be found"},
		{"failing function", func(*message.Message) (string, error) { return "", own }, "", "the key could not be found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			msg := delivered("u-1", `{"order":{"id":9007199254740993},"twice":1,"Twice":2}`)
			msg.Metadata = message.Metadata{"tenant": "a:b", "empty": "", "bell": "\a"}
			l, got := memLocker(t), ""
			_, err := watermillmw.Lock(l, "order", c.key)(func(msg *message.Message) ([]*message.Message, error) {
				lease, _ := core.LeaseFromContext(msg.Context())
				got = lease.Key()
				return nil, nil
			})(msg)
			if c.fault == "" {
				if err != nil || got != c.want {
					t.Errorf("got %q and %v, want %q", got, err, c.want)
				}
				return
			}
			ours := !strings.Contains(c.name, "failing")
			if got != "" || errors.Is(err, core.ErrInvalid) != ours || !strings.Contains(fmt.Sprint(err), c.fault) || isNacked(msg) {
				t.Errorf("got %q, %v, nacked %v; want an error with %q", got, err, isNacked(msg), c.fault)
			}
			if strings.Contains(fmt.Sprint(err), "secret") {
				t.Errorf("got %v, which shows what the function said", err)
			}
			_, err = watermillmw.Idempotent(newOnce(t, l), "order", c.key)(mustNotRun(t))(msg)
			if !strings.Contains(fmt.Sprint(err), c.fault) {
				t.Errorf("Idempotent: got %v, want an error with %q", err, c.fault)
			}
		})
	}
}

func TestPanics(t *testing.T) {
	t.Parallel()
	l := memLocker(t)
	runs, key := newOnce(t, l), watermillmw.UUID()
	for name, fn := range map[string]func(){
		"nil locker":            func() { watermillmw.Lock(nil, "order", key) },
		"nil Once":              func() { watermillmw.Idempotent(nil, "order", key) },
		"bad name":              func() { watermillmw.Lock(l, "or der", key) },
		"no name":               func() { watermillmw.Idempotent(runs, "", key) },
		"nil key":               func() { watermillmw.Lock(l, "order", nil) },
		"nil option":            func() { watermillmw.Lock(l, "order", key, nil) },
		"nil acquire option":    func() { watermillmw.Acquire(nil) },
		"bad acquire option":    func() { watermillmw.Lock(l, "order", key, watermillmw.Acquire(core.TTL(-1))) },
		"nil second key":        func() { watermillmw.Also(nil) },
		"nil part":              func() { watermillmw.Join(key, nil) },
		"no parts":              func() { watermillmw.Join() },
		"no metadata":           func() { watermillmw.Metadata("") },
		"bad path":              func() { watermillmw.Payload("$.id") },
		"unknown policy":        func() { watermillmw.OnBusy(watermillmw.Fail + 1) },
		"nil fingerprint":       func() { watermillmw.Fingerprint(nil) },
		"Lock with Fingerprint": func() { watermillmw.Lock(l, "order", key, watermillmw.Fingerprint(key)) },
		"Idempotent with Also":  func() { watermillmw.Idempotent(runs, "order", key, watermillmw.Also(key)) },
		"Idempotent with Acquire": func() {
			watermillmw.Idempotent(runs, "order", key, watermillmw.Acquire(core.Fair()))
		},
		"Idempotent with FailOpen": func() { watermillmw.Idempotent(runs, "order", key, watermillmw.FailOpen()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if text := fmt.Sprint(recover()); !strings.HasPrefix(text, "watermillmw: ") {
					t.Errorf("got %q, want a panic of watermillmw", text)
				}
			}()
			fn()
		})
	}
}
