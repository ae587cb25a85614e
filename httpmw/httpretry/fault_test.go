package httpretry_test

const serviceEnv = "LOCKKIT_HTTPRETRY_SERVICE"

func serveForParent(string) {}
