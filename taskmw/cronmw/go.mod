module github.com/lockkit/lockkit/taskmw/cronmw

go 1.25.0

require (
	github.com/go-co-op/gocron/v2 v2.12.1
	github.com/lockkit/lockkit v0.0.0
	github.com/redis/go-redis/v9 v9.22.0
	github.com/robfig/cron/v3 v3.0.1
)

require (
	github.com/cenkalti/backoff/v4 v4.3.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jonboulle/clockwork v0.5.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/exp v0.0.0-20240613232115-7f521ea00fb8 // indirect
	golang.org/x/sys v0.41.0 // indirect
)

replace github.com/lockkit/lockkit => ../..
