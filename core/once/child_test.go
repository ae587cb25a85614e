package once_test

const childEnv = "LOCKKIT_ONCE_CHILD"

func childMain(string) int { return 0 }
