// Package webhook handles each delivery of a webhook once. Most senders deliver at
// least once, and repeat a delivery after any answer that is late or not 2xx. GitHub
// does not repeat deliveries.
package webhook

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw/stdmw"
)

// Sender is a service that sends webhooks.
type Sender struct {
	// Name is the scope of the sender's IDs, because two senders may use the same IDs.
	// GitHub uses the same ID for an event at several hooks, so each hook needs its own
	// name.
	Name string
	// ID finds the ID of a delivery. A repeated delivery has the same ID.
	ID stdmw.KeyFunc
	// Verify checks the signature, and the age if the signature covers a time. It
	// returns an error if the delivery comes from somebody else or is too old.
	Verify func(h http.Header, body []byte) error
	// MaxBody limits the length of a body, in bytes. The default is 1 MiB. Verify needs
	// the whole body, so anybody's request can use this much memory.
	MaxBody int64
}

// Keep is the time for once.Retain. It is longer than the three days within which
// Stripe and PayPal repeat a delivery.
const Keep = 7 * 24 * time.Hour

// Handler returns a handler that runs next once for each delivery of s. It checks the
// signature outside Idempotent, so that nobody else gets an answer or uses up an ID.
// The fingerprint excludes the body, because senders change some fields with each
// delivery. Only an answer of 2xx is stored. After any other answer the next delivery
// runs next again.
func (s Sender) Handler(runs *once.Once, next http.Handler) http.Handler {
	scope := func(*http.Request) (string, error) { return s.Name, nil }
	accepted := func(k stdmw.Kept) bool { return k.Status/100 == 2 }
	return s.Verified(stdmw.Idempotent(runs, scope, stdmw.KeepIf(accepted),
		stdmw.Key(s.ID), stdmw.Fingerprint(s.ID), stdmw.CallName(s.Name), stdmw.BodyLimit(s.maxBody()), stdmw.Detached())(next))
}

func (s Sender) maxBody() int64 {
	if s.MaxBody == 0 {
		return 1 << 20
	}
	return s.MaxBody
}

// Verified returns a handler that runs next for each delivery of s, including repeated
// deliveries. Use it if next only accepts deliveries, and a worker handles them later. An
// outage of the locks' store then loses no delivery. next can find the ID by s.ID.
func (s Sender) Verified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.maxBody()))
		if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
			http.Error(w, "the body is too long", http.StatusRequestEntityTooLarge)
			return
		}
		if err != nil {
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
			return
		}
		if err := s.Verify(r.Header, body); err != nil {
			http.Error(w, "the signature is not valid", http.StatusUnauthorized)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// Standard returns a sender that follows https://www.standardwebhooks.com. The secret
// consists of "whsec_" and base64.
func Standard(name, secret string) Sender {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	verify := func(h http.Header, body []byte) error {
		id, at := h.Get("Webhook-Id"), h.Get("Webhook-Timestamp")
		want := "v1," + base64.StdEncoding.EncodeToString(mac(key, id, ".", at, ".", string(body)))
		return errors.Join(err, present(key), recent(at), oneOf(strings.Fields(h.Get("Webhook-Signature")), want))
	}
	return Sender{Name: name, ID: stdmw.Header("Webhook-Id"), Verify: verify}
}

// Stripe returns Stripe as a sender, https://docs.stripe.com/webhooks. The ID of an
// event is in the body.
func Stripe(secret string) Sender {
	verify := func(h http.Header, body []byte) error {
		fields := strings.Split(h.Get("Stripe-Signature"), ",")
		at, _ := strings.CutPrefix(fields[0], "t=")
		want := "v1=" + hex.EncodeToString(mac([]byte(secret), at, ".", string(body)))
		return errors.Join(present([]byte(secret)), recent(at), oneOf(fields[1:], want))
	}
	return Sender{Name: "stripe", ID: stdmw.JSON("id"), Verify: verify}
}

// GitHub returns GitHub as a sender, https://docs.github.com/webhooks. GitHub repeats a
// failed delivery only on request, with the same ID: see Hook.Redeliver. GitHub's
// signature covers the body, but neither a time nor the ID. So somebody who has
// recorded a delivery can have it handled again under a new ID. GitHub's bodies have up
// to 25 MB.
func GitHub(secret string) Sender {
	verify := func(h http.Header, body []byte) error {
		want := "sha256=" + hex.EncodeToString(mac([]byte(secret), string(body)))
		return errors.Join(present([]byte(secret)), oneOf(h.Values("X-Hub-Signature-256"), want))
	}
	return Sender{Name: "github", ID: stdmw.Header("X-Github-Delivery"), Verify: verify, MaxBody: 25 << 20}
}

// PayPal returns PayPal as a sender, https://developer.paypal.com/api/rest/webhooks.
// verify checks the signature, with PayPal's certificate or by a call of PayPal's API.
// The ID of an event is in the body. The header PAYPAL-TRANSMISSION-ID has a different
// ID for each delivery.
func PayPal(verify func(h http.Header, body []byte) error) Sender {
	return Sender{Name: "paypal", ID: stdmw.JSON("id"), Verify: verify}
}

// present returns an error for an empty secret, with which anybody can sign. A secret
// is empty if it is missing in the configuration.
func present(secret []byte) error {
	if len(secret) == 0 {
		return errors.New("the secret is empty")
	}
	return nil
}

func mac(key []byte, parts ...string) []byte {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		_, _ = io.WriteString(h, p)
	}
	return h.Sum(nil)
}

func oneOf(signatures []string, want string) error {
	for _, s := range signatures {
		if subtle.ConstantTimeCompare([]byte(s), []byte(want)) == 1 {
			return nil
		}
	}
	return errors.New("no signature is valid")
}

// recent returns an error unless the time, in seconds since 1970, is within five
// minutes of now. An older delivery may have been recorded and sent again.
func recent(seconds string) error {
	n, err := strconv.ParseInt(seconds, 10, 64)
	if age := time.Since(time.Unix(n, 0)); err != nil || age.Abs() > 5*time.Minute {
		return fmt.Errorf("the time %q is not one, or not of the last 5 minutes", seconds)
	}
	return nil
}
