package neighbours

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// These kits have the clients whose locks are plain keys.
var (
	springKit = javaKit("spring", "SpringDriver")

	pythonKit = &kit{
		name: "python", files: []string{"python/driver.py"},
		install: "apt-get install python3-pip, or brew install python", needs: []string{"python3"},
		resolve: func(dir string, packages []string) error {
			return call(dir, "python3", append([]string{"-m", "pip", "install", "--quiet", "--target", "lib"}, packages...)...)
		},
	}

	nodeKit = &kit{
		name: "node", files: []string{"node/driver.js"},
		install: "apt-get install npm, or brew install node", needs: []string{"node", "npm"},
		resolve: func(dir string, packages []string) error {
			return call(dir, "npm", append([]string{"install", "--prefix", dir, "--no-audit", "--no-fund", "--ignore-scripts"}, packages...)...)
		},
	}
)

// StartSpring starts a JVM with Spring Integration's RedisLockRegistry and with
// ShedLock. The clients are "spring", "spring-renews" with a renewal scheduler,
// "shedlock", and "shedlock-safe" with safeUpdate. All drivers of plain keys have the
// same commands: "trylock" and "extend" with a client, a name and a TTL, and "unlock"
// with a client and a name.
func StartSpring(t testing.TB, addr string) *Driver {
	t.Helper()
	return startJava(t, springKit, "SpringDriver", addr)
}

// StartPython starts a Python program with redis-py's Lock, the client "redis-py".
func StartPython(t testing.TB, addr string) *Driver {
	t.Helper()
	dir := pythonKit.require(t)
	cmd := exec.Command("python3", filepath.Join(dir, "driver.py"), addr)
	cmd.Env = append(cmd.Environ(), "PYTHONPATH="+filepath.Join(dir, "lib"))
	return Start(t, cmd)
}

// StartNode starts a Node.js program with node-redlock on ioredis, for the servers at
// addrs. The clients are "redlock", "redlock-5" and "redlock-5-using".
func StartNode(t testing.TB, addrs ...string) *Driver {
	t.Helper()
	return Start(t, exec.Command("node", append([]string{filepath.Join(nodeKit.require(t), "driver.js")}, addrs...)...))
}
