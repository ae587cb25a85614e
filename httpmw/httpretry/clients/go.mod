module github.com/lockkit/lockkit/httpmw/httpretry/clients

go 1.25.0

require (
	github.com/go-resty/resty/v2 v2.16.5
	github.com/hashicorp/go-retryablehttp v0.7.8
	github.com/lockkit/lockkit v0.0.0
)

require (
	github.com/cenkalti/backoff/v4 v4.2.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	golang.org/x/net v0.42.0 // indirect
	golang.org/x/sys v0.41.0 // indirect
)

replace github.com/lockkit/lockkit => ../../..
