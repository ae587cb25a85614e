//go:build clientgo

package main

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
)

// overtake makes a leader of client-go lose its Lease to another holder. It then
// cancels the leader's election before the leader tries to renew the Lease, and returns
// the holder that the Lease names afterwards.
func overtake() (holder string, err error) {
	obey, err := serveLeases()
	if err != nil {
		return "", err
	}
	leases, err := newClient(obey("address"))
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	leads, done := make(chan struct{}), make(chan struct{})
	config := election(leases, "first", func(context.Context) { close(leads) })
	config.LeaseDuration, config.RenewDeadline, config.RetryPeriod = 4*time.Hour, 3*time.Hour, 2*time.Hour
	elector, err := leaderelection.NewLeaderElector(config)
	if err != nil {
		return "", err
	}
	go func() {
		defer close(done)
		elector.Run(ctx)
	}()
	<-leads
	for renewed := false; !renewed; time.Sleep(beat) { // client-go renews at the start too
		lease, err := leases.Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		renewed = lease.ResourceVersion != "1"
	}
	lease, err := leases.Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	next := "second"
	lease.Spec.HolderIdentity = &next
	if _, err := leases.Leases(namespace).Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		return "", err
	}
	cancel()
	<-done
	if lease, err = leases.Leases(namespace).Get(context.Background(), name, metav1.GetOptions{}); err != nil {
		return "", err
	}
	return "holder=" + *lease.Spec.HolderIdentity, nil
}
