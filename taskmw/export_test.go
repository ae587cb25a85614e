package taskmw

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core/once"
)

// Remembered returns the number of busy keys that the server of cfg remembers, and the
// number of tasks that wait in its slots.
func Remembered(cfg asynq.Config) (keys, waiting int) {
	s := cfg.BaseContext().Value(configuredKey{}).(*crowds)
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.of), s.waiting
}

// CallOf returns the call of an Idempotent of this name whose key is the task's type.
func CallOf(name string, t *asynq.Task) once.Call {
	g := configure("CallOf", name, Type(), nil)
	m := &idempotent{conflict: conflict{config: &g}, key: Type()}
	c, err := m.call(context.Background(), t)
	if err != nil {
		panic(err)
	}
	return c
}
