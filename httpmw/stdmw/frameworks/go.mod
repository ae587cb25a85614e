module github.com/lockkit/lockkit/httpmw/stdmw/frameworks

go 1.26.0

require (
	github.com/go-chi/chi/v5 v5.2.2
	github.com/labstack/echo/v4 v4.13.4
	github.com/lockkit/lockkit v0.0.0
)

require (
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/labstack/gommon v0.4.2 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/valyala/fasttemplate v1.2.2 // indirect
	golang.org/x/crypto v0.57.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace github.com/lockkit/lockkit => ../../..
