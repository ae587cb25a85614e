package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/examples/recipes/webhook"
	"github.com/lockkit/lockkit/httpmw/stdmw"
)

const secret = "whsec_c2VjcmV0IG9mIHRoZSB0ZXN0"

// sign has, for each sender, a function that returns the headers of a signed delivery.
var sign = map[string]func(id, body string) http.Header{
	"acme": func(id, body string) http.Header {
		key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		at := fmt.Sprint(time.Now().Unix())
		good := "v1," + base64.StdEncoding.EncodeToString(sum(key, id+"."+at+"."+body))
		return http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {at}, "Webhook-Signature": {"v1,old " + good}}
	},
	"stripe": func(_, body string) http.Header {
		at := fmt.Sprint(time.Now().Unix())
		return http.Header{"Stripe-Signature": {"t=" + at + ",v1=" + hex.EncodeToString(sum([]byte(secret), at+"."+body)) + ",v0=x"}}
	},
	"github": func(id, body string) http.Header {
		return http.Header{"X-Github-Delivery": {id}, "X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(sum([]byte(secret), body))}}
	},
	"paypal": func(_, body string) http.Header {
		return http.Header{"Paypal-Transmission-Id": {fmt.Sprint(time.Now().UnixNano())}, "Paypal-Transmission-Sig": {body}}
	},
}

func sum(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = io.WriteString(h, text)
	return h.Sum(nil)
}

var senders = map[string]webhook.Sender{
	"acme": webhook.Standard("acme", secret), "stripe": webhook.Stripe(secret), "github": webhook.GitHub(secret),
	"paypal": webhook.PayPal(func(h http.Header, body []byte) error {
		if h.Get("Paypal-Transmission-Sig") != string(body) {
			return errors.New("not signed")
		}
		return nil
	}),
}

// outage is a store whose acquires fail while down is true.
type outage struct {
	store.Store
	down atomic.Bool
}

func (o *outage) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if o.down.Load() {
		return store.Grant{}, store.ErrUnavailable
	}
	return o.Store.Acquire(ctx, c)
}

// replica returns a receiver of the sender's deliveries with s as the store.
func replica(t *testing.T, s store.Store, sender webhook.Sender, handle http.HandlerFunc) http.Handler {
	t.Helper()
	locks, err := core.New(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	runs, err := once.New(locks, once.Retain(webhook.Keep))
	if err != nil {
		t.Fatal(err)
	}
	return sender.Handler(runs, handle)
}

func deliver(h http.Handler, header http.Header, body string) *httptest.ResponseRecorder {
	return deliverTo(h, "/hooks", header, body)
}

func deliverTo(h http.Handler, path string, header http.Header, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header = header.Clone()
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestHandler_Refusal checks that an answer other than 2xx is not stored, so that the
// next delivery of the event is handled.
func TestHandler_Refusal(t *testing.T) {
	t.Parallel()
	for name, sender := range senders {
		answers := []int{http.StatusNotFound, http.StatusGone, http.StatusAccepted}
		h := replica(t, memstore.New(), sender, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(answers[0])
			answers = answers[1:]
		})
		for _, want := range []int{http.StatusNotFound, http.StatusGone, http.StatusAccepted, http.StatusAccepted} {
			if got := deliver(h, sign[name]("evt_1", `{"id":"evt_1"}`), `{"id":"evt_1"}`).Code; got != want {
				t.Errorf("%s: got %d, want %d", name, got, want)
			}
		}
	}
}

func TestSenders(t *testing.T) {
	t.Parallel()
	s := &outage{Store: memstore.New()} // shared by all senders
	for name, sender := range senders {
		t.Run(name, func(t *testing.T) {
			runs := map[string]int{}
			h := replica(t, s, sender, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				runs[string(body)]++
				w.WriteHeader(http.StatusAccepted)
			})
			send := func(id, body string) int { return deliver(h, sign[name](id, body), body).Code }
			created, paid := `{"id":"evt_1","pending":2}`, `{"id":"evt_2","pending":1}`
			s.down.Store(true)
			if got := send("evt_2", paid); got != http.StatusServiceUnavailable || len(runs) != 0 {
				t.Errorf("down: got %d after %v", got, runs)
			}
			s.down.Store(false)
			// The later event comes first. Then both events come again.
			for range 2 {
				for _, event := range [][2]string{{"evt_2", paid}, {"evt_1", created}} {
					if got := send(event[0], event[1]); got != http.StatusAccepted {
						t.Errorf("%s: got %d", event[1], got)
					}
				}
			}
			if got := send("evt_1", `{"id":"evt_1","pending":1}`); got != http.StatusAccepted {
				t.Errorf("with another body: got %d", got)
			}
			if len(runs) != 2 || runs[created] != 1 || runs[paid] != 1 {
				t.Errorf("handled %v", runs)
			}
			if got := deliver(h, sign[name]("evt_3", "{}"), `{"id":"evt_3"}`).Code; got != http.StatusUnauthorized {
				t.Errorf("a false signature: got %d", got)
			}
			if got := deliver(h, http.Header{}, `{"id":"evt_1"}`).Code; got != http.StatusUnauthorized {
				t.Errorf("no signature: got %d, which may be somebody else's answer", got)
			}
		})
	}
}

