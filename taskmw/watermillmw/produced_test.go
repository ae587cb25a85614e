package watermillmw_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/taskmw/watermillmw"
)

func TestProduced(t *testing.T) {
	t.Parallel()
	plain, odd := message.NewMessage("a", []byte("x")), message.NewMessage("\xff", []byte("\x00\xff"))
	odd.Metadata = message.Metadata{"": "", "\xfe": "\x1f", "z": "1", "b": "2"}
	for name, produced := range map[string][]*message.Message{
		"none":  nil,
		"one":   {plain},
		"empty": {message.NewMessage("", nil), message.NewMessage("", nil)},
		"odd":   {odd, plain, odd},
		"bare":  {{UUID: "struct"}},
	} {
		a := watermillmw.AnswerOf(produced)
		got, err := watermillmw.ProducedOf(a.Value)
		if err != nil || a.Unreplayable || len(got) != len(produced) {
			t.Errorf("%s: got %d messages and %v, want %d", name, len(got), err, len(produced))
			continue
		}
		for i := range got {
			if !got[i].Equals(produced[i]) {
				t.Errorf("%s: got %+v, want %+v", name, got[i], produced[i])
			}
		}
	}
}

func TestProduced_Bound(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]bool{watermillmw.MaxProduced - 64: false, watermillmw.MaxProduced: true} {
		a := watermillmw.AnswerOf([]*message.Message{message.NewMessage("a", make([]byte, size))})
		if a.Unreplayable != want || len(a.Value) > watermillmw.MaxProduced {
			t.Errorf("%d bytes: got %v with %d bytes, want %v", size, a.Unreplayable, len(a.Value), want)
		}
	}
}

func FuzzProduced(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte("\x02"))
	f.Add([]byte("\x01\x01a\x01b\x01\x01c\x01d"))
	f.Add([]byte("\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, value []byte) {
		produced, err := watermillmw.ProducedOf(value)
		if err != nil {
			if !errors.Is(err, core.ErrUnsupported) || produced != nil {
				t.Errorf("got %d messages and %v", len(produced), err)
			}
			return
		}
		again := watermillmw.AnswerOf(produced)
		back, err := watermillmw.ProducedOf(again.Value)
		if err != nil || len(back) != len(produced) || len(again.Value) > len(value) && !bytes.Equal(again.Value, value) {
			t.Errorf("got %d messages and %v, want %d", len(back), err, len(produced))
		}
	})
}
