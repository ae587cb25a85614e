package casstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/keystate"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
)

var noon = time.UnixMicro(1_700_000_000_000_000)

// full returns a state that uses every field except Done and Fresh of a record.
func full() *keystate.State {
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	sum := digest([]byte("answer"))
	return &keystate.State{
		Token: 1_699_999_990_000_000,
		Holds: []keystate.Hold{
			{Lease: "L1", Owner: "O\xff1", Weight: 1, Since: at(-10), Until: at(20)},
			{Lease: "=L2", Weight: store.All, Since: at(-5), Until: at(30)},
		},
		Waiters: []keystate.Waiter{
			{Lease: "L3", Owner: "O3", Via: "é", Weight: 2, Limit: 3, Fair: true, Run: true, Since: at(-1), Until: at(9)},
		},
		Tombs:  []keystate.Tombstone{{Lease: `"\<&>`, Until: at(40)}},
		Record: &keystate.Record{Value: sum, Attempt: 2, Until: at(60), Beginner: "L1", Before: &keystate.Record{Value: sum, Attempt: 1, Until: at(50), Saver: "L0"}},
	}
}

const fullText = `{"v":1,"written":1700000000000000,"token":1699999990000000,` +
	`"holds":[{"lease":"L1","owner":"=T/8x","weight":1,"since":1699999990000000,"until":1700000020000000},` +
	`{"lease":"=PUwy","weight":2147483647,"since":1699999995000000,"until":1700000030000000}],` +
	`"waiters":[{"lease":"L3","owner":"O3","via":"=w6k=","weight":2,"limit":3,"fair":true,"run":true,"since":1699999999000000,"until":1700000009000000}],` +
	`"tombs":[{"lease":"\"\\\u003c\u0026\u003e","until":1700000040000000}],` +
	`"record":{"sum":"9a9R3jpYYNKd5s5hU1sCsSpwiCz5T/V4XRhDxdTW4u0=","attempt":2,"until":1700000060000000,"beginner":"L1","before":{"attempt":1,"until":1700000050000000,"saver":"L0"}}}`

// TestText compares the text of an entry, except for the digest, with a fixed text. The
// text is a format that other processes read, even processes with earlier versions.
func TestText(t *testing.T) {
	t.Parallel()
	e := encode(full(), noon, true)
	got := string(e.State)
	if !strings.Contains(got, `"sum":"`) {
		t.Fatal(got)
	}
	from := strings.Index(got, `"sum":"`) + len(`"sum":"`)
	want := fullText[:strings.Index(fullText, `"sum":"`)+len(`"sum":"`)] + got[from:from+44] + fullText[strings.Index(fullText, `","attempt"`):]
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !e.Due.Equal(noon.Add(60*time.Second)) || e.Alone.Lease != "" || e.Alone.Token != full().Token {
		t.Errorf("got due %v, alone %+v", e.Due, e.Alone)
	}
	e.Version, e.Now = 1, noon
	s, err := decode(e)
	if err != nil || !reflect.DeepEqual(s, full()) {
		t.Errorf("got %+v, %v, want %+v", s, err, full())
	}
	for i := range len(got) {
		if got[i] < ' ' || got[i] > '~' {
			t.Fatalf("byte %d is %q, want ASCII", i, got[i])
		}
	}
}

// TestText_Damaged checks that a text is refused unless every part of it is known. An
// unknown part could admit two holders.
func TestText_Damaged(t *testing.T) {
	t.Parallel()
	whole := string(encode(full(), noon, false).State)
	bad := map[string]string{
		"empty": "", "null weight": strings.Replace(whole, `"weight":1,`, "", 1), "no lease": strings.Replace(whole, `"lease":"L1"`, `"lease":""`, 1),
		"more behind it": whole + whole, "an unknown field": strings.Replace(whole, `"token"`, `"colour":1,"token"`, 1),
		"an unknown field of a hold": strings.Replace(whole, `"weight":1`, `"weight":1,"colour":1`, 1),
		"a weight too high":          strings.Replace(whole, "2147483647", "2147483648", 1),
		"a limit below the weight":   strings.Replace(whole, `"limit":3`, `"limit":1`, 1),
		"no base64":                  strings.Replace(whole, "=T/8x", "=T/8", 1),
		"no digest":                  strings.Replace(whole, `"sum":"`, `"sum":"AAAA`, 1),
		"two runs back":              strings.Replace(whole, `"saver":"L0"`, `"before":{"attempt":0,"until":1}`, 1),
		"no version":                 strings.Replace(whole, `"v":1,`, "", 1),
		"a tombstone of nobody":      strings.Replace(whole, `"lease":"\"`, `"lease":"","x":"`, 1),
	}
	for i := range len(whole) {
		bad[fmt.Sprintf("cut at %d", i)] = whole[:i]
	}
	for what, text := range bad {
		if s, err := decode(Entry{Version: 1, State: []byte(text), Now: noon}); err == nil {
			t.Errorf("%s: got %+v, want an error", what, s)
		}
	}
	for _, text := range []string{strings.Replace(whole, `"v":1`, `"v":2`, 1), `{"v":2,"leases":[{}]}`} {
		if _, err := decode(Entry{Version: 1, State: []byte(text), Now: noon}); !errors.Is(err, errNewer) {
			t.Errorf("a later version: got %v, want %v", err, errNewer)
		}
	}
	if _, err := decode(Entry{Version: 1, Alone: Alone{Lease: "L"}, Now: noon}); err == nil {
		t.Error("a hold without an owner beside no text: got no error")
	}
}

