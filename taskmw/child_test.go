package taskmw_test
const childEnv = "LOCKKIT_TASKMW_CHILD"
func childMain(string) int { return 0 }
