package testserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Browser is a headless Chromium for one test, driven over WebDriver
// (https://www.w3.org/TR/webdriver2/). It stops with the test. Its methods fail the test
// if the browser does not carry them out. Only one goroutine at a time may call them.
type Browser struct {
	*Process        // chromedriver
	Addr     string // host:port of chromedriver

	session string // the path of the session
}

// RequireBrowser skips or fails the test like RequireRedis, for chromedriver, and for
// Chromium or Google Chrome.
func RequireBrowser(t testing.TB) {
	t.Helper()
	const hint = "Chromium is not installed (apt-get install chromium chromium-driver)"
	require(t, hint, "chromedriver")
	if chromium() == "" {
		Missing(t, hint)
	}
}

func chromium() string { return cmp.Or(program("chromium"), program("google-chrome")) }

// StartBrowser starts a browser. args are added to the arguments that StartBrowser
// sets, for example "--host-resolver-rules=MAP locks.test 127.0.0.1". StartBrowser
// skips or fails the test like RequireBrowser.
func StartBrowser(t testing.TB, args ...string) *Browser {
	t.Helper()
	RequireBrowser(t)
	dir := tempDir(t)
	b := &Browser{Process: newProcess(t, "chromedriver", dir)}
	b.tree = true
	b.ready = func(int) bool {
		var status struct{ Ready bool }
		return b.call(2*time.Second, "GET", "/status", nil, &status) == nil && status.Ready
	}
	b.command = func() (*exec.Cmd, error) {
		cmd := exec.Command(program("chromedriver"), fmt.Sprint("--port=", portOf(b.Addr)), "--allowed-ips=127.0.0.1")
		cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir)
		return cmd, nil
	}
	b.begin(func() { b.Addr = local(freePort(t)) })
	all := append([]string{
		"--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server", "--disable-background-networking",
		"--no-sandbox", // root cannot have a sandbox, and the test trusts its own pages
	}, args...)
	var made struct{ SessionID string }
	err := b.call(time.Minute, "POST", "/session", map[string]any{"capabilities": map[string]any{"alwaysMatch": map[string]any{
		"browserName": "chrome", "goog:chromeOptions": map[string]any{"args": all, "binary": chromium()},
		"goog:loggingPrefs": map[string]string{"browser": "ALL"},
	}}}, &made)
	if err != nil {
		t.Fatalf("testserver: browser: %v", err)
	}
	b.session = "/session/" + made.SessionID
	t.Cleanup(func() { _ = b.call(10*time.Second, "DELETE", b.session, nil, nil) })
	return b
}

// Open loads a page, and returns when the page has been loaded.
func (b *Browser) Open(url string) {
	b.t.Helper()
	b.must("POST", "/url", map[string]string{"url": url}, nil)
}

// URL returns the address of the browser's page.
func (b *Browser) URL() (url string) {
	b.t.Helper()
	b.must("GET", "/url", nil, &url)
	return url
}

// Text returns the visible text of the first element that a CSS selector finds.
func (b *Browser) Text(selector string) (text string) {
	b.t.Helper()
	b.must("GET", "/element/"+b.find(selector)+"/text", nil, &text)
	return text
}

// Count returns the number of elements that a CSS selector finds.
func (b *Browser) Count(selector string) int {
	b.t.Helper()
	var found []map[string]string
	b.must("POST", "/elements", finding(selector), &found)
	return len(found)
}

// Click clicks on the first element that a CSS selector finds. The click must lead to
// another page, and Click returns when that page has been loaded.
func (b *Browser) Click(selector string) {
	b.t.Helper()
	b.Run("window.before = true")
	b.must("POST", "/element/"+b.find(selector)+"/click", map[string]any{}, nil)
	Eventually(b.t, time.Minute, "a click on "+selector+" leads to a page", func() bool {
		return b.Run("return window.before === undefined && document.readyState === 'complete'") == true
	})
}

// Type types text into the first element that a CSS selector finds.
func (b *Browser) Type(selector, text string) {
	b.t.Helper()
	b.must("POST", "/element/"+b.find(selector)+"/value", map[string]string{"text": text}, nil)
}

// Run runs JavaScript in the page and returns the result. The page's
// Content-Security-Policy does not apply to script.
func (b *Browser) Run(script string) (value any) {
	b.t.Helper()
	b.must("POST", "/execute/sync", map[string]any{"script": script, "args": []any{}}, &value)
	return value
}

// Screen sets the size of the page in CSS pixels, whether the device is a phone, and
// whether the user prefers dark pages.
func (b *Browser) Screen(width, height int, phone, dark bool) {
	b.t.Helper()
	scheme := map[bool]string{true: "dark", false: "light"}[dark]
	b.devtools("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone})
	b.devtools("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
}

// Screenshot returns a picture of the visible part of the page, as PNG.
func (b *Browser) Screenshot() []byte {
	b.t.Helper()
	var text string
	b.must("GET", "/screenshot", nil, &text)
	png, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		b.t.Fatalf("testserver: browser: %v", err)
	}
	return png
}

// Complaints returns the messages in the browser's console since the last call, such as
// errors of the page and violations of its Content-Security-Policy.
func (b *Browser) Complaints() (all []string) {
	b.t.Helper()
	var lines []struct{ Level, Message string }
	b.must("POST", "/se/log", map[string]string{"type": "browser"}, &lines)
	for _, l := range lines {
		all = append(all, l.Level+" "+l.Message)
	}
	return all
}

func finding(selector string) map[string]string {
	return map[string]string{"using": "css selector", "value": selector}
}

func (b *Browser) find(selector string) (id string) {
	b.t.Helper()
	var found map[string]string
	b.must("POST", "/element", finding(selector), &found)
	for _, id = range found { // the map has one entry, whose key is the same for all elements
	}
	return id
}

func (b *Browser) devtools(command string, params map[string]any) {
	b.t.Helper()
	b.must("POST", "/goog/cdp/execute", map[string]any{"cmd": command, "params": params}, nil)
}

func (b *Browser) must(method, path string, body, value any) {
	b.t.Helper()
	if err := b.call(time.Minute, method, b.session+path, body, value); err != nil {
		b.t.Fatalf("testserver: browser: %s %s %v: %v", method, path, body, err)
	}
}

func (b *Browser) call(limit time.Duration, method, path string, body, value any) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var out bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&out).Encode(body); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+b.Addr+path, &out)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct{ Value json.RawMessage }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(string(answer.Value[:min(len(answer.Value), 500)]))
	}
	if value == nil {
		return nil
	}
	return json.Unmarshal(answer.Value, value)
}