// TestText_ClockSetBack checks that nothing lasts longer when the clock of the place is
// set back.
func TestText_ClockSetBack(t *testing.T) {
	t.Parallel()
	for _, usual := range []bool{true, false} {
		s := &keystate.State{Token: 7, Holds: []keystate.Hold{{Lease: "L", Owner: "O", Weight: store.All, Since: noon, Until: noon.Add(time.Minute)}}}
		e := encode(s, noon, usual)
		if (e.State == nil) != usual {
			t.Fatalf("got %s", e.State)
		}
		e.Version, e.Now = 1, noon.Add(-time.Hour)
		back, err := decode(e)
		if err != nil || !back.Holds[0].Until.Equal(e.Now.Add(time.Minute)) || !back.Holds[0].Since.Equal(e.Now) {
			t.Errorf("got %+v, %v", back, err)
		}
	}
}

// TestText_AgreesWithTheRule applies the same steps to a key in memory, and to a key
// that is encoded and decoded after each step. The results must agree.
func TestText_AgreesWithTheRule(t *testing.T) {
	t.Parallel()
	for seed := range uint64(tally.Trials(10_000)) {
		agree(t, seed, 40)
	}
}

func agree(t *testing.T, seed uint64, steps int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	now, usual := noon, seed%2 == 0
	memory := &keystate.State{}
	row := Entry{Version: 1, Alone: Alone{Written: now}}
	if !usual {
		row = encode(memory, now, false)
		row.Version = 1
	}
	for step := range steps {
		now = now.Add(time.Duration(r.IntN(4000)) * time.Millisecond)
		row.Now = now
		loaded, err := decode(row)
		if err != nil {
			t.Fatalf("seed %d, step %d: %v", seed, step, err)
		}
		c := randomClaim(r)
		var answers [2]string
		for i, s := range []*keystate.State{memory, loaded} {
			answers[i] = apply(s, now, c, step+int(seed))
		}
		if answers[0] != answers[1] {
			t.Fatalf("seed %d, step %d: in memory %s\nas a row %s\nof %+v", seed, step, answers[0], answers[1], c)
		}
		if step%5 == 0 { // Look removes expired parts
			if a, b := memory.Look(now, "k"), loaded.Look(now, "k"); !reflect.DeepEqual(a, b) {
				t.Fatalf("seed %d, step %d: in memory %+v\nas a row %+v", seed, step, a, b)
			}
		}
		row = encode(loaded, now, usual)
		row.Version = 1
		if twice := encode(memory, now, usual); string(twice.State) != string(row.State) || twice.Alone != row.Alone || !twice.Due.Equal(row.Due) {
			t.Fatalf("seed %d, step %d: in memory %s %+v\nas a row %s %+v", seed, step, twice.State, twice.Alone, row.State, row.Alone)
		}
	}
}

func randomClaim(r *rand.Rand) store.Claim {
	names := []string{"a", "b", "c", "=d", "\xff", "é"}
	c := store.Claim{
		Key: "k", Lease: names[r.IntN(6)], Owner: names[r.IntN(4)], Weight: store.All, Limit: store.All,
		TTL: time.Duration(1+r.IntN(20)) * time.Second, Fair: r.IntN(3) == 0, Wait: r.IntN(2) == 0,
		Undo: r.IntN(5) == 0,
	}
	switch r.IntN(4) {
	case 0:
		c.Weight = 1
	case 1:
		c.Weight, c.Limit = 1, 2
	}
	if r.IntN(5) == 0 {
		c.Via = names[r.IntN(4)]
	}
	if r.IntN(6) == 0 && c.Weight == store.All {
		c.MinToken = uint64(noon.UnixMicro()) + uint64(r.IntN(1_000_000_000))
	}
	if r.IntN(3) == 0 {
		c.Record = &store.Record{
			Value: digest([]byte{byte(r.IntN(3))}), Attempt: 1 + r.IntN(2), Done: r.IntN(2) == 0, Retain: time.Duration(1+r.IntN(30)) * time.Second,
		}
	}
	if r.IntN(5) == 0 {
		c.Keep = time.Duration(r.IntN(9)) * time.Second
	}
	return c
}

// apply makes one step on s, and returns the result as text.
func apply(s *keystate.State, now time.Time, c store.Claim, which int) string {
	switch which % 8 {
	case 0, 1, 2, 3:
		g, wake, err := s.Acquire(now, c)
		text := fmt.Sprintf("%+v %v %v", g, wake, err)
		if g.Record != nil {
			text += fmt.Sprintf("%+v", *g.Record)
			g.Record = nil
		}
		var busy *store.BusyError
		if errors.As(err, &busy) {
			text = fmt.Sprintf("%+v", *busy)
		} else if g.Record == nil {
			text = fmt.Sprintf("%s %d %v %v", g.Owner, g.Token, wake, err)
		}
		return text
	case 4:
		return fmt.Sprint(s.Extend(now, c))
	case 5, 6:
		wake, err := s.Release(now, c)
		return fmt.Sprint(wake, err)
	}
	wake, found := s.Revoke(now, store.HoldID(c.Lease), c.Keep)
	return fmt.Sprint(wake, found)
}
