module github.com/lockkit/lockkit/examples/recipes/kafka/cluster

go 1.26.0

require (
	github.com/lockkit/lockkit v0.0.0
	github.com/lockkit/lockkit/examples/recipes/kafka v0.0.0
	github.com/segmentio/kafka-go v0.4.51
	github.com/twmb/franz-go v1.22.3
	github.com/twmb/franz-go/pkg/kfake v0.0.0-20260918054303-01f206a7e32c
)

require (
	github.com/cenkalti/backoff/v4 v4.2.0 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
	github.com/twmb/franz-go/pkg/kmsg v1.15.1 // indirect
	golang.org/x/sys v0.30.0 // indirect
)

replace (
	github.com/lockkit/lockkit => ../../../..
	github.com/lockkit/lockkit/examples/recipes/kafka => ..
)
