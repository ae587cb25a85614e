package main

import (
	"errors"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const sharedWords = 512

// shared is memory that this process and its children share through a file. Each word
// has its own cache line.
type shared struct {
	path string
	mem  []byte
}

// newShared creates a shared memory. Child processes open it by its path.
func newShared() (*shared, error) {
	f, err := os.CreateTemp("", "benchmarks")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(sharedWords*64), f.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()))
	}
	s, err := openShared(f.Name())
	if err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()))
	}
	return s, nil
}

func openShared(path string) (*shared, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, sharedWords*64, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return &shared{path: path, mem: mem}, nil
}

func (s *shared) word(i int) *atomic.Int64 {
	return (*atomic.Int64)(unsafe.Pointer(&s.mem[i*64]))
}

// remove unmaps the memory and deletes its file. Only the process that created the
// memory may call it.
func (s *shared) remove() error {
	return errors.Join(unix.Munmap(s.mem), os.Remove(s.path))
}
