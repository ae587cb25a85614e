// Package webhook receives webhooks so that each delivery is handled once. Most senders
// deliver at least once, and again after any answer that is late or not 2xx. GitHub does not.
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
	// Name is the scope of the sender's IDs: two senders may use the same ones.
	Name string
	// ID finds the ID of a delivery, which is the same when it is sent again.
	ID stdmw.KeyFunc
	// Verify checks the signature. It fails if the delivery is not of the sender, or old.
	Verify func(h http.Header, body []byte) error
	// MaxBody is the length of the longest body, in bytes. The default is 1 MiB. So much
	// memory costs a request of anybody, as the signature is of the whole body.
	MaxBody int64
}

// Keep is for once.Retain: how long an event is known. It is longer than senders deliver
// again, which is three days for those of this package.
const Keep = 7 * 24 * time.Hour

// Handler returns a handler that runs next once for each delivery of s. The signature is
// checked outside of Idempotent, so that nobody else gets an answer or takes an ID. The body
// is no part of the fingerprint: senders write some fields anew with each delivery.
func (s Sender) Handler(runs *once.Once, next http.Handler) http.Handler {
	scope := func(*http.Request) (string, error) { return s.Name, nil }
	return s.Verified(stdmw.Idempotent(runs, scope,
		stdmw.Key(s.ID), stdmw.Fingerprint(s.ID), stdmw.CallName(s.Name), stdmw.BodyLimit(s.maxBody()), stdmw.Detached())(next))
}

func (s Sender) maxBody() int64 {
	if s.MaxBody == 0 {
		return 1 << 20
	}
	return s.MaxBody
}

// Verified returns a handler that runs next for each delivery of s, each time that it comes. It
// is for a next that accepts deliveries and has them handled later, apart from the store of the
// locks. s.ID finds the ID in its request.
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

// Standard is a sender that follows https://www.standardwebhooks.com. The secret is
// "whsec_" and base64.
func Standard(name, secret string) Sender {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	verify := func(h http.Header, body []byte) error {
		id, at := h.Get("Webhook-Id"), h.Get("Webhook-Timestamp")
		want := "v1," + base64.StdEncoding.EncodeToString(mac(key, id, ".", at, ".", string(body)))
		return errors.Join(err, recent(at), oneOf(strings.Fields(h.Get("Webhook-Signature")), want))
	}
	return Sender{Name: name, ID: stdmw.Header("Webhook-Id"), Verify: verify}
}

// Stripe is Stripe, https://docs.stripe.com/webhooks. An event has its ID in the body.
func Stripe(secret string) Sender {
	verify := func(h http.Header, body []byte) error {
		fields := strings.Split(h.Get("Stripe-Signature"), ",")
		at, _ := strings.CutPrefix(fields[0], "t=")
		want := "v1=" + hex.EncodeToString(mac([]byte(secret), at, ".", string(body)))
		return errors.Join(recent(at), oneOf(fields[1:], want))
	}
	return Sender{Name: "stripe", ID: stdmw.JSON("id"), Verify: verify}
}

// GitHub is GitHub, https://docs.github.com/webhooks. It sends a failed delivery again only if
// somebody asks it to, and the delivery keeps its ID then. Its signature is of the body alone,
// neither of a time nor of the ID: who has recorded a delivery can send it again under a new
// ID, and it is handled again. Bodies have up to 25 MB.
func GitHub(secret string) Sender {
	verify := func(h http.Header, body []byte) error {
		want := "sha256=" + hex.EncodeToString(mac([]byte(secret), string(body)))
		return oneOf(h.Values("X-Hub-Signature-256"), want)
	}
	return Sender{Name: "github", ID: stdmw.Header("X-Github-Delivery"), Verify: verify, MaxBody: 25 << 20}
}

// PayPal is PayPal, https://developer.paypal.com/api/rest/webhooks. It signs with a certificate,
// or is asked by its API whether it has: that is what verify does. An event has its ID in
// the body; the ID in the header PAYPAL-TRANSMISSION-ID is another one for each delivery.
func PayPal(verify func(h http.Header, body []byte) error) Sender {
	return Sender{Name: "paypal", ID: stdmw.JSON("id"), Verify: verify}
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

// recent fails for a time, in seconds since 1970, that is five minutes away from now: a
// delivery that somebody has recorded and sends again.
func recent(seconds string) error {
	n, err := strconv.ParseInt(seconds, 10, 64)
	if age := time.Since(time.Unix(n, 0)); err != nil || age.Abs() > 5*time.Minute {
		return fmt.Errorf("the time %q is not one, or not of the last 5 minutes", seconds)
	}
	return nil
}
