//go:build clientgo

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// leases serves the part of an API server that client-go's LeaseLock uses. It reads,
// creates and updates Leases of coordination.k8s.io/v1, in JSON. It answers with a
// conflict if the resourceVersion of an update differs from that of the stored Lease.
type leases struct {
	mu      sync.Mutex
	stored  map[string]coordinationv1.Lease // by namespace and name
	version int                             // the last resourceVersion
}

// serveLeases starts an API server on a free port.
func serveLeases() (obey func(verb string) string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &leases{stored: make(map[string]coordinationv1.Lease)}
	const path = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+path+"/{name}", answer(http.StatusOK, s.get))
	mux.HandleFunc("POST "+path, answer(http.StatusCreated, s.create))
	mux.HandleFunc("PUT "+path+"/{name}", answer(http.StatusOK, s.update))
	go func() {
		fmt.Fprintln(os.Stderr, http.Serve(listener, mux))
		os.Exit(1)
	}()
	return func(string) string { return listener.Addr().String() }, nil
}

// answer returns a handler that makes call. The handler writes the returned Lease, or
// the Status of the error.
func answer(code int, call func(r *http.Request) (coordinationv1.Lease, *apierrors.StatusError)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		lease, refused := call(r)
		lease.TypeMeta = metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"}
		code, body := code, any(lease)
		if refused != nil {
			status := refused.Status()
			status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			code, body = int(status.Code), status
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(body); err != nil {
			fmt.Fprintln(os.Stderr, err) // the client has closed its connection
		}
	}
}

func (s *leases) get(r *http.Request) (coordinationv1.Lease, *apierrors.StatusError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease, ok := s.stored[r.PathValue("namespace")+"/"+r.PathValue("name")]
	if !ok {
		return lease, apierrors.NewNotFound(coordinationv1.Resource("leases"), r.PathValue("name"))
	}
	return lease, nil
}

func (s *leases) create(r *http.Request) (coordinationv1.Lease, *apierrors.StatusError) {
	lease, refused := read(r)
	if refused != nil {
		return lease, refused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := lease.Namespace + "/" + lease.Name
	if _, ok := s.stored[key]; ok {
		return lease, apierrors.NewAlreadyExists(coordinationv1.Resource("leases"), lease.Name)
	}
	lease.CreationTimestamp = metav1.NewTime(time.Now())
	return s.store(key, lease), nil
}

func (s *leases) update(r *http.Request) (coordinationv1.Lease, *apierrors.StatusError) {
	lease, refused := read(r)
	if refused != nil {
		return lease, refused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := lease.Namespace + "/" + lease.Name
	old, ok := s.stored[key]
	switch {
	case !ok:
		return lease, apierrors.NewNotFound(coordinationv1.Resource("leases"), lease.Name)
	case lease.ResourceVersion != old.ResourceVersion:
		return lease, apierrors.NewConflict(coordinationv1.Resource("leases"), lease.Name, errors.New("the object has been modified"))
	}
	lease.UID, lease.CreationTimestamp = old.UID, old.CreationTimestamp
	return s.store(key, lease), nil
}

// store stores a Lease as its next version. The caller holds mu.
func (s *leases) store(key string, lease coordinationv1.Lease) coordinationv1.Lease {
	s.version++
	lease.ResourceVersion = strconv.Itoa(s.version)
	if lease.UID == "" {
		lease.UID = types.UID("lease-" + lease.ResourceVersion)
	}
	s.stored[key] = lease
	return lease
}

// read returns the Lease in the body of a request. It refuses the same durations as an
// API server.
func read(r *http.Request) (lease coordinationv1.Lease, refused *apierrors.StatusError) {
	if kind := r.Header.Get("Content-Type"); kind != "application/json" {
		return lease, apierrors.NewBadRequest("not JSON: " + kind)
	}
	if err := json.NewDecoder(r.Body).Decode(&lease); err != nil {
		return lease, apierrors.NewBadRequest(err.Error())
	}
	if name := r.PathValue("name"); lease.Namespace != r.PathValue("namespace") || name != "" && lease.Name != name {
		return lease, apierrors.NewBadRequest("the names of the path and the object differ")
	}
	if d := lease.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		return lease, apierrors.NewInvalid(coordinationv1.SchemeGroupVersion.WithKind("Lease").GroupKind(), lease.Name,
			field.ErrorList{field.Invalid(field.NewPath("spec", "leaseDurationSeconds"), *d, "must be greater than 0")})
	}
	return lease, nil
}
