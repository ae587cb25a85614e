package inspection_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/inspection"
	"github.com/lockkit/lockkit/core/store"
)

// FuzzDecodeCard decodes any text that other programs may have stored in place of a
// card. The text is rejected, or decoded to a card that can be shown. The card can also
// be stored again, unless its new text is too long.
func FuzzDecodeCard(f *testing.F) {
	text, err := inspection.EncodeCard("test", store.Card{
		Process: "AAAAAAAA", Service: "\x1b[2J\u202e", Host: "<b>", PID: -1, Start: time.Unix(1, 0),
		Entries: []store.CardEntry{{Name: "order", Hold: "x", Key: "order:1", For: -1}},
	}, time.Minute)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("AAAAAAAA", string(text))
	f.Add("AAAAAAAA", `{"process":"AAAAAAAA","start":"9999-12-31T23:59:59-23:59","entries":[{"for":9223372036854775807}]}`)
	f.Add("a b", `{"process":"a b"}`)
	f.Add("AAAAAAAA", `{"Process":"AAAAAAAA","pid":1e3,"entries":null}`)
	f.Add("AAAAAAAA", strings.Repeat("[", 100_000))
	f.Fuzz(func(t *testing.T, process, text string) {
		c, ok := inspection.DecodeCard(process, []byte(text))
		if !ok {
			if c.Process != "" || c.Entries != nil {
				t.Errorf("%q is no card, and shows %+v", text, c)
			}
			return
		}
		if c.Process != process || strings.ContainsAny(process, " \x00/<>'\"") {
			t.Errorf("%q is a card of %q, asked was that of %q", text, c.Process, process)
		}
		again, err := json.Marshal(c)
		if err != nil {
			t.Fatalf("%q cannot be shown: %v", text, err)
		}
		if len(again) > store.MaxCard {
			return // other escapes can be longer
		}
		if same, ok := inspection.DecodeCard(process, again); !ok || len(same.Entries) != len(c.Entries) || same.Service != c.Service {
			t.Errorf("%q is %+v, and then %+v", text, c, same)
		}
	})
}
