module github.com/lockkit/lockkit/taskmw/watermillmw

go 1.25.0

require (
	github.com/ThreeDotsLabs/watermill v1.2.0
	github.com/lockkit/lockkit v0.0.0
)

require (
	github.com/cenkalti/backoff/v3 v3.2.2 // indirect
	github.com/cenkalti/backoff/v4 v4.2.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/errwrap v1.1.0 // indirect
	github.com/hashicorp/go-multierror v1.1.1 // indirect
	github.com/lithammer/shortuuid/v3 v3.0.7 // indirect
	github.com/oklog/ulid v1.3.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	golang.org/x/sys v0.30.0 // indirect
)

replace github.com/lockkit/lockkit => ../..
