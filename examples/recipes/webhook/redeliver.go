package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Redeliverable is the time for which GitHub redelivers an event on request. It is
// shorter than Keep, so a redelivery finds the stored answer of an event that was
// handled.
const Redeliverable = 3 * 24 * time.Hour

// Hook is a webhook of GitHub. It requests redeliveries through GitHub's API.
type Hook struct {
	// URL is the hook in the API, without a slash at its end:
	// https://api.github.com/repos/OWNER/REPO/hooks/ID, or with /orgs/ORG/hooks/ID for an
	// organization. It is https://api.github.com/app/hook for a GitHub App.
	URL string
	// Token is an access token with write access to webhooks. For a GitHub App it is a
	// JSON web token, which is valid for 10 minutes. So set it before each call of
	// Redeliver.
	Token string
	// Client sends the requests. The default is http.DefaultClient.
	Client *http.Client
}

// hookDelivery is a delivery of an event in the list of GitHub's API. All deliveries of
// an event have the same GUID, which is the ID in the header X-GitHub-Delivery.
type hookDelivery struct {
	ID          int64     `json:"id"`
	GUID        string    `json:"guid"`
	DeliveredAt time.Time `json:"delivered_at"`
	Redelivery  bool      `json:"redelivery"`
	Status      string    `json:"status"`
}

// Redeliver requests a redelivery of each event that has no delivery with the status
// OK, the oldest event first. It gives up an event whose first delivery is older than
// Redeliverable. It returns the number of requested redeliveries. GitHub delivers them
// later, perhaps after Redeliver has returned. Two calls at once request some
// redeliveries twice, which is harmless if Handler receives them.
//
// If GitHub refuses to repeat a delivery, Redeliver continues with the other
// deliveries. After any other error, Redeliver sends no further requests. The error
// matches each failed request's error, and the next call requests the missing
// redeliveries. Limit the time by ctx.
func (h Hook) Redeliver(ctx context.Context) (requested int, err error) {
	failed, err := h.failed(ctx, time.Now().Add(-Redeliverable))
	if err != nil {
		return 0, err
	}
	var refused []error
	for _, id := range slices.Backward(failed) { // failed lists the newest event first
		_, err := h.send(ctx, http.MethodPost, fmt.Sprintf("/deliveries/%d/attempts", id), nil)
		switch status := statusError(0); {
		case err == nil:
			requested++
		case errors.As(err, &status) && slices.Contains([]statusError{400, 404, 422}, status):
			refused = append(refused, err)
		default:
			return requested, errors.Join(append(refused, err)...)
		}
	}
	return requested, errors.Join(refused...)
}

// failed returns the IDs of the first deliveries since that time whose events have no
// successful delivery. GitHub lists the newest delivery first.
func (h Hook) failed(ctx context.Context, since time.Time) (ids []int64, err error) {
	done := map[string]bool{} // by GUID
	for query := "?per_page=100"; query != ""; {
		var page []hookDelivery
		if query, err = h.send(ctx, http.MethodGet, "/deliveries"+query, &page); err != nil {
			return nil, err
		}
		for _, d := range page {
			switch {
			case d.DeliveredAt.Before(since):
				return ids, nil
			case d.Status == "OK":
				done[d.GUID] = true
			case !d.Redelivery && !done[d.GUID]:
				ids = append(ids, d.ID)
			}
		}
	}
	return ids, nil
}

// send sends a request to the API, and decodes the answer into out unless out is nil. It
// returns the query of the next page, or "" after the last page.
func (h Hook) send(ctx context.Context, method, path string, out any) (next string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, h.URL+path, nil)
	if err != nil {
		return "", err
	}
	r.Header.Set("Accept", "application/vnd.github+json")
	r.Header.Set("Authorization", "Bearer "+h.Token)
	client := h.Client
	if client == nil {
		client = http.DefaultClient
	}
	response, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return "", fmt.Errorf("%s %s: %w", method, path, statusError(response.StatusCode))
	}
	if out == nil {
		return "", nil
	}
	if err := json.NewDecoder(response.Body).Decode(out); err != nil {
		return "", err
	}
	return nextPage(response.Header)
}

var nextLink = regexp.MustCompile(`<([^>]*)>; rel="next"`)

// nextPage returns the query of the link to the next page, or "" without such a link.
// Only its cursor is used, so the token is sent only to Hook.URL.
func nextPage(h http.Header) (string, error) {
	link := nextLink.FindStringSubmatch(h.Get("Link"))
	if link == nil {
		return "", nil
	}
	u, err := url.Parse(link[1])
	if err != nil {
		return "", err
	}
	cursor := u.Query().Get("cursor")
	if cursor == "" {
		return "", errors.New("the link to the next page has no cursor")
	}
	return "?per_page=100&cursor=" + url.QueryEscape(cursor), nil
}

// statusError is an answer of the API with a status other than 2xx.
type statusError int

func (e statusError) Error() string {
	return "GitHub answered " + strconv.Itoa(int(e)) + " " + http.StatusText(int(e))
}
