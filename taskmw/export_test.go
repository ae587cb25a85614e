package taskmw

import "github.com/hibiken/asynq"

// Remembered is how many busy keys the server of cfg knows of, and how many
// tasks wait in its slots.
func Remembered(cfg asynq.Config) (keys, waiting int) {
	s := cfg.BaseContext().Value(configuredKey{}).(*crowds)
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.of), s.waiting
}
