package once_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/store"
)

var whole = once.Call{Name: "charge", Scope: "tenant", Key: "order 42", Fingerprint: []byte("10 EUR")}

func TestRecord(t *testing.T) {
	t.Parallel()
	t.Run("format of a record", func(t *testing.T) {
		t.Parallel()
		// Users have records of this format in their stores, so it must stay readable.
		const want = "01" + "03" + "02" + "06636861726765" + "0674656e616e74" + "086f72646572203432" + "06313020455552" + "0772656365697074"
		if got := hex.EncodeToString(once.Encode(whole, once.Done, 2, []byte("receipt"))); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		const place = "once:charge:8c29961e003e85b894f396a27283e1107f6b66efe69eea8c0ecb3dc67794983c"
		if got := once.StoreKey(whole); got != place {
			t.Errorf("the place is %s, want %s", got, place)
		}
	})
	t.Run("every state", func(t *testing.T) {
		t.Parallel()
		big := bytes.Repeat([]byte("\x00\xff long"), 40_000)
		for s := once.Begun; s <= once.Indeterminate; s++ {
			for _, value := range [][]byte{nil, []byte("receipt"), big} {
				for _, c := range []once.Call{whole, {Name: "a", Key: "1"}} {
					b := once.Encode(c, s, 300, value)
					d, err := once.Decode(b)
					if err != nil {
						t.Fatal(err)
					}
					if d.Call.Name != c.Name || d.Call.Scope != c.Scope || d.Call.Key != c.Key || d.Settled != 300 ||
						!bytes.Equal(d.Call.Fingerprint, c.Fingerprint) || !bytes.Equal(d.Value, value) || !bytes.Equal(d.Again(), b) {
						t.Errorf("state %d: got %+v", s, d.Call)
					}
					if d.Finished != (s >= once.Done) {
						t.Errorf("state %d: finished is %v", s, d.Finished)
					}
				}
			}
		}
	})
	t.Run("nothing else is read", func(t *testing.T) {
		t.Parallel()
		good := once.Encode(whole, once.Done, 2, []byte("receipt"))
		for n := range good {
			if _, err := once.Decode(good[:n]); !errors.Is(err, core.ErrUnsupported) {
				t.Errorf("the first %d bytes: got %v", n, err)
			}
		}
		bad := map[string][]byte{
			"more after the end":   append(bytes.Clone(good), 0),
			"state 0":              edited(good, 1, 0),
			"state 6":              edited(good, 1, 6),
			"format 0":             edited(good, 0, 0),
			"format 2":             edited(good, 0, 2),
			"a longer name":        edited(good, 3, 255),
			"a number in two ways": append(append(bytes.Clone(good[:2]), 0x82, 0x00), good[3:]...),
			"a number without end": append(bytes.Clone(good[:2]), bytes.Repeat([]byte{0xff}, 20)...),
		}
		for name, b := range bad {
			if _, err := once.Decode(b); !errors.Is(err, core.ErrUnsupported) {
				t.Errorf("%s: got %v", name, err)
			}
		}
	})
	// An unreadable record is an error. The call is not answered, and fn is not run.
	sim(t, "unreadable record", func(t *testing.T) {
		good := once.Encode(charge("1"), once.Done, 2, []byte("receipt"))
		for name, b := range map[string][]byte{
			"of a later format": edited(good, 0, 2), "of a later state": edited(good, 1, 9), "damaged": good[:len(good)-1],
			"of something else": []byte(`{"status":"done"}`), "empty": {},
			"finished in one place only": once.Encode(charge("1"), once.Begun, 0, nil),
		} {
			for _, finished := range []bool{true, false} {
				if name == "finished in one place only" && !finished {
					b = good
				}
				st := memstore.New()
				kept := store.Record{Value: b, Attempt: 2, Done: finished}
				plant(t, st, charge("1"), kept)
				for _, o := range []*once.Once{newOnce(t, st), newOnce(t, st, once.AtMostOnce())} {
					for range 2 {
						err := refused(t, o, charge("1"), core.ErrUnsupported)
						if !strings.Contains(err.Error(), `once: do "charge": stored record `) {
							t.Errorf("%s: %v", name, err)
						}
					}
				}
				wantKept(t, st, charge("1"), kept)
			}
		}
	})
}

func edited(b []byte, at int, to byte) []byte {
	b = bytes.Clone(b)
	b[at] = to
	return b
}

// FuzzDecode checks that Decode accepts only the output of Encode, and does not change
// its input.
func FuzzDecode(f *testing.F) {
	for s := once.Begun; s <= once.Indeterminate; s++ {
		f.Add(once.Encode(whole, s, int(s)*100, []byte("receipt")))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		d, err := once.Decode(b)
		if !bytes.Equal(b, before) {
			t.Error("the input was changed")
		}
		if err != nil {
			if !errors.Is(err, core.ErrUnsupported) {
				t.Errorf("got %v", err)
			}
			return
		}
		if !bytes.Equal(d.Again(), b) {
			t.Errorf("%x is read, and written as %x", b, d.Again())
		}
	})
}