func TestTwoReplicas(t *testing.T) {
	t.Parallel()
	s, inside, leave := memstore.New(), make(chan struct{}), make(chan struct{})
	handle := func(http.ResponseWriter, *http.Request) {
		inside <- struct{}{} // blocks forever if the handler runs twice
		<-leave
	}
	one, other := replica(t, s, senders["acme"], handle), replica(t, s, senders["acme"], handle)
	header, answered := sign["acme"]("msg_1", "{}"), make(chan int)
	go func() { answered <- deliver(one, header, "{}").Code }()
	<-inside
	if r := deliver(other, header, "{}"); r.Code != http.StatusConflict || r.Header().Get("Retry-After") == "" {
		t.Errorf("meanwhile: got %d %v", r.Code, r.Header())
	}
	close(leave)
	if got := <-answered; got != http.StatusOK {
		t.Errorf("got %d", got)
	}
	if r := deliver(other, header, "{}"); r.Code != http.StatusOK || r.Header().Get("Idempotent-Replayed") != "true" {
		t.Errorf("afterwards: got %d %v", r.Code, r.Header())
	}
}

// TestAcceptFirst makes GitHub deliver during an outage of the store. The handler
// accepts the delivery. When the store is available again, a worker handles the
// delivery once.
func TestAcceptFirst(t *testing.T) {
	t.Parallel()
	s := &outage{Store: memstore.New()}
	locks, err := core.New(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	runs, err := once.New(locks, once.Retain(webhook.Keep))
	if err != nil {
		t.Fatal(err)
	}
	sender, queue, handled := senders["github"], make(chan string, 10), 0
	accept := sender.Verified(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := sender.ID(r)
		if err != nil || id == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		queue <- id
		w.WriteHeader(http.StatusAccepted)
	}))
	work := func(id string) error {
		_, err := runs.Do(t.Context(), once.Call{Name: "github", Scope: "github", Key: id}, func(context.Context) (once.Answer, error) {
			handled++
			return once.Answer{}, nil
		})
		return err
	}
	s.down.Store(true)
	for range 2 { // the second time is a redelivery by hand
		if got := deliver(accept, sign["github"]("guid-1", "{}"), "{}").Code; got != http.StatusAccepted {
			t.Errorf("got %d, want 202: GitHub does not deliver again", got)
		}
	}
	if got := deliver(accept, sign["github"]("guid-2", "{}"), `{"forged":true}`).Code; got != http.StatusUnauthorized {
		t.Errorf("a false signature: got %d", got)
	}
	if len(queue) != 2 {
		t.Fatalf("%d deliveries are queued, want 2", len(queue))
	}
	first, second := <-queue, <-queue
	if err := work(first); !errors.Is(err, core.ErrUnavailable) || handled != 0 {
		t.Errorf("in the outage: got %v after %d", err, handled)
	}
	s.down.Store(false)
	if err := errors.Join(work(first), work(second)); err != nil || handled != 1 {
		t.Errorf("got %v, handled %d times, want once", err, handled)
	}
}

func TestOldDelivery(t *testing.T) {
	t.Parallel()
	h := replica(t, memstore.New(), senders["acme"], func(http.ResponseWriter, *http.Request) { t.Error("it was handled") })
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	for _, at := range []string{fmt.Sprint(time.Now().Add(-6 * time.Minute).Unix()), fmt.Sprint(time.Now().Add(6 * time.Minute).Unix()), "", "now"} {
		header := http.Header{
			"Webhook-Id": {"msg_1"}, "Webhook-Timestamp": {at},
			"Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(sum(key, "msg_1."+at+".{}"))},
		}
		if got := deliver(h, header, "{}").Code; got != http.StatusUnauthorized {
			t.Errorf("at %q: got %d", at, got)
		}
	}
}

// TestNoSecret checks senders whose secret is missing in the configuration. Anybody can
// sign with an empty secret.
func TestNoSecret(t *testing.T) {
	t.Parallel()
	at := fmt.Sprint(time.Now().Unix())
	for name, c := range map[string]struct {
		sender webhook.Sender
		header http.Header
	}{
		"acme": {webhook.Standard("acme", "whsec_"), http.Header{
			"Webhook-Id": {"msg_1"}, "Webhook-Timestamp": {at},
			"Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(sum(nil, "msg_1."+at+`.{"id":"1"}`))},
		}},
		"stripe": {webhook.Stripe(""), http.Header{"Stripe-Signature": {"t=" + at + ",v1=" + hex.EncodeToString(sum(nil, at+`.{"id":"1"}`))}}},
		"github": {webhook.GitHub(""), http.Header{
			"X-Github-Delivery": {"guid"}, "X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(sum(nil, `{"id":"1"}`))},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := replica(t, memstore.New(), c.sender, func(http.ResponseWriter, *http.Request) { t.Error("it was handled") })
			if got := deliver(h, c.header, `{"id":"1"}`).Code; got != http.StatusUnauthorized {
				t.Errorf("got %d, want 401", got)
			}
		})
	}
}

// TestGitHubSignatureAsID checks that a recorded delivery is not handled again if the
// signature is the ID, as README.md proposes.
func TestGitHubSignatureAsID(t *testing.T) {
	t.Parallel()
	sender, runs := senders["github"], 0
	sender.ID = stdmw.Header("X-Hub-Signature-256")
	h := replica(t, memstore.New(), sender, func(http.ResponseWriter, *http.Request) { runs++ })
	for _, id := range []string{"sent", "forged"} {
		if got := deliver(h, sign["github"](id, "{}"), "{}").Code; got != http.StatusOK || runs != 1 {
			t.Errorf("%s: got %d after %d runs, want one run", id, got, runs)
		}
	}
	if deliver(h, sign["github"]("other", `{"n":2}`), `{"n":2}`); runs != 2 {
		t.Errorf("another body: got %d runs, want 2", runs)
	}
}
