package main

import (
	"errors"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sharedWords is how many words a shared memory has.
const sharedWords = 512

// shared is memory that this process and its children share, by a file. A word
// takes a line of the processors' caches.
type shared struct {
	path string
	mem  []byte
}

// newShared makes a shared memory; child processes open it by its path.
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

// word is the i-th word.
func (s *shared) word(i int) *atomic.Int64 {
	return (*atomic.Int64)(unsafe.Pointer(&s.mem[i*64]))
}

// remove gives the memory back. Only the process that made it may remove it.
func (s *shared) remove() error {
	return errors.Join(unix.Munmap(s.mem), os.Remove(s.path))
}
