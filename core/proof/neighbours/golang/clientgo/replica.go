//go:build clientgo

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/core/redisstore"
)

// These are the namespace and the name of the election's Lease. The name is also the
// kit's key.
const (
	namespace = "default"
	name      = "reports"
)

// The first three constants have the defaults 15 s, 10 s and 2 s in client-go. When a
// leader is paused, its Lease lasts for at least another ttl. So a paused leader of the
// release "both" has lost the lock before another replica can get the Lease.
const (
	leaseDuration = 3 * time.Second
	renewDeadline = 1500 * time.Millisecond
	retryPeriod   = 200 * time.Millisecond
	ttl           = leaseDuration - renewDeadline - retryPeriod
)

// beat is the pause between two writes of the leader.
const beat = 10 * time.Millisecond

var errOvertaken = errors.New("another replica has the Lease")

// replica takes part in the election until it leaves.
type replica struct {
	release, identity, ledger string

	leases coordinationv1.CoordinationV1Interface
	locks  *core.Locker

	serving context.Context // until the replica leaves
	stop    context.CancelFunc
	working chan struct{}      // has an element while the work of client-go's term runs
	end     context.CancelFunc // ends client-go's election
	gone    chan struct{}      // closed when the replica has left the election
	terms   int
}

// join starts a replica, and returns the function that carries out its commands.
func join(release, identity, apiserver, redisAddr, ledger string) (obey func(verb string) string, err error) {
	r := &replica{release: release, identity: identity, ledger: ledger, working: make(chan struct{}, 1), gone: make(chan struct{})}
	if r.leases, err = newClient(apiserver); err != nil {
		return nil, err
	}
	store, err := redisstore.New(redis.NewClient(&redis.Options{Addr: redisAddr}))
	if err != nil {
		return nil, err
	}
	if r.locks, err = core.New(store); err != nil {
		return nil, err
	}
	r.serving, r.stop = context.WithCancel(context.Background())
	var campaign context.Context
	campaign, r.end = context.WithCancel(context.Background())
	go func() {
		defer close(r.gone)
		if release == "leader" {
			r.lead(r.serving)
		} else {
			r.campaign(campaign)
		}
	}()
	return func(string) string {
		r.leave()
		return "done"
	}, nil
}

func newClient(addr string) (coordinationv1.CoordinationV1Interface, error) {
	config := &rest.Config{Host: "http://" + addr, Timeout: renewDeadline / 2, QPS: -1}
	config.ContentType = "application/json" // the API server does not support protobuf
	return coordinationv1.NewForConfig(config)
}

func election(leases coordinationv1.LeasesGetter, identity string, started func(leading context.Context)) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name},
			Client:     leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true, Name: name,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: started, OnStoppedLeading: func() {}},
	}
}

// leave ends the work first, and then client-go's election. The Lease must not be
// released while the work runs.
func (r *replica) leave() {
	r.stop()
	r.working <- struct{}{}
	r.end()
	<-r.gone
}

// campaign takes part in client-go's election until ctx is done.
func (r *replica) campaign(ctx context.Context) {
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(election(r.leases, r.identity, r.started))
		if err != nil {
			panic(err)
		}
		elector.Run(ctx)
		// client-go does not wait for the work.
		select {
		case r.working <- struct{}{}:
			<-r.working
		case <-ctx.Done():
		}
	}
}

// started is the callback OnStartedLeading. client-go calls it in a goroutine, which
// can start so late that leading is already done.
func (r *replica) started(leading context.Context) {
	r.working <- struct{}{}
	defer func() { <-r.working }()
	ctx, cancel := context.WithCancel(leading)
	defer cancel()
	defer context.AfterFunc(r.serving, cancel)()
	if r.release == "both" {
		r.lead(ctx)
		return
	}
	if err := r.work(ctx); err != nil {
		// Until client-go has noticed the loss, a cancellation of the election would
		// release the Lease of the other replica.
		<-ctx.Done()
	}
}

// lead takes part in the kit's election until ctx is done.
func (r *replica) lead(ctx context.Context) {
	err := leader.Run(ctx, r.locks, name, r.work, leader.Acquire(core.TTL(ttl)))
	fmt.Fprintln(os.Stderr, r.identity, err)
}

// work writes until ctx is done.
func (r *replica) work(ctx context.Context) error {
	r.terms++
	report := url.Values{"who": {r.identity}, "term": {strconv.Itoa(r.terms)}, "release": {r.release}}
	seen := mono()
	if r.release != "leader" {
		lease, err := r.leases.Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != r.identity {
			return errOvertaken
		}
		report.Set("transitions", strconv.Itoa(int(*lease.Spec.LeaseTransitions)))
	}
	if lease, ok := core.LeaseFromContext(ctx); ok {
		report.Set("token", strconv.FormatUint(lease.Token(), 10))
	}
	for {
		at := mono()
		if ctx.Err() != nil {
			break
		}
		report.Set("at", strconv.FormatInt(at, 10))
		report.Set("gap", strconv.FormatInt(at-seen, 10))
		seen = at
		r.post(report)
		time.Sleep(beat)
	}
	report.Set("left", "yes")
	r.post(report)
	return nil
}

// post sends a report to the ledger. It ignores a refusal by the ledger: the leader
// continues until its context is done.
func (r *replica) post(report url.Values) {
	resp, err := http.PostForm(r.ledger, report)
	if err != nil {
		fmt.Fprintln(os.Stderr, r.identity, err)
		return
	}
	_ = resp.Body.Close()
}

// mono returns the time of the monotonic clock in nanoseconds. All processes of a
// machine share this clock.
func mono() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}
